// threads CHECKPOINT LAYER: four threads multiply by one copy of the weights, each on a stream of
// its own, as an engine serves several requests. The bits of a result depend neither on the number
// of threads nor on what else runs.
#include <cstdio>
#include <metal_marlin/metal_marlin.hpp>
#include <string>
#include <thread>
#include <vector>

namespace mm = metal_marlin;

// One request: a row of activations, multiplied in buffers, which a stream of any backend takes.
static std::vector<float> answer(const mm::context& context, const mm::weights& weights,
                                 int request) {
  const marlin_layer_info layer = mm::info(weights);
  const auto n = static_cast<std::size_t>(layer.n), k = static_cast<std::size_t>(layer.k);
  const mm::buffer x(context, k * sizeof(float)), y(context, n * sizeof(float));
  float* activations = static_cast<float*>(x.data());
  for (std::size_t i = 0; i < k; ++i)
    activations[i] = static_cast<float>(request + 1) / static_cast<float>(i + 1);

  mm::stream stream(context);
  auto product = mm::make<marlin_gemm_desc>();
  product.weights = weights.get();
  product.a = x.matrix<float>(1, layer.k);
  product.c = y.matrix<float>(1, layer.n);
  mm::gemm(stream, product);
  stream.wait();
  const float* results = static_cast<const float*>(y.data());
  return {results, results + n};
}

int main(int argc, char** argv) try {
  if (argc != 3) return std::fprintf(stderr, "usage: threads CHECKPOINT LAYER\n"), 2;
  const mm::context context(MARLIN_BACKEND_AUTO);
  const mm::weights weights =
      mm::load(context, mm::checkpoint(std::string(argv[1])), std::string(argv[2]));

  constexpr int requests = 4;
  std::vector<std::vector<float>> at_once(requests);
  std::vector<std::string> failures(requests);
  std::vector<std::thread> threads;
  threads.reserve(requests);
  for (int r = 0; r < requests; ++r) {
    threads.emplace_back([&, r] {
      try {
        at_once[static_cast<std::size_t>(r)] = answer(context, weights, r);
      } catch (const mm::error& e) {
        failures[static_cast<std::size_t>(r)] = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  bool same = true;
  for (int r = 0; r < requests; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (!failures[i].empty())
      return std::fprintf(stderr, "request %d: %s\n", r, failures[i].c_str()), 1;
    same = same && at_once[i] == answer(context, weights, r);
    std::printf("request %d: y[0] = %.3f\n", r, double{at_once[i][0]});
  }
  std::printf("the same one after the other: %s\n", same ? "yes" : "no");
  return same ? 0 : 1;
} catch (const mm::error& e) {
  std::fprintf(stderr, "%s: %s\n", marlin_status_name(e.status()), e.what());
  return 1;
}
