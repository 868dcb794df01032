// How many bytes of a file a rank reads: those of its own shard, counted by the page.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "checkpoint_files.h"
#include "checkpoints/tensor_table.h"
#include "metal_marlin/metal_marlin.hpp"
#include "must.h"
#include "sources/shard.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

namespace fs = std::filesystem;

/// One file in memory whose pages fault at their first read, and are then counted.
class CountedMemory {
 public:
  explicit CountedMemory(const std::string& content) : size_(content.size()) {
    page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (size_ + page_ - 1) / page_ * page_;
    data_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memcpy(data_, content.data(), size_);
    mprotect(data_, mapped_, PROT_READ);
  }
  ~CountedMemory() {
    stop();
    munmap(data_, mapped_);
  }
  std::span<const std::byte> bytes() const { return {reinterpret_cast<const std::byte*>(data_), size_}; }
  /// Counts from here on.
  void start() {
    current_ = this;
    touched_.assign(mapped_ / page_, 0);
    struct sigaction action{};
    action.sa_sigaction = [](int, siginfo_t* info, void*) { current_->fault(static_cast<char*>(info->si_addr)); };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before_);
    mprotect(data_, mapped_, PROT_NONE);
  }
  void stop() {
    if (current_ != this) return;
    current_ = nullptr;
    mprotect(data_, mapped_, PROT_READ);
    sigaction(SIGSEGV, &before_, nullptr);
  }
  /// Of the bytes [offset, offset + size), those in pages that were read.
  uint64_t read_of(uint64_t offset, uint64_t size) const {
    uint64_t sum = 0;
    for (uint64_t at = offset; at < offset + size;) {
      const uint64_t end = std::min<uint64_t>(offset + size, (at / page_ + 1) * page_);
      if (touched_[at / page_]) sum += end - at;
      at = end;
    }
    return sum;
  }
  size_t page() const { return page_; }

 private:
  void fault(char* at) {
    if (at < data_ || at >= data_ + mapped_) _exit(99);  // a fault of the library's own
    const size_t page = static_cast<size_t>(at - data_) / page_;
    touched_[page] = 1;
    mprotect(data_ + page * page_, page_, PROT_READ);
  }

  static inline CountedMemory* current_ = nullptr;
  char* data_;
  size_t size_, mapped_, page_;
  std::vector<char> touched_;
  struct sigaction before_{};
};

class CountedFolder final : public Folder {
 public:
  explicit CountedFolder(const fs::path& folder) : folder_(folder) {}
  Result<std::span<const std::byte>> open(const std::string& name) override {
    if (!fs::exists(folder_ / name)) return Status::error(MARLIN_E_FILE, "no such file").with_native(ENOENT);
    files_.emplace_back(name, std::make_unique<CountedMemory>(read_file((folder_ / name).string())));
    return files_.back().second->bytes();
  }
  void release(std::span<const std::byte>) const override {}
  CountedMemory& model() {
    for (auto& [name, file] : files_)
      if (name.ends_with(".safetensors") || name.ends_with(".gguf")) return *file;
    std::abort();
  }

 private:
  fs::path folder_;
  std::vector<std::pair<std::string, std::unique_ptr<CountedMemory>>> files_;
};

// Rows of many pages, so that a count of pages is a count of bytes.
constexpr int64_t kRows = 16, kColumns = 131072, kRowsOfTiles = 64;

struct Written {
  const char* name;
  marlin_scheme scheme;
  marlin_format format;
  uint32_t group;
  const char* type;  // of GGUF's blocks
  bool rows;         // of W lie together
};
void PrintTo(const Written& written, std::ostream* out) { *out << written.name; }  // NOLINT: GoogleTest's name

