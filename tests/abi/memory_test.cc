// Memory that runs out: for every export, the n-th allocation of a call fails, n = 1, 2, ... until the call gets through. Each
// failure must be MARLIN_E_MEMORY, leave the context usable and lose nothing. The host's allocator of the context counts along.
#include "exports_signatures.h"
#include "failing_new.h"
#include "test.h"

using failing_new::allocate;
using failing_new::live;
using failing_new::release;
using failing_new::until_failure;

namespace abi_test {
namespace {

class Memory : public testing::TestWithParam<size_t> {
 protected:
  const Export& signature() const { return signatures()[GetParam()]; }
  /// The export's slot in marlin_api, or marlin_get_api itself, which is not in it.
  void* function() const {
    if (std::string(signature().name) == "marlin_get_api") return reinterpret_cast<void*>(&marlin_get_api);
    void* member;
    std::memcpy(static_cast<void*>(&member),
                reinterpret_cast<const char*>(marlin_get_api(MARLIN_ABI_MAJOR)) + 16 + 8 * GetParam(), sizeof member);
    return member;
  }
  static marlin_context_desc desc() {
    auto d = mm::make<marlin_context_desc>();
    d.threads = 2;
    d.alloc = [](void*, size_t size, size_t align) { return allocate(size, align); };
    d.release = [](void*, void* p, size_t) { release(p); };
    return d;
  }
  /// One call whose n-th allocation fails, in a world of its own. True when it got through.
  bool attempt(int64_t n) {
    World world(desc());
    std::vector<Value> values;
    for (const Arg arg : signature().args) {
      values.push_back(world.good(arg));
      world.destroyed(arg);
    }
    const uint64_t result = call_with(function(), signature(), std::move(values), [n] { until_failure = n; });
    until_failure = -1;
    if (!signature().fails() || static_cast<marlin_status>(result) == MARLIN_OK) return true;
    EXPECT_STREQ(marlin_status_name(static_cast<marlin_status>(result)), "MARLIN_E_MEMORY") << world.error().message;
    EXPECT_TRUE(world.created_nothing());
    EXPECT_EQ(static_cast<marlin_status>(call_in(world, function(), signature())), MARLIN_OK) << world.error().message;
    return false;
  }
};

TEST_P(Memory, EveryFailureIsTypedHarmlessAndLosesNothing) {
  attempt(-1);  // what is allocated once for ever is no loss
  int64_t n = 1;
  for (bool through = false; !through; ++n) {
    ASSERT_LT(n, 5000) << "never got through";
    const int64_t before = live;
    through = attempt(n);
    ASSERT_EQ(live, before) << "allocation " << n << " of " << signature().name;
  }
  RecordProperty("allocations", static_cast<int>(n - 2));
}

/// Opens a checkpoint and loads each of its layers, quantizing floats; the n-th allocation of all that fails.
marlin_status load_all(const std::string& path, const mm::context& context, int64_t n) {
  std::vector<mm::weights> loaded;
  loaded.reserve(64);
  until_failure = n;
  mm::checkpoint file;
  marlin_status status = marlin_checkpoint_open(path.c_str(), nullptr, file.out(), nullptr);
  auto info = mm::make<marlin_layer_info>();
  for (uint64_t i = 0; status == MARLIN_OK && marlin_checkpoint_layer(file.get(), i, &info, nullptr) == MARLIN_OK; ++i) {
    if (info.status != MARLIN_OK) continue;  // a layout that this version does not read
    marlin_shard shard{};
    shard.count[2] = 1;
    auto load = mm::make<marlin_load_desc>();
    load.layers = &info.name;
    load.shards = &shard;
    load.layer_count = 1;
    load.format = MARLIN_FORMAT_NVFP4;
    mm::weights weights;
    status = marlin_weights_load(context.get(), file.get(), &load, weights.out(), nullptr);
    loaded.push_back(std::move(weights));
  }
  until_failure = -1;
  return status;
}

TEST(MemoryOfFiles, EveryLayoutSurvivesEveryFailure) {
  auto desc = mm::make<marlin_context_desc>();
  desc.threads = 2;
  const mm::context context(desc);
  for (const auto& folder : std::filesystem::directory_iterator(MARLIN_TEST_DATA)) {
    if (!folder.is_directory()) continue;
    const std::string path = folder.path().string();
    SCOPED_TRACE(path);
    ASSERT_EQ(load_all(path, context, -1), MARLIN_OK);
    marlin_status status = MARLIN_E_MEMORY;
    for (int64_t n = 1; status != MARLIN_OK; ++n) {
      ASSERT_LT(n, 20000) << "never got through";
      const int64_t before = live;
      status = load_all(path, context, n);
      ASSERT_TRUE(status == MARLIN_OK || status == MARLIN_E_MEMORY) << marlin_status_name(status) << ", allocation " << n;
      ASSERT_EQ(live, before) << "allocation " << n;
    }
  }
}

/// Packs experts, prepares and multiplies on a stream of its own, the n-th allocation failing.
marlin_status run_experts(const mm::context& context, int64_t n) {
  const auto values = numbers(6 * 70 * 64, 1), a = numbers(5 * 64, 2);
  std::vector<marlin_pack_desc> parts;
  for (int64_t e = 0; e < 6; ++e) {
    parts.push_back(pack_desc(values, 70, 64));
    parts.back().values = mm::matrix_view(values.data() + e * 70 * 64, 70, 64);
  }
  std::vector<const marlin_pack_desc*> pointers;
  for (const auto& part : parts) pointers.push_back(&part);
  std::vector<float> c(5 * 70), scales(5 * 2, 0.5f);
  std::vector<int32_t> ids = {0, 1, 2, 3, 5, 5, 5, 0, -1, 2};
  mm::weights weights;
  mm::stream stream;
  auto desc = mm::make<marlin_gemm_desc>();
  desc.a = mm::matrix_view(a.data(), 5, 64);
  desc.c = mm::matrix_view(c.data(), 5, 70);
  desc.expert_ids = mm::matrix_view(ids.data(), 5, 2);
  desc.expert_scales = mm::matrix_view(scales.data(), 5, 2);
  const marlin_gemm_desc* const descs[] = {&desc};

  until_failure = n;
  marlin_status status = marlin_weights_pack(context.get(), pointers.data(), 6, 6, weights.out(), nullptr);
  desc.weights = weights.get();
  if (status == MARLIN_OK) status = marlin_stream_create(context.get(), nullptr, stream.out(), nullptr);
  if (status == MARLIN_OK) status = marlin_gemm(stream.get(), &desc, nullptr);
  if (status == MARLIN_OK) status = marlin_prepare(stream.get(), descs, 1, 50, nullptr, nullptr);
  if (status == MARLIN_OK) {
    until_failure = 1;  // a prepared call allocates nothing
    status = marlin_gemm(stream.get(), &desc, nullptr);
    EXPECT_EQ(status, MARLIN_OK);
  }
  until_failure = -1;
  return status;
}

TEST(MemoryOfExperts, EveryFailureIsTypedAndLosesNothing) {
  auto desc = mm::make<marlin_context_desc>();
  desc.threads = 2;
  desc.alloc = [](void*, size_t size, size_t align) { return allocate(size, align); };
  desc.release = [](void*, void* p, size_t) { release(p); };
  const auto attempt = [&](int64_t n) { return run_experts(mm::context(desc), n); };  // contexts remember their streams
  ASSERT_EQ(attempt(-1), MARLIN_OK);
  marlin_status status = MARLIN_E_MEMORY;
  for (int64_t n = 1; status != MARLIN_OK; ++n) {
    ASSERT_LT(n, 5000) << "never got through";
    const int64_t before = live;
    status = attempt(n);
    ASSERT_TRUE(status == MARLIN_OK || status == MARLIN_E_MEMORY) << marlin_status_name(status) << ", allocation " << n;
    ASSERT_EQ(live, before) << "allocation " << n;
  }
}

/// More products than fit the caller's stack, prepared on a stream.
TEST(MemoryOfManyProducts, APreparedCallAllocatesNothing) {
  constexpr int64_t kMany = 20, kRows = 2, kN = 8, kK = 32;
  const mm::context context{MARLIN_BACKEND_CPU};
  const mm::weights weights = quantized(context, kN, kK);
  const auto a = numbers(kRows * kK, 2);
  std::vector<float> c(kMany * kRows * kN);
  std::vector<marlin_gemm_desc> descs(kMany, mm::make<marlin_gemm_desc>());
  std::vector<const marlin_gemm_desc*> pointers;
  for (int64_t i = 0; i < kMany; ++i) {
    marlin_gemm_desc& d = descs[static_cast<size_t>(i)];
    d.weights = weights.get();
    d.a = mm::matrix_view(a.data(), kRows, kK);
    d.c = mm::matrix_view(c.data() + i * kRows * kN, kRows, kN);
    pointers.push_back(&d);
  }
  const mm::stream stream(context);
  EXPECT_OK(marlin_prepare, stream.get(), pointers.data(), uint32_t{kMany}, kRows, nullptr);
  until_failure = 1;
  const marlin_status status = marlin_gemm_many(stream.get(), pointers.data(), kMany, nullptr);
  until_failure = -1;
  EXPECT_EQ(status, MARLIN_OK);
}

INSTANTIATE_TEST_SUITE_P(All, Memory, testing::Range(size_t{0}, signatures().size()),
                         [](const auto& info) { return signatures()[info.param].name; });

}  // namespace
}  // namespace abi_test
