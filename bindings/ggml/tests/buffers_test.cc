// The plugin's buffers: bytes come back as they went in, products follow what was written last, and
// bad bytes are told.
#include <cstring>
#include <thread>

#include "graph.h"

namespace ggml_test {
namespace {

Graph product(ggml_type type, unsigned seed = 7) {
  return {{random_input(type, {columns(type, 128), 48, 2, 1}, seed),
           random_input(GGML_TYPE_F32, {columns(type, 128), 3, 2, 1}, 8)},
          [](ggml_context* ctx, std::span<ggml_tensor* const> in) {
            return ggml_mul_mat(ctx, in[0], in[1]);
          }};
}

Bytes bytes_of(const ggml_tensor* tensor, size_t piece) {
  Bytes bytes(ggml_nbytes(tensor));
  for (size_t i = 0; i < bytes.size(); i += piece)
    ggml_backend_tensor_get(tensor, bytes.data() + i, i, std::min(piece, bytes.size() - i));
  return bytes;
}

class Buffers : public ::testing::TestWithParam<ggml_type> {};
INSTANTIATE_TEST_SUITE_P(Ggml, Buffers, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(ggml_type_name(info.param)); });

TEST_P(Buffers, GiveBackTheBytes) {
  const Graph graph = product(GetParam());
  const Backend backend = plugin_backend();
  Placed placed(graph, backend.get());
  ASSERT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}})
    EXPECT_EQ(bytes_of(placed.input(0), piece), graph.inputs[0].bytes);
}

// The plugin's result after a write equals that of a graph which had these bytes from the start.
void expect_product(Placed& placed, const Graph& graph, ggml_backend_t backend) {
  EXPECT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
  EXPECT_EQ(placed.result(), run(graph, backend));
}

// Pieces that end anywhere, the last first, over weights that were packed before.
TEST_P(Buffers, TakePieces) {
  const Backend backend = plugin_backend();
  Graph graph = product(GetParam(), 9);
  Placed placed(graph, backend.get());
  const Bytes bytes = product(GetParam()).inputs[0].bytes;
  for (size_t end = bytes.size(); end > 0;) {
    const size_t begin = end > 501 ? end - 501 : 0;
    std::memcpy(graph.inputs[0].bytes.data() + begin, bytes.data() + begin, end - begin);
    ggml_backend_tensor_set(placed.input(0), bytes.data() + begin, begin, end - begin);
    expect_product(placed, graph, backend.get());
    end = begin;
  }
}

// A view of the second matrix is another tensor of the same memory.
TEST_P(Buffers, TakeWhatIsWrittenThroughAView) {
  const Backend backend = plugin_backend();
  Graph graph = product(GetParam());
  Placed placed(graph, backend.get());
  const Context context = new_context();
  const ggml_tensor& w = *placed.input(0);
  ggml_tensor* view =
      ggml_view_2d(context.get(), placed.input(0), w.ne[0], w.ne[1], w.nb[1], w.nb[2]);
  ggml_backend_view_init(view);
  Bytes& bytes = graph.inputs[0].bytes;
  std::memcpy(bytes.data() + w.nb[2], bytes.data(), w.nb[2]);
  ggml_backend_tensor_set(view, bytes.data(), 0, w.nb[2]);
  expect_product(placed, graph, backend.get());
}

// Zero bytes are zeros in every type.
TEST_P(Buffers, TakeFills) {
  const Backend backend = plugin_backend();
  const Graph graph = product(GetParam());
  for (const bool all : {false, true}) {
    Placed placed(graph, backend.get());
    if (all) {
      ggml_backend_buffer_clear(placed.input(0)->buffer, 0);
      ggml_backend_tensor_set(placed.input(1), graph.inputs[1].bytes.data(), 0,
                              graph.inputs[1].bytes.size());
    } else {
      ggml_backend_tensor_memset(placed.input(0), 0, 0, ggml_nbytes(placed.input(0)));
    }
    EXPECT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
    EXPECT_THAT(placed.result(), ::testing::Each(0.0f));
  }
}

// A scale byte that no block may have: ggml's own validation refuses it, and no float holds 2^128.
TEST(BadBytes, AreAnErrorOfTheProduct) {
  Graph graph = product(GGML_TYPE_MXFP4);
  const Bytes good = graph.inputs[0].bytes;
  graph.inputs[0].bytes[17 * 5] = std::byte{0xff};
  const Backend backend = plugin_backend();
  const Log log;
  Placed placed(graph, backend.get());
  EXPECT_EQ(placed.compute(), GGML_STATUS_FAILED);
  EXPECT_THAT(log.text(),
              ::testing::HasSubstr("metal-marlin: weights 'leaf_0': MARLIN_E_FORMAT: "));
  EXPECT_THAT(log.text(), ::testing::HasSubstr("scale at byte 85"));
  ggml_backend_tensor_set(placed.input(0), good.data(), 0, good.size());
  EXPECT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
  EXPECT_EQ(placed.result(), run(product(GGML_TYPE_MXFP4), backend.get()));
}

// Each thread has a backend of its own; the weights, not yet packed by the last piece's writing,
// are shared.
TEST(Threads, MayMultiplyByTheSameWeights) {
  const Graph graph = product(GGML_TYPE_NVFP4);
  const Backend backend = plugin_backend();
  const std::vector<float> right = run(graph, backend.get());
  Placed weights(graph, backend.get());
  ggml_backend_tensor_set(weights.input(0), graph.inputs[0].bytes.data(), 0, 36);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const Backend own = plugin_backend();
      const Graph shared{{graph.inputs[1]},
                         [&](ggml_context* ctx, std::span<ggml_tensor* const> in) {
                           return ggml_mul_mat(ctx, weights.input(0), in[0]);
                         }};
      for (int round = 0; round < 20; ++round) EXPECT_EQ(run(shared, own.get()), right);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Weights may outlive the backend that multiplied by them.
TEST(Lifetimes, ABufferOutlivesItsBackend) {
  const Graph graph = product(GGML_TYPE_Q4_1);
  Backend backend = plugin_backend();
  const Placed placed(graph, backend.get());
  backend.reset();
  EXPECT_EQ(bytes_of(placed.input(0), 4096), graph.inputs[0].bytes);
}

}  // namespace
}  // namespace ggml_test