class BytesOf : public ::testing::TestWithParam<Written> {
 protected:
  static fs::path scratch() { return fs::temp_directory_path() / ("metal-marlin-bytes-" + std::to_string(getpid())); }
  void SetUp() override {
    fs::create_directories(scratch() / "in");
    const int64_t n = GetParam().rows ? kRows : kRowsOfTiles, k = kColumns;
    std::string values(static_cast<size_t>(n * k) * 2, '\0');
    for (size_t i = 0; i < values.size(); i += 2)
      store(values.data() + i, static_cast<uint16_t>(0x3000 + i * 2654435761u % 0x800));
    const std::string shape = std::to_string(n) + ", " + std::to_string(k);
    std::ofstream(scratch() / "in/model.safetensors", std::ios::binary) << safetensors({{"w.weight", "F16", shape, values}});
    const Written& to = GetParam();
    out_ = scratch() / (to.scheme == MARLIN_SCHEME_GGUF ? "out.gguf" : "out");
    const metal_marlin::checkpoint in((scratch() / "in").string());
    const std::string layer = in.layers().at(0).name;
    const char* const name = layer.c_str();
    auto desc = metal_marlin::make<marlin_convert_desc>();
    desc.scheme = to.scheme;
    desc.format = to.format;
    desc.group_size = to.group;
    desc.layers = &name;
    desc.layer_count = 1;
    if (to.type != nullptr) desc.types = &to.type;
    if (to.scheme == MARLIN_SCHEME_MARLIN_24) desc.flags = MARLIN_CONVERT_PRUNE_2_4;
    metal_marlin::convert(in, out_.string(), desc);
  }
  void TearDown() override { fs::remove_all(scratch()); }

  fs::path out_;
};

TEST_P(BytesOf, AShardAreItsOwn) {
  const bool gguf = out_.extension() == ".gguf";
  auto owned = std::make_unique<CountedFolder>(gguf ? scratch() : out_);
  CountedFolder& folder = *owned;
  auto files = must(open_checkpoint(std::move(owned), gguf ? "out.gguf" : "model.safetensors", MARLIN_LAYOUT_AUTO));
  const Layer layer = files->layer(0);
  std::vector<TensorView> parts = files->parts(0);
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  const uint64_t codes_at = parts[0].file_offset, codes = parts[0].bytes;
  CountedMemory& memory = folder.model();
  const auto pages_of = [&](int64_t first_n, int64_t count_n, int64_t first_k, int64_t count_k) {
    memory.start();
    {
      const SourceOptions options{MARLIN_FORMAT_NONE, 0, false, {}};
      auto shard = make_shard(files->source(0, 0, options).take(), first_n, count_n, first_k, count_k);
      EXPECT_TRUE(shard.ok()) << shard.status().message();
      Stripe stripe;
      EXPECT_TRUE(shard.value()->read(0, count_n, stripe).ok());
    }
    memory.stop();
    return memory.read_of(codes_at, codes);
  };
  EXPECT_EQ(pages_of(0, layer.n, 0, layer.k), codes);  // the counter counts
  for (const int64_t ranks : {2, 4}) {
    uint64_t sum = 0;
    const int64_t width = layer.k / ranks;
    // At each border in each row of bytes there may be a page that two ranks read.
    const uint64_t slack = memory.page() * static_cast<uint64_t>(2 * (GetParam().rows ? layer.n : 1));
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const uint64_t read = pages_of(0, layer.n, rank * width, width);
      EXPECT_LE(read, codes / static_cast<uint64_t>(ranks) + slack) << "rank " << rank << " of " << ranks << " by K";
      sum += read;
    }
    EXPECT_GE(sum, codes);
    if (!GetParam().rows) continue;
    const int64_t height = layer.n / ranks;
    for (int64_t rank = 0; rank < ranks; ++rank)
      EXPECT_LE(pages_of(rank * height, height, 0, layer.k), codes / static_cast<uint64_t>(ranks) + 2 * memory.page())
          << "rank " << rank << " of " << ranks << " by N";
  }
}
INSTANTIATE_TEST_SUITE_P(
    Checkpoint, BytesOf,
    ::testing::Values(Written{"Q4_0", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_NONE, 0, "Q4_0", true},
                      Written{"Q4_K", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_NONE, 0, "Q4_K", true},
                      Written{"Q8_0", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_NONE, 0, "Q8_0", true},
                      Written{"INT4", MARLIN_SCHEME_COMPRESSED_TENSORS, MARLIN_FORMAT_INT4, 128, nullptr, true},
                      Written{"MXFP4", MARLIN_SCHEME_COMPRESSED_TENSORS, MARLIN_FORMAT_MXFP4, 0, nullptr, true},
                      Written{"MLX", MARLIN_SCHEME_MLX, MARLIN_FORMAT_INT3, 64, nullptr, true},
                      Written{"GPTQ", MARLIN_SCHEME_GPTQ, MARLIN_FORMAT_INT4, 128, nullptr, false},
                      Written{"Marlin24", MARLIN_SCHEME_MARLIN_24, MARLIN_FORMAT_INT4, 128, nullptr, false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace metal_marlin::testing
