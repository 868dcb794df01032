// What a load takes in proportion to its file: padding of rows, of columns and of groups, of all experts together.
#include "abi/support.h"
#include "api/checkpoint.h"
#include "api/context.h"
#include "backends/cpu/cpu_backend.h"
#include "checkpoint_files.h"
#include "counting_new.h"
#include "formats/packed_budget.h"
#include "must.h"
#include "temporary_folder.h"
#include "test.h"

namespace metal_marlin::testing::load_memory_tests {
namespace {

namespace mm = metal_marlin;

constexpr size_t kBesides = size_t{64} << 20;

std::string zeros(int64_t bytes) { return std::string(static_cast<size_t>(bytes), '\0'); }
std::string shape(int64_t a, int64_t b) { return std::to_string(a) + "," + std::to_string(b); }

/// Files of one layer [n, k], or of experts of it.
std::string floats(int64_t n, int64_t k, int64_t experts) {
  std::vector<TestTensor> tensors;
  for (int64_t e = 0; e < experts; ++e)
    tensors.push_back({"l.experts." + std::to_string(e) + ".up.weight", "BF16", shape(n, k), zeros(2 * n * k)});
  return safetensors(tensors);
}
std::string gguf(int64_t n, int64_t k, int64_t experts) {
  GgufWriter writer;
  k = (k + 31) / 32 * 32;
  writer.tensor("l.weight", {k, n, experts}, 2, zeros(n * k / 32 * 18 * experts));  // Q4_0
  return writer.file();
}
std::string bitsandbytes(int64_t n, int64_t k, int64_t) {
  const int64_t bytes = (n * k + 1) / 2, blocks = (n * k + 63) / 64;
  const std::string state = R"({"quant_type":"nf4","blocksize":64,"shape":[)" + shape(n, k) + "]}";
  return safetensors({{"l.weight", "U8", shape(bytes, 1), zeros(bytes)},
                      {"l.weight.absmax", "F32", std::to_string(blocks), zeros(4 * blocks)},
                      {"l.weight.quant_map", "F32", "16", zeros(64)},
                      {"l.weight.quant_state.bitsandbytes__nf4", "U8", std::to_string(state.size()), state}});
}
/// GPTQ whose columns take turns among the groups, so that each group has few of them.
std::string gptq(int64_t n, int64_t k, int64_t) {
  n = (n + 7) / 8 * 8, k = (k + 31) / 32 * 32;
  const int64_t groups = k / 32;
  std::string index;
  for (int64_t i = 0; i < k; ++i) append(index, static_cast<int32_t>(i < groups ? i : 0));
  return safetensors({{"l.qweight", "I32", shape(k / 8, n), zeros(k / 2 * n)},
                      {"l.qzeros", "I32", shape(groups, n / 8), std::string(static_cast<size_t>(groups * n / 2), 0x77)},
                      {"l.scales", "F16", shape(groups, n), zeros(2 * groups * n)},
                      {"l.g_idx", "I32", std::to_string(k), index}});
}

/// Bytes that the host's allocator has given.
struct Counted {
  size_t live = 0, peak = 0;
  static void* alloc(void* user, size_t size, size_t align) {
    auto& self = *static_cast<Counted*>(user);
    self.peak = std::max(self.peak, self.live += size);
    return std::aligned_alloc(align, size);
  }
  static void release(void* user, void* p, size_t size) {
    static_cast<Counted*>(user)->live -= size;
    std::free(p);
  }
};

class LoadMemory : public ::testing::Test {
 protected:
  LoadMemory() {
    BackendOptions options;
    options.threads = 1;
    options.allocator = {Counted::alloc, Counted::release, &counted};
    context = mm::context(new marlin_context(MARLIN_BACKEND_CPU, cpu::create_backend(options).take(), {}));
  }
  std::unique_ptr<marlin_checkpoint> open(const std::string& name, const std::string& file) {
    auto folder = std::make_unique<MemoryFolder>();
    folder->add(name, file);
    return std::make_unique<marlin_checkpoint>(must(open_checkpoint(std::move(folder), name, MARLIN_LAYOUT_AUTO)));
  }
  /// Loads the layer of a file, and sees that it took no more than the bytes of the file allow.
  abi_test::Outcome load(const std::string& file, const std::string& what) {
    const bool is_gguf = file.starts_with("GGUF");
    const auto checkpoint = open(is_gguf ? "m.gguf" : "m.safetensors", file);
    const char* const layers[] = {checkpoint->files->layer_name(0)};
    auto desc = mm::make<marlin_load_desc>();
    desc.layers = layers;
    desc.layer_count = 1;
    counting_new::peak = counting_new::live.load();
    counted.peak = 0;
    const size_t before = counting_new::live;
    marlin_weights* made = nullptr;
    const auto outcome = abi_test::call(marlin_weights_load, context.get(), checkpoint.get(), &desc, &made);
    const size_t taken = counting_new::peak - before + counted.peak;
    EXPECT_LE(taken, kBesides + 10 * file.size() + (size_t{8} << 20)) << what << ": " << file.size() << " bytes";
    marlin_weights_destroy(made);
    if (outcome.status != MARLIN_OK) {
      EXPECT_EQ(outcome.status, MARLIN_E_UNSUPPORTED) << what << ": " << outcome.message;
      EXPECT_THAT(outcome.message, HasSubstr("expected up to 64 MiB and four times")) << what;
    }
    return outcome;
  }

