// The plugin's buffers: bytes come back as they went in, products follow what was written last, and
// bad bytes are told.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "graph.h"

namespace ggml_test {
namespace {

Graph product(ggml_type type, unsigned seed = 7) {
  return product_of(random_input(type, {columns(type, 128), 48, 2, 1}, seed),
                    random_input(GGML_TYPE_F32, {columns(type, 128), 3, 2, 1}, 8));
}

Bytes bytes_of(const ggml_tensor* tensor, size_t piece) {
  Bytes bytes(ggml_nbytes(tensor));
  for (size_t i = 0; i < bytes.size(); i += piece)
    ggml_backend_tensor_get(tensor, bytes.data() + i, i, std::min(piece, bytes.size() - i));
  return bytes;
}

// The bytes of weights are in the packed copy alone; other tensors have both.
class Buffers : public ::testing::TestWithParam<std::tuple<ggml_type, ggml_backend_buffer_usage>> {
 protected:
  ggml_type type() const { return std::get<0>(GetParam()); }
  ggml_backend_buffer_usage usage() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Ggml, Buffers,
                         ::testing::Combine(::testing::ValuesIn(kTypes),
                                            ::testing::Values(GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
                                                              GGML_BACKEND_BUFFER_USAGE_ANY)),
                         [](const auto& info) {
                           return std::string(ggml_type_name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) == GGML_BACKEND_BUFFER_USAGE_ANY ? "_any"
                                                                                            : "");
                         });

TEST_P(Buffers, GiveBackTheBytes) {
  const Graph graph = product(type());
  const Backend backend = plugin_backend();
  Placed placed(graph, backend.get(), usage());
  ASSERT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
  for (const size_t piece : {size_t{7}, size_t{100}, size_t{4096}, size_t{1} << 20})
    EXPECT_EQ(bytes_of(placed.input(0), piece), graph.inputs[0].bytes);
}

/// Pages of the tensor's own memory that exist.
int64_t pages_of(const ggml_tensor& tensor) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(tensor.data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(tensor.data) + ggml_nbytes(&tensor)) / page * page;
#ifdef __APPLE__
  std::vector<char> here((end - begin) / page);
#else
  std::vector<unsigned char> here((end - begin) / page);
#endif
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, here.data()), 0);
  return std::ranges::count_if(here, [](auto each) { return (each & 1) != 0; });
}

Graph large_product(ggml_type type) {
  return product_of(random_input(type, {columns(type, 512), 300, 2, 1}, 31),
                    random_input(GGML_TYPE_F32, {columns(type, 512), 3, 2, 1}, 32));
}

// A product reads no bytes, and reading them leaves none there.
TEST_P(Buffers, HoldWeightsOnce) {
  const Graph graph = large_product(type());
  const Backend backend = plugin_backend();
  Placed placed(graph, backend.get(), usage());
  ASSERT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
  EXPECT_EQ(bytes_of(placed.input(0), 10007), graph.inputs[0].bytes);
  if (usage() == GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
    EXPECT_EQ(pages_of(*placed.input(0)), 0);
  else
    EXPECT_GT(pages_of(*placed.input(0)), 10);
}

// ggml's CPU backend reads rows of weights where ggml wrote them.
TEST_P(Buffers, ServeOperationsThatAreNoProducts) {
  Graph graph = product(type());
  graph.inputs.push_back(integers({5, 2, 1, 1}, {47, 0, 3, 3, 9, 1, 46, 0, 20, 5}));
  graph.build = [](ggml_context* ctx, std::span<ggml_tensor* const> in) {
    ggml_tensor* rows = ggml_get_rows(ctx, in[0], in[2]);
    return ggml_concat(ctx, ggml_cont_1d(ctx, rows, ggml_nelements(rows)),
                       ggml_cont_1d(ctx, ggml_mul_mat(ctx, in[0], in[1]), 48 * 3 * 2), 0);
  };
  const Backend plugin = plugin_backend(), cpu = cpu_backend();
  Placed placed(graph, plugin.get(), usage());
  const std::vector<float> other = run(graph, cpu.get());
  const auto rows = static_cast<ptrdiff_t>(other.size()) - 48 * 3 * 2;
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
    const std::vector<float> found = placed.result();
    EXPECT_TRUE(std::equal(found.begin(), found.begin() + rows, other.begin()));
    EXPECT_LE(squared_distance(found, other),
              1e-3 * squared_distance(other, std::vector<float>(other.size())));
    EXPECT_EQ(bytes_of(placed.input(0), 1 << 20), graph.inputs[0].bytes);
  }
}

// The plugin's result after a write equals that of a graph which had these bytes from the start.
void expect_product(Placed& placed, const Graph& graph, ggml_backend_t backend) {
  EXPECT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
  EXPECT_EQ(placed.result(), run(graph, backend));
}

// Pieces that end anywhere, the last first, over weights that were packed before.
TEST_P(Buffers, TakePieces) {
  const Backend backend = plugin_backend();
  Graph graph = product(type(), 9);
  Placed placed(graph, backend.get(), usage());
  const Bytes bytes = product(type()).inputs[0].bytes;
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
  Graph graph = product(type());
  Placed placed(graph, backend.get(), usage());
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
  const Graph graph = product(type());
  for (const bool all : {false, true}) {
    Placed placed(graph, backend.get(), usage());
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

// ggml's code 8 of MXFP4 is 0 and not -0, and the packed copy has a 0.
TEST(BytesThatAPackedCopyLoses, StayBesideIt) {
  Graph graph = large_product(GGML_TYPE_MXFP4);
  graph.inputs[0].bytes[17 * 5 + 3] = std::byte{0x08};
  const Backend plugin = plugin_backend(), cpu = cpu_backend();
  Placed placed(graph, plugin.get());
  ASSERT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
  EXPECT_EQ(bytes_of(placed.input(0), 1 << 20), graph.inputs[0].bytes);
  const std::vector<float> other = run(graph, cpu.get());
  EXPECT_LE(squared_distance(placed.result(), other),
            1e-3 * squared_distance(other, std::vector<float>(other.size())));
}

#ifdef __linux__
// As llama.cpp maps a model's file. A private mapping could hold what no file has.
TEST(MappedFiles, LeaveTheProcessOncePacked) {
  const Graph graph = large_product(GGML_TYPE_Q4_1);
  const Bytes& bytes = graph.inputs[0].bytes;
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    const int file = memfd_create("weights", 0);
    ASSERT_EQ(write(file, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    void* mapped = mmap(nullptr, bytes.size(), PROT_READ, flags | MAP_POPULATE, file, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    close(file);
    const Backend backend = plugin_backend();
    Placed placed(graph, backend.get());
    const int64_t before = resident_kilobytes(mapped);
    EXPECT_GT(before, static_cast<int64_t>(bytes.size() / 1024));
    ggml_backend_tensor_set(placed.input(0), mapped, 0, bytes.size());
    // A page that is read brings its neighbors, up to 64 KB, of which some belong to what has left.
    if (flags == MAP_SHARED)
      EXPECT_LE(resident_kilobytes(mapped), 64);
    else
      EXPECT_EQ(resident_kilobytes(mapped), before);
    EXPECT_EQ(std::memcmp(mapped, bytes.data(), bytes.size()), 0);
    munmap(mapped, bytes.size());
    EXPECT_EQ(bytes_of(placed.input(0), 1 << 20), bytes);
  }
}

#endif

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
