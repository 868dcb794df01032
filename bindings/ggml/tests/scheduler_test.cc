// What ggml's scheduler gives to the plugin: whole graphs, as one piece each.
#include <array>
#include <cstring>
#include <utility>

#include "graph.h"

namespace ggml_test {
namespace {

// Two layers of a small model: norm, gate and up, swiglu, down, residual.
constexpr int64_t kWidth = 128, kHidden = 192, kTokens = 5;
ggml_tensor* layers(ggml_context* ctx, std::span<ggml_tensor* const> in) {
  ggml_tensor* x = in[0];
  for (size_t layer = 0; layer < 2; ++layer) {
    ggml_tensor* const* w = in.data() + 1 + 3 * layer;
    ggml_tensor* h = ggml_rms_norm(ctx, x, 1e-5f);
    h = ggml_swiglu_split(ctx, ggml_mul_mat(ctx, w[0], h), ggml_mul_mat(ctx, w[1], h));
    x = ggml_add(ctx, x, ggml_mul_mat(ctx, w[2], h));
  }
  return x;
}
Graph model(ggml_type type) {
  const int64_t width = columns(type, kWidth), hidden = columns(type, kHidden);
  Graph graph{{random_input(GGML_TYPE_F32, {width, kTokens, 1, 1}, 10)}, layers};
  for (unsigned layer = 0; layer < 2; ++layer) {
    for (unsigned i = 0; i < 2; ++i)
      graph.inputs.push_back(random_input(type, {width, hidden, 1, 1}, 11 + 3 * layer + i));
    graph.inputs.push_back(random_input(type, {hidden, width, 1, 1}, 13 + 3 * layer));
  }
  return graph;
}

class Models : public ::testing::TestWithParam<ggml_type> {};
INSTANTIATE_TEST_SUITE_P(Ggml, Models, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(ggml_type_name(info.param)); });

TEST_P(Models, RunInOnePiece) {
  const Graph graph = model(GetParam());
  const Backend plugin = plugin_backend(), cpu = cpu_backend();
  const Context weights = new_context(), rest = new_context();
  std::vector<ggml_tensor*> in;
  for (const Input& input : graph.inputs)
    in.push_back(
        ggml_new_tensor(in.empty() ? rest.get() : weights.get(), input.type, 4, input.ne.data()));
  ggml_set_input(in[0]);
  const Buffer buffer(ggml_backend_alloc_ctx_tensors(weights.get(), plugin.get()));
  ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  ggml_tensor* output = layers(rest.get(), in);
  ggml_set_output(output);
  ggml_cgraph* nodes = ggml_new_graph(rest.get());
  ggml_build_forward_expand(nodes, output);

  ggml_backend_t both[] = {plugin.get(), cpu.get()};
  const Scheduler scheduler(
      ggml_backend_sched_new(both, nullptr, 2, GGML_DEFAULT_GRAPH_SIZE, false, true));
  ASSERT_TRUE(ggml_backend_sched_alloc_graph(scheduler.get(), nodes));
  for (size_t i = 0; i < in.size(); ++i)
    ggml_backend_tensor_set(in[i], graph.inputs[i].bytes.data(), 0, graph.inputs[i].bytes.size());
  ASSERT_EQ(ggml_backend_sched_graph_compute(scheduler.get(), nodes), GGML_STATUS_SUCCESS);

  EXPECT_EQ(ggml_backend_sched_get_n_splits(scheduler.get()), 1);
  int products = 0;
  for (int i = 0; i < ggml_graph_n_nodes(nodes); ++i) {
    ggml_tensor* node = ggml_graph_node(nodes, i);
    products += node->op == GGML_OP_MUL_MAT;
    EXPECT_EQ(ggml_backend_sched_get_tensor_backend(scheduler.get(), node), plugin.get())
        << ggml_op_desc(node);
  }
  EXPECT_EQ(products, 6) << "the graph is left as it was";
  std::vector<float> found(static_cast<size_t>(ggml_nelements(output)));
  ggml_backend_tensor_get(output, found.data(), 0, found.size() * sizeof(float));
  const std::vector<float> other = run(graph, cpu.get());
  EXPECT_LE(squared_distance(found, other),
            1e-3 * squared_distance(other, std::vector<float>(other.size())));
}

// A model whose first layer a program leaves on the CPU, with its weights and its cache.
TEST(LayersOnTheCpu, StayThere) {
  const Backend plugin = plugin_backend(), cpu = cpu_backend();
  const Context here = new_context(), there = new_context(), rest = new_context();
  const auto weights_of = [](const Context& c) {
    return std::array{ggml_new_tensor_1d(c.get(), GGML_TYPE_F32, 128),
                      ggml_new_tensor_2d(c.get(), GGML_TYPE_Q4_0, 128, 128),
                      ggml_new_tensor_1d(c.get(), GGML_TYPE_F32, 128)};
  };
  const auto left = weights_of(there), given = weights_of(here);
  const Buffer buffer(ggml_backend_alloc_ctx_tensors(there.get(), cpu.get())),
      own(ggml_backend_alloc_ctx_tensors(here.get(), plugin.get()));
  for (const Buffer* each : {&buffer, &own})
    ggml_backend_buffer_set_usage(each->get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  const Context memory = new_context();
  ggml_tensor* cache = ggml_new_tensor_2d(memory.get(), GGML_TYPE_F16, 128, 8);
  const Buffer of_cache(ggml_backend_alloc_ctx_tensors(memory.get(), cpu.get()));

  ggml_tensor* x = ggml_new_tensor_2d(rest.get(), GGML_TYPE_F32, 128, 2);
  ggml_tensor* ids = ggml_new_tensor_1d(rest.get(), GGML_TYPE_I64, 2);
  ggml_set_input(x);
  ggml_set_input(ids);
  ggml_cgraph* nodes = ggml_new_graph(rest.get());
  std::vector<std::pair<ggml_tensor*, ggml_backend_t>> expected;
  for (const auto& [weights, backend] : {std::pair{left, cpu.get()}, {given, plugin.get()}}) {
    for (const auto op : {ggml_mul, ggml_add}) {
      x = op(rest.get(), x, weights[op == ggml_mul ? 0 : 2]);
      expected.emplace_back(x, backend);
    }
    x = ggml_mul_mat(rest.get(), weights[1], x);
    expected.emplace_back(x, backend);
    if (backend == cpu.get()) {
      ggml_tensor* written = ggml_set_rows(rest.get(), cache, x, ids);
      expected.emplace_back(written, backend);
      ggml_build_forward_expand(nodes, written);
    }
  }
  ggml_set_output(x);
  ggml_build_forward_expand(nodes, x);
  ggml_backend_t both[] = {plugin.get(), cpu.get()};
  const Scheduler scheduler(
      ggml_backend_sched_new(both, nullptr, 2, GGML_DEFAULT_GRAPH_SIZE, false, true));
  ASSERT_TRUE(ggml_backend_sched_alloc_graph(scheduler.get(), nodes));
  for (const auto& [node, backend] : expected)
    EXPECT_EQ(ggml_backend_sched_get_tensor_backend(scheduler.get(), node), backend)
        << ggml_op_desc(node);
  EXPECT_EQ(ggml_backend_sched_get_n_splits(scheduler.get()), 2);
}

struct Question {
  const char* name;
  bool answer;
  std::function<ggml_tensor*(ggml_context*)> node;
};
ggml_tensor* matrix(ggml_context* ctx, ggml_type type, int64_t k = 256, int64_t n = 4) {
  return ggml_new_tensor_2d(ctx, type, k, n);
}
const Question kQuestions[] = {
    {"Product", true,
     [](ggml_context* c) {
       return ggml_mul_mat(c, matrix(c, GGML_TYPE_Q4_0), matrix(c, GGML_TYPE_F32));
     }},
    {"View", true, [](ggml_context* c) { return ggml_view_1d(c, matrix(c, GGML_TYPE_F32), 8, 0); }},
    {"AnotherTypeOfWeights", true,
     [](ggml_context* c) {
       return ggml_mul_mat(c, matrix(c, GGML_TYPE_IQ2_XXS), matrix(c, GGML_TYPE_F32));
     }},
    {"Sum", true,
     [](ggml_context* c) {
       return ggml_add(c, matrix(c, GGML_TYPE_F32), matrix(c, GGML_TYPE_F32));
     }},
    {"Rows", true,
     [](ggml_context* c) {
       return ggml_get_rows(c, matrix(c, GGML_TYPE_Q4_0), ggml_new_tensor_1d(c, GGML_TYPE_I32, 2));
     }},
    // ggml's CPU backend has no function to write this type.
    {"CopyToIq2Xxs", false,
     [](ggml_context* c) {
       return ggml_cpy(c, matrix(c, GGML_TYPE_F32), matrix(c, GGML_TYPE_IQ2_XXS));
     }},
    {"ProductOfHalves", false,
     [](ggml_context* c) {
       return ggml_mul_mat(c, matrix(c, GGML_TYPE_Q4_0), matrix(c, GGML_TYPE_F16));
     }},
};
TEST(Device, TakesWhatItOrTheCpuComputes) {
  for (const Question& question : kQuestions) {
    const Context context = new_context();
    EXPECT_EQ(ggml_backend_dev_supports_op(plugin_device(), question.node(context.get())),
              question.answer)
        << question.name;
  }
}

TEST(Device, HasBuffersOfItsOwnAndReadsThoseOfTheCpu) {
  const ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  const ggml_backend_buffer_type_t buffers = ggml_backend_dev_buffer_type(plugin_device());
  EXPECT_TRUE(ggml_backend_dev_supports_buft(plugin_device(), buffers));
  EXPECT_TRUE(ggml_backend_dev_supports_buft(plugin_device(), ggml_backend_cpu_buffer_type()));
  EXPECT_FALSE(ggml_backend_buft_is_host(buffers));
  EXPECT_EQ(ggml_backend_dev_type(plugin_device()), GGML_BACKEND_DEVICE_TYPE_IGPU);
  size_t free = 0, total = 0, cpu_free = 0, cpu_total = 0;
  ggml_backend_dev_memory(plugin_device(), &free, &total);
  ggml_backend_dev_memory(cpu, &cpu_free, &cpu_total);
  EXPECT_LE(total, cpu_total);
  EXPECT_GT(free, 0u);
  EXPECT_LE(free, total);
#ifdef __linux__
  // ggml's CPU device calls all of it free, and some of it is never.
  EXPECT_LT(free, cpu_total);
#endif
}

// Keys and values of llama.cpp lie in buffers of the device that has the layer.
TEST(Device, ComputesOnItsOwnBuffersWhatIsNoProduct) {
  const Graph graph{
      {random_input(GGML_TYPE_F32, {64, 8, 1, 1}, 1), random_input(GGML_TYPE_F32, {64, 2, 1, 1}, 2),
       [] {
         Input rows{GGML_TYPE_I64, {2, 1, 1, 1}, Bytes(16)};
         const int64_t ids[] = {5, 2};
         std::memcpy(rows.bytes.data(), ids, sizeof ids);
         return rows;
       }()},
      [](ggml_context* ctx, std::span<ggml_tensor* const> in) {
        ggml_tensor* cache = ggml_set_rows(ctx, in[0], in[1], in[2]);
        return ggml_soft_max(ctx, ggml_scale(ctx, cache, 2.0f));
      }};
  const Backend plugin = plugin_backend(), cpu = cpu_backend();
  EXPECT_EQ(run(graph, plugin.get()), run(graph, cpu.get()));
}

// A cache of keys in Q8_0 is multiplied by, and grows between two products.
TEST(Caches, AreNotTakenForWeights) {
  const Graph graph{{random_input(GGML_TYPE_Q8_0, {64, 8, 1, 1}, 1),
                     random_input(GGML_TYPE_F32, {64, 3, 1, 1}, 2),
                     random_input(GGML_TYPE_F32, {64, 1, 1, 1}, 3), integers({1, 1, 1, 1}, {5})},
                    [](ggml_context* ctx, std::span<ggml_tensor* const> in) {
                      ggml_tensor* before = ggml_mul_mat(ctx, in[0], in[1]);
                      ggml_tensor* cache = ggml_set_rows(ctx, in[0], in[2], in[3]);
                      return ggml_sub(ctx, before, ggml_mul_mat(ctx, cache, in[1]));
                    }};
  const Backend plugin = plugin_backend(), cpu = cpu_backend();
  for (int round = 0; round < 2; ++round)
    EXPECT_EQ(run(graph, plugin.get()), run(graph, cpu.get()));
}

}  // namespace
}  // namespace ggml_test
