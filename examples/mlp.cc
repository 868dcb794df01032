// mlp CHECKPOINT EXPERT: what mlp.c does, with the C++ wrapper. Handles go by themselves, and
// errors are exceptions.
#include <cstdio>
#include <cstdlib>
#include <metal_marlin/metal_marlin.hpp>
#include <string>
#include <vector>

namespace mm = metal_marlin;

// One expert of a layer. A model that stores gate and up apart names both: two names give one
// handle, with the rows of both.
static mm::weights load(const mm::context& context, const mm::checkpoint& file, const char* layer,
                        std::int64_t expert) {
  const marlin_shard shard = {{0, 0, expert}, {0, 0, 1}};
  auto desc = mm::make<marlin_load_desc>();
  desc.layers = &layer;
  desc.shards = &shard;
  desc.layer_count = 1;
  return mm::load(context, file, desc);
}

static void multiply(const std::vector<float>& a, const mm::weights& by, std::vector<float>& c,
                     marlin_epilogue epilogue) {
  auto desc = mm::make<marlin_gemm_desc>();
  desc.weights = by.get();
  desc.epilogue = epilogue;
  desc.a = mm::matrix_view(a.data(), 1, static_cast<std::int64_t>(a.size()));
  desc.c = mm::matrix_view(c.data(), 1, static_cast<std::int64_t>(c.size()));
  mm::gemm(desc);
}

int main(int argc, char** argv) try {
  if (argc != 3) return std::fprintf(stderr, "usage: mlp CHECKPOINT EXPERT\n"), 2;
  const std::int64_t expert = std::strtoll(argv[2], nullptr, 10);
  const mm::context context(MARLIN_BACKEND_AUTO);
  const mm::checkpoint file{std::string(argv[1])};
  const mm::weights gate_up =
      load(context, file, "model.layers.0.mlp.experts.gate_up_proj", expert);
  const mm::weights down = load(context, file, "model.layers.0.mlp.experts.down_proj", expert);

  std::vector<float> x(static_cast<std::size_t>(mm::info(gate_up).k));
  std::vector<float> hidden(static_cast<std::size_t>(mm::info(down).k)),
      y(static_cast<std::size_t>(mm::info(down).n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
  multiply(x, gate_up, hidden, MARLIN_EPILOGUE_SWIGLU_OAI);
  multiply(hidden, down, y, MARLIN_EPILOGUE_NONE);
  std::printf("y = %.3f %.3f %.3f ... %.3f\n", double{y[0]}, double{y[1]}, double{y[2]},
              double{y.back()});
  return 0;
} catch (const mm::error& e) {
  std::fprintf(stderr, "%s: %s\n", marlin_status_name(e.status()), e.what());
  return 1;
}
