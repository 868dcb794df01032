// How much of its stack a thread needs inside a call of this library or in one of its tasks: what the header promises.
#include <pthread.h>
#include <sys/mman.h>

#include "support.h"
#include "test.h"

namespace abi_test {
namespace {

constexpr size_t kPromised = 128 << 10;  // as in the header
constexpr size_t kMapped = 1 << 20;
constexpr uint8_t kPaint = 0xa5;

/// Runs `work` on a thread whose stack is painted before; how many bytes of it were written.
size_t stack_used(const std::function<void()>& work) {
  void* const stack = mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) throw std::bad_alloc();
  std::memset(stack, kPaint, kMapped);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, kMapped);
  pthread_t thread;
  const auto run = [](void* user) -> void* {
    (*static_cast<const std::function<void()>*>(user))();
    return nullptr;
  };
  const int failed = pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work));
  pthread_attr_destroy(&attributes);
  if (failed == 0) pthread_join(thread, nullptr);
  const auto* const bytes = static_cast<const uint8_t*>(stack);
  const auto* const lowest = std::find_if(bytes, bytes + kMapped, [](uint8_t byte) { return byte != kPaint; });
  munmap(stack, kMapped);
  return failed == 0 ? static_cast<size_t>(bytes + kMapped - lowest) : 0;
}

class Stack : public testing::Test {
 protected:
  /// All that was written is part of what the header promises; nothing at all would be a test that measures nothing.
  void measure(const std::string& what, const std::function<void()>& work) {
    const size_t used = stack_used(work);
    EXPECT_GT(used, 0u) << what;
    EXPECT_LE(used, kPromised) << what;
    if (used > most) most_of = what;
    most = std::max(most, used);
  }
  void TearDown() override {
    RecordProperty("most_bytes", static_cast<int>(most));
    std::printf("%zu bytes: %s\n", most, most_of.c_str());
  }
  static marlin_context_desc one_thread() {
    auto desc = mm::make<marlin_context_desc>();
    desc.backend = MARLIN_BACKEND_CPU;
    desc.threads = 1;  // this thread runs every task
    return desc;
  }

  const mm::context context{one_thread()};
  size_t most = 0;
  std::string most_of;
};

constexpr int64_t kN = 140, kK = 512;
constexpr marlin_format kFormats[] = {MARLIN_FORMAT_INT4, MARLIN_FORMAT_FP4, MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4,
                                      MARLIN_FORMAT_INT8};

TEST_F(Stack, OfProducts) {
  for (const marlin_format format : kFormats)
    for (const bool sparse : {false, true})
      for (const uint32_t experts : {1u, 2u}) {
        if (sparse && format == MARLIN_FORMAT_INT8) continue;
        const auto values = numbers(kN * kK, 1);
        marlin_pack_desc part = pack_desc(values, kN, kK, format);
        part.flags = sparse ? MARLIN_PACK_PRUNE_2_4 : 0;
        const mm::weights weights = mm::pack(context, std::vector<marlin_pack_desc>(experts, part), experts);
        for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
          for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_BF16})
            for (const marlin_epilogue epilogue : {MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_SWIGLU})
              for (const int64_t m : {1, 2, 4, 6, 16, 60, 200, 400}) {
                const int64_t columns = epilogue == MARLIN_EPILOGUE_NONE ? kN : kN / 2;
                const std::vector<float> a(static_cast<size_t>(m * kK), 1.0f);
                std::vector<float> c(static_cast<size_t>(m * columns));
                const std::vector<int32_t> ids(static_cast<size_t>(m), 1);
                auto desc = mm::make<marlin_gemm_desc>();
                desc.weights = weights.get();
                desc.compute = compute;
                desc.epilogue = epilogue;
                desc.a = mm::matrix_view(a.data(), m, kK);
                desc.a.dtype = dtype;
                desc.c = mm::matrix_view(c.data(), m, columns);
                if (experts > 1) desc.expert_ids = mm::matrix_view(ids.data(), m, 1);
                const marlin_gemm_desc* const descs[] = {&desc};
                const std::string what = "format " + std::to_string(format) + (sparse ? ", sparse" : "") + ", compute " +
                                         std::to_string(compute) + ", M " + std::to_string(m);
                measure(what, [&] {
                  EXPECT_EQ(marlin_gemm_many(nullptr, descs, 1, nullptr), MARLIN_OK);
                  EXPECT_EQ(marlin_prepare(nullptr, descs, 1, m, nullptr, nullptr), MARLIN_OK);
                  EXPECT_EQ(marlin_explain(&desc, nullptr, 0, nullptr, nullptr), MARLIN_OK);
                });
              }
      }
}

TEST_F(Stack, OfPackingAndUnpacking) {
  const auto values = numbers(kN * kK, 1);
  for (const marlin_format format : kFormats)
    for (const uint32_t flags : {0u, MARLIN_PACK_SCALES_MSE, MARLIN_PACK_PRUNE_2_4}) {
      if (flags == MARLIN_PACK_PRUNE_2_4 && format == MARLIN_FORMAT_INT8) continue;
      marlin_pack_desc part = pack_desc(values, kN, kK, format);
      part.flags = flags;
      const marlin_pack_desc* const parts[] = {&part};
      std::vector<float> rows(kN * kK);
      const marlin_matrix out = mm::matrix_view(rows.data(), kN, kK);
      measure("packing to format " + std::to_string(format), [&] {
        mm::weights weights;
        EXPECT_EQ(marlin_weights_pack(context.get(), parts, 1, 1, weights.out(), nullptr), MARLIN_OK);
        EXPECT_EQ(marlin_weights_unpack(nullptr, weights.get(), nullptr, 0, &out, nullptr), MARLIN_OK);
      });
    }
}

/// Every checkpoint of the tests: opened, loaded and converted.
TEST_F(Stack, OfFiles) {
  const std::string out =
      (std::filesystem::temp_directory_path() / ("metal-marlin-stack-" + std::to_string(getpid()))).string();
  for (const auto& folder : std::filesystem::directory_iterator(MARLIN_TEST_DATA)) {
    if (!folder.is_directory()) continue;
    const std::string path = folder.path().string();
    measure(path, [&] {
      mm::checkpoint file;
      ASSERT_EQ(marlin_checkpoint_open(path.c_str(), nullptr, file.out(), nullptr), MARLIN_OK);
      auto info = mm::make<marlin_layer_info>();
      for (uint64_t i = 0; marlin_checkpoint_layer(file.get(), i, &info, nullptr) == MARLIN_OK; ++i) {
        auto load = mm::make<marlin_load_desc>();
        load.layers = &info.name;
        load.layer_count = 1;
        load.format = MARLIN_FORMAT_NVFP4;
        mm::weights weights;
        marlin_weights_load(context.get(), file.get(), &load, weights.out(), nullptr);
        auto convert = mm::make<marlin_convert_desc>();
        convert.format = MARLIN_FORMAT_NVFP4;
        convert.layers = &info.name;
        convert.layer_count = 1;
        for (const marlin_scheme scheme : {MARLIN_SCHEME_COMPRESSED_TENSORS, MARLIN_SCHEME_GGUF}) {
          convert.scheme = scheme;
          marlin_checkpoint_convert(file.get(), out.c_str(), &convert, nullptr);
          std::error_code ignored;
          std::filesystem::remove_all(out, ignored);
        }
      }
    });
  }
}

}  // namespace
}  // namespace abi_test
