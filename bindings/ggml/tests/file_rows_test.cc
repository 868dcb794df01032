// A head that is tied to the embedding is packed, and rows of the embedding come from the program's
// file. What a program leaves on the CPU stays there.
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "graph.h"

namespace ggml_test {
namespace {

/// A file of these bytes, mapped as llama.cpp maps a model.
class MappedFile {
 public:
  explicit MappedFile(const Bytes& bytes) : size_(bytes.size()) {
    const int file = memfd_create("weights", 0);
    EXPECT_EQ(write(file, bytes.data(), size_), static_cast<ssize_t>(size_));
    data_ = mmap(nullptr, size_, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    EXPECT_NE(data_, MAP_FAILED);
    close(file);
  }
  ~MappedFile() { munmap(data_, size_); }
  MappedFile(const MappedFile&) = delete;
  void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  size_t size_;
  void* data_;
};

/// Weights in the file, which the CPU's backend has; a copy of them in the plugin's memory; and a
/// scheduler of both backends.
class TiedEmbedding {
 public:
  explicit TiedEmbedding(const Input& table, bool packs = true)
      : rows_(table.ne[1]), file_(table.bytes) {
    embedding_ = ggml_new_tensor(weights_.get(), table.type, 2, table.ne.data());
    mapped_.reset(ggml_backend_cpu_buffer_from_ptr(file_.data(), file_.size()));
    ggml_backend_buffer_set_usage(mapped_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    EXPECT_EQ(ggml_backend_tensor_alloc(mapped_.get(), embedding_, file_.data()),
              GGML_STATUS_SUCCESS);
    head_ = ggml_new_tensor(packed_context_.get(), table.type, 2, table.ne.data());
    packed_.reset(ggml_backend_alloc_ctx_tensors(packed_context_.get(), plugin_.get()));
    ggml_backend_buffer_set_usage(packed_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    if (packs) ggml_backend_tensor_set(head_, file_.data(), 0, file_.size());
    ggml_backend_t both[] = {plugin_.get(), cpu_.get()};
    scheduler_.reset(
        ggml_backend_sched_new(both, nullptr, 2, GGML_DEFAULT_GRAPH_SIZE, false, true));
  }

  /// Rows of the embedding, times the head.
  ggml_status compute(const std::vector<int32_t>& ids) {
    graph_context_ = new_context();
    ggml_tensor* input =
        ggml_new_tensor_1d(graph_context_.get(), GGML_TYPE_I32, static_cast<int64_t>(ids.size()));
    ggml_set_input(input);
    taken_ = ggml_get_rows(graph_context_.get(), embedding_, input);
    ggml_set_output(taken_);
    ggml_tensor* logits = ggml_mul_mat(graph_context_.get(), head_, taken_);
    ggml_set_output(logits);
    ggml_cgraph* graph = ggml_new_graph(graph_context_.get());
    ggml_build_forward_expand(graph, logits);
    ggml_backend_sched_reset(scheduler_.get());
    EXPECT_TRUE(ggml_backend_sched_alloc_graph(scheduler_.get(), graph));
    ggml_backend_tensor_set(input, ids.data(), 0, ids.size() * sizeof(int32_t));
    return ggml_backend_sched_graph_compute(scheduler_.get(), graph);
  }
  std::vector<float> taken() const {
    std::vector<float> values(static_cast<size_t>(ggml_nelements(taken_)));
    ggml_backend_tensor_get(taken_, values.data(), 0, values.size() * sizeof(float));
    return values;
  }
  bool is_the_plugins() const {
    return ggml_backend_sched_get_tensor_backend(scheduler_.get(), taken_) == plugin_.get();
  }
  int pieces() const { return ggml_backend_sched_get_n_splits(scheduler_.get()); }
  int64_t kilobytes() const { return resident_kilobytes(file_.data()); }
  std::vector<int32_t> random_ids(size_t count) const {
    std::mt19937 random(5);
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<unsigned>(rows_));
    ids[0] = 0;
    ids[1] = static_cast<int32_t>(rows_ - 1);
    return ids;
  }

 private:
  int64_t rows_;
  MappedFile file_;
  const Backend plugin_ = plugin_backend(), cpu_ = cpu_backend();
  const Context weights_ = new_context(), packed_context_ = new_context();
  Context graph_context_;
  Buffer mapped_, packed_;
  Scheduler scheduler_;
  ggml_tensor *embedding_ = nullptr, *head_ = nullptr, *taken_ = nullptr;
};

/// Rows that differ from all near ones, a megabyte or more of them.
Input table(ggml_type type) {
  constexpr int64_t kRows = 61, kTimes = 61;
  Input input = random_input(type, {columns(type, 512), kRows, 1, 1}, 3);
  const Bytes rows = input.bytes;
  for (int64_t i = 1; i < kTimes; ++i) {
    Bytes turned = rows;
    std::ranges::rotate(turned, turned.begin() + static_cast<ptrdiff_t>(rows.size()) / kRows * i);
    input.bytes.insert(input.bytes.end(), turned.begin(), turned.end());
  }
  input.ne[1] *= kTimes;
  return input;
}

class FileRows : public ::testing::TestWithParam<ggml_type> {};
INSTANTIATE_TEST_SUITE_P(Ggml, FileRows, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(ggml_type_name(info.param)); });

TEST_P(FileRows, AreThoseOfGgmlAndLeaveTheProcess) {
  const Input input = table(GetParam());
  TiedEmbedding model(input);
  for (const size_t count : {128, 64}) {
    const std::vector<int32_t> ids = model.random_ids(count);
    ASSERT_EQ(model.compute(ids), GGML_STATUS_SUCCESS);
    EXPECT_TRUE(model.is_the_plugins());
    EXPECT_EQ(model.pieces(), 1);
    EXPECT_LE(model.kilobytes(), 64);
    const Graph alone{{input, integers({static_cast<int64_t>(count), 1, 1, 1}, ids)},
                      [](ggml_context* ctx, std::span<ggml_tensor* const> in) {
                        return ggml_get_rows(ctx, in[0], in[1]);
                      }};
    const Backend cpu = cpu_backend();
    EXPECT_EQ(model.taken(), run(alone, cpu.get()));
  }
}

// One by one, as tokens are generated.
TEST(RowsOfAFile, DoNotPileUp) {
  TiedEmbedding model(table(GGML_TYPE_Q8_0));
  const int64_t whole = static_cast<int64_t>(table(GGML_TYPE_Q8_0).bytes.size()) / 1024;
  for (const int32_t id : model.random_ids(64)) ASSERT_EQ(model.compute({id}), GGML_STATUS_SUCCESS);
  EXPECT_LE(model.kilobytes(), 64) << "of " << whole;
}

TEST(RowsOfAFile, OfNoRowAreAnError) {
  TiedEmbedding model(table(GGML_TYPE_Q4_1));
  const Log log;
  EXPECT_EQ(model.compute({0, 61 * 61}), GGML_STATUS_FAILED);
  EXPECT_THAT(log.text(), ::testing::HasSubstr("row 1 is 3721, expected 0 .. 3720"));
  EXPECT_EQ(model.compute({0, -1}), GGML_STATUS_FAILED);
  EXPECT_EQ(model.compute({0, 61 * 61 - 1}), GGML_STATUS_SUCCESS);
}

// Without a packed copy nothing is gained.
TEST(RowsOfAFile, OfAFileThatIsNotPackedAreTheCpus) {
  TiedEmbedding model(table(GGML_TYPE_Q4_0), /*packs=*/false);
  ASSERT_EQ(model.compute({1, 2}), GGML_STATUS_SUCCESS);
  EXPECT_FALSE(model.is_the_plugins());
}

}  // namespace
}  // namespace ggml_test
#endif
