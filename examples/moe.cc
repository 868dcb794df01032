// moe CHECKPOINT: some tokens through the mixture of experts of one layer of Qwen3-MoE. A router
// chooses two experts for each token; y is the sum over both of scale * W_down f(W_gate x, W_up x).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <metal_marlin/metal_marlin.hpp>
#include <string>
#include <vector>

namespace mm = metal_marlin;

static constexpr std::int64_t tokens = 3, top_k = 2;

// One row for each token, or for each token and expert.
static std::vector<float> rows(std::int64_t count, std::int64_t columns) {
  return std::vector<float>(static_cast<std::size_t>(count * columns));
}

struct Routes {  // of each token, top_k times
  std::vector<std::int32_t> ids;
  std::vector<float> scales;
};

// The experts with the largest logits, and the softmax of these logits.
static Routes route(const std::vector<float>& logits, std::int32_t experts) {
  Routes routes;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* of_token = logits.data() + t * experts;
    std::vector<std::int32_t> order;
    order.reserve(static_cast<std::size_t>(experts));
    for (std::int32_t e = 0; e < experts; ++e) order.push_back(e);
    std::partial_sort(order.begin(), order.begin() + top_k, order.end(),
                      [&](std::int32_t a, std::int32_t b) { return of_token[a] > of_token[b]; });
    float sum = 0;
    for (std::int64_t s = 0; s < top_k; ++s) {
      const std::int32_t id = order[static_cast<std::size_t>(s)];
      routes.ids.push_back(id);
      routes.scales.push_back(std::exp(of_token[id] - of_token[order[0]]));
      sum += routes.scales.back();
    }
    for (std::int64_t s = 0; s < top_k; ++s)
      routes.scales[static_cast<std::size_t>(t * top_k + s)] /= sum;
  }
  return routes;
}

int main(int argc, char** argv) try {
  if (argc != 2) return std::fprintf(stderr, "usage: moe CHECKPOINT\n"), 2;
  const mm::context context(MARLIN_BACKEND_AUTO);
  const mm::checkpoint file{std::string(argv[1])};
  const mm::weights router = mm::load(context, file, {"model.layers.0.mlp.gate"});
  // All gate rows of an expert, then all its up rows, in one handle.
  const mm::weights gate_up =
      mm::load(context, file,
               {"model.layers.0.mlp.experts.gate_proj", "model.layers.0.mlp.experts.up_proj"});
  const mm::weights down = mm::load(context, file, {"model.layers.0.mlp.experts.down_proj"});
  const marlin_layer_info wide = mm::info(gate_up), narrow = mm::info(down);
  const auto experts = static_cast<std::int32_t>(mm::info(router).n);

  std::vector<float> x = rows(tokens, wide.k), logits = rows(tokens, experts);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
  auto product = mm::make<marlin_gemm_desc>();
  product.weights = router.get();
  product.a = mm::matrix_view(x.data(), tokens, wide.k);
  product.c = mm::matrix_view(logits.data(), tokens, experts);
  mm::gemm(product);
  const Routes routes = route(logits, experts);

  std::vector<float> hidden = rows(tokens * top_k, narrow.k), y = rows(tokens, narrow.n);
  product.weights = gate_up.get();
  product.epilogue = MARLIN_EPILOGUE_SWIGLU;
  product.expert_ids = mm::matrix_view(routes.ids.data(), tokens, top_k);
  product.c = mm::matrix_view(hidden.data(), tokens * top_k, narrow.k);  // a row for each route
  mm::gemm(product);
  product.weights = down.get();
  product.epilogue = MARLIN_EPILOGUE_NONE;
  product.expert_scales = mm::matrix_view(routes.scales.data(), tokens, top_k);
  product.a = product.c;
  product.c = mm::matrix_view(y.data(), tokens, narrow.n);  // the scales sum the routes of a token
  mm::gemm(product);

  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto at = [t](std::int64_t columns) { return static_cast<std::size_t>(t * columns); };
    std::printf("token %d: experts %d and %d, y = %.3f ... %.3f\n", static_cast<int>(t),
                routes.ids[at(top_k)], routes.ids[at(top_k) + 1], double{y[at(narrow.n)]},
                double{y[at(narrow.n) + static_cast<std::size_t>(narrow.n) - 1]});
  }
  return 0;
} catch (const mm::error& e) {
  std::fprintf(stderr, "%s: %s\n", marlin_status_name(e.status()), e.what());
  return 1;
}
