// Products of the same activations, as queries, keys and values have them: one call computes all.
#include "graph.h"

namespace ggml_test {
namespace {

constexpr int64_t kWidth = 128;

/// Calls of the abort callback, which ggml asks after each node that it computes.
int64_t computed_nodes(Placed& placed, ggml_backend_t backend) {
  static int64_t count;
  const auto set =
      reinterpret_cast<ggml_backend_set_abort_callback_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(plugin_device()), "ggml_backend_set_abort_callback"));
  count = 0;
  set(
      backend,
      [](void*) {
        ++count;
        return false;
      },
      nullptr);
  EXPECT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
  set(backend, nullptr, nullptr);
  return count;
}

Graph graph_of(std::function<ggml_tensor*(ggml_context*, std::span<ggml_tensor* const>)> build) {
  return {{random_input(GGML_TYPE_F32, {kWidth, 5, 1, 1}, 1),
           random_input(GGML_TYPE_Q4_0, {kWidth, 96, 1, 1}, 2),
           random_input(GGML_TYPE_Q8_0, {kWidth, 96, 1, 1}, 3),
           random_input(GGML_TYPE_Q6_K, {256, 96, 1, 1}, 4)},
          std::move(build)};
}

TEST(SharedActivations, AreMultipliedInOneCall) {
  // Between the products stand nodes that use others of them.
  const Graph shared = graph_of([](ggml_context* ctx, std::span<ggml_tensor* const> in) {
    ggml_tensor* h = ggml_rms_norm(ctx, in[0], 1e-5f);
    ggml_tensor* q = ggml_scale(ctx, ggml_mul_mat(ctx, in[1], h), 0.5f);
    return ggml_add(ctx, q, ggml_mul_mat(ctx, in[2], h));
  });
  const Graph apart = graph_of([](ggml_context* ctx, std::span<ggml_tensor* const> in) {
    ggml_tensor *h = ggml_rms_norm(ctx, in[0], 1e-5f), *g = ggml_rms_norm(ctx, in[0], 1e-5f);
    ggml_tensor* q = ggml_scale(ctx, ggml_mul_mat(ctx, in[1], h), 0.5f);
    return ggml_add(ctx, q, ggml_mul_mat(ctx, in[2], g));
  });
  const Backend backend = plugin_backend();
  Placed one(shared, backend.get()), two(apart, backend.get());
  // norm, two products at once, scale, add; and two norms and products one by one.
  EXPECT_EQ(computed_nodes(two, backend.get()) - computed_nodes(one, backend.get()), 2);
  EXPECT_EQ(one.result(), two.result());
  EXPECT_EQ(one.output()->src[1]->op, GGML_OP_MUL_MAT) << "the graph is left as it was";
  EXPECT_EQ(computed_nodes(two, backend.get()) - computed_nodes(one, backend.get()), 2);
  EXPECT_EQ(one.result(), two.result());
}

// The second product is one of what the first did not see.
TEST(SharedActivations, MayChangeBetweenTwoProducts) {
  const Graph graph = graph_of([](ggml_context* ctx, std::span<ggml_tensor* const> in) {
    ggml_tensor* h = ggml_rms_norm(ctx, in[0], 1e-5f);
    ggml_tensor* first = ggml_mul_mat(ctx, in[1], h);
    ggml_tensor* scaled = ggml_scale_inplace(ctx, h, 3.0f);
    // Not a use of the result of `scaled`, but one that follows it.
    ggml_tensor* both = ggml_add(ctx, first, ggml_repeat(ctx, ggml_sum(ctx, scaled), first));
    return ggml_add(ctx, both, ggml_mul_mat(ctx, in[2], h));
  });
  const Backend plugin = plugin_backend(), cpu = cpu_backend();
  const std::vector<float> found = run(graph, plugin.get()), other = run(graph, cpu.get());
  EXPECT_LE(squared_distance(found, other),
            1e-3 * squared_distance(other, std::vector<float>(other.size())));
}

// A result may lie where another one lay before, of which somebody still needs the first values.
TEST(SharedActivations, DoNotOverwriteWhatIsStillRead) {
  const Graph graph = graph_of([](ggml_context* ctx, std::span<ggml_tensor* const> in) {
    ggml_tensor* h = ggml_rms_norm(ctx, in[0], 1e-5f);
    ggml_tensor* first = ggml_mul_mat(ctx, in[1], h);
    ggml_tensor* last = ggml_sqr(ctx, ggml_add(ctx, first, first));
    return ggml_mul(ctx, last, ggml_mul_mat(ctx, in[2], h));
  });
  const Backend plugin = plugin_backend(), cpu = cpu_backend();
  Placed placed(graph, plugin.get());
  ggml_tensor* second = placed.output()->src[1];
  second->data = placed.output()->src[0]->src[0]->data;  // where the sum lies
  ASSERT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
  const std::vector<float> found = placed.result(), other = run(graph, cpu.get());
  EXPECT_LE(squared_distance(found, other),
            1e-3 * squared_distance(other, std::vector<float>(other.size())));
}

// More than one piece of a large matrix.
TEST(LargeMatrices, ArePackedInPieces) {
  const Graph graph{{random_input(GGML_TYPE_Q8_0, {2048, 16500, 1, 1}, 1),
                     random_input(GGML_TYPE_F32, {2048, 2, 1, 1}, 2)},
                    [](ggml_context* ctx, std::span<ggml_tensor* const> in) {
                      return ggml_mul_mat(ctx, in[0], in[1]);
                    }};
  check_product(graph);
  const Backend backend = plugin_backend();
  const Placed placed(graph, backend.get());
  Bytes bytes(graph.inputs[0].bytes.size());
  ggml_backend_tensor_get(placed.input(0), bytes.data(), 0, bytes.size());
  EXPECT_EQ(bytes, graph.inputs[0].bytes);
}

}  // namespace
}  // namespace ggml_test