  Counted counted;
  mm::context context;
};

TEST_F(LoadMemory, IsInProportionToTheFile) {
  std::mt19937 random(20261128);
  constexpr std::string (*kFiles[])(int64_t, int64_t, int64_t) = {floats, gguf, bitsandbytes, gptq};
  int refused = 0;
  for (int i = 0; i < 24; ++i) {
    // One dimension is long.
    const auto small = [&] { return 1 + static_cast<int64_t>(random() % 4); };
    int64_t dims[] = {small(), small(), small()};
    const size_t axis = random() % 3, kind = random() % 4;
    dims[axis] = (axis == 2 ? 8000 : 200'000) + static_cast<int64_t>(random() % 4 * 2500);
    const auto [n, k, experts] = dims;
    const std::string what = std::to_string(kind) + " [" + shape(n, k) + "] x " + std::to_string(experts);
    refused += load(kFiles[kind](n, k, experts), what).status != MARLIN_OK;
  }
  EXPECT_GE(refused, 4);
  EXPECT_LT(refused, 19);
}

/// Shapes of models, however thin, and small ones.
TEST_F(LoadMemory, TakesHonestLayers) {
  const struct {
    std::string file;
    const char* what;
  } files[] = {
      {floats(1, 2048, 1), "a gate of shared experts"},
      {floats(8, 2048, 1), "a router"},
      {floats(1, 8192, 1), "the head of a reward model"},
      {floats(4096, 16, 1), "a low rank"},
      {floats(3, 5, 4), "tiny experts"},
      {gguf(1, 32, 8), "tiny experts of Q4_0"},
      {gguf(64, 1024, 4), "experts of Q4_0"},
      {bitsandbytes(1152, 588, 1), "embedded patches"},
      {gptq(512, 1024, 1), "act-order"},
      {gptq(8, 32, 1), "tiny act-order"},
  };
  for (const auto& [file, what] : files) EXPECT_EQ(load(file, what).status, MARLIN_OK) << what;
}

/// Layers of a file are counted together. What nobody asked for stays as it is.
TEST_F(LoadMemory, OfASavedFileIsThatOfAllLayers) {
  constexpr int kLayers = 2400;
  std::vector<TestTensor> tensors;
  for (int i = 0; i < kLayers; ++i) tensors.push_back({"l" + std::to_string(i) + ".weight", "F32", "1,32", zeros(128)});
  const std::string file = safetensors(tensors);
  const auto checkpoint = open("m.safetensors", file);
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/m.marlin";
  EXPECT_OK(marlin_checkpoint_save, context.get(), checkpoint.get(), out.c_str(), nullptr);
  EXPECT_LE(std::filesystem::file_size(out), kBesides + 10 * file.size());

  std::vector<std::string> names;
  for (int i = 0; i < kLayers; ++i) names.push_back("l" + std::to_string(i));
  std::vector<const char*> pointers(kLayers);
  std::vector<marlin_load_desc> loads(kLayers, mm::make<marlin_load_desc>());
  std::vector<const marlin_load_desc*> each;
  for (size_t i = 0; i < kLayers; ++i) {
    pointers[i] = names[i].c_str();
    loads[i].layers = &pointers[i];
    loads[i].layer_count = 1;
    each.push_back(&loads[i]);
  }
  auto desc = mm::make<marlin_save_desc>();
  desc.loads = each.data();
  desc.load_count = kLayers;
  desc.flags = MARLIN_SAVE_OVERWRITE;
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "expected up to 64 MiB and four times", marlin_checkpoint_save, context.get(),
               checkpoint.get(), out.c_str(), &desc);
}

TEST(PackedBudget, IsOfAllTogetherAndDoesNotWrap) {
  PackedBudget budget;
  budget.add_own(Checked(1000));
  EXPECT_TRUE(budget.take(kBesides).ok());
  EXPECT_TRUE(budget.take(4000).ok());
  EXPECT_EQ(budget.take(1).code(), MARLIN_E_UNSUPPORTED);
  EXPECT_EQ(budget.take(UINT64_MAX).code(), MARLIN_E_UNSUPPORTED);
  budget.add_own(Checked(1));
  EXPECT_TRUE(budget.take(4).ok()) << "what was refused was not taken";
}

}  // namespace
}  // namespace metal_marlin::testing::load_memory_tests
