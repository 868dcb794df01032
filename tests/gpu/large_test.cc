// Products on the Metal shaders whose sizes do not fit 32 bits: many columns, rows that lie gigabytes apart, and packed weights
// of more than 2^31 elements and 4 GB. Their memory is mapped and hardly touched.
#include <sys/mman.h>

#include "backends/gpu/pack.h"
#include "gpu.h"
#include "kernels/formats_under_test.h"
#include "must.h"
#include "problem/memory_source.h"
#include "test.h"
#include "unit/planned.h"

namespace {

using namespace device_test;
using mm::GemmProblem;
using mm::MatrixView;
namespace gpu = mm::gpu;

constexpr int64_t kFour = int64_t{4} << 30;  // bytes

/// The vocabulary of MiniCPM3, a number of columns that no power of two divides but 8.
TEST(ManyColumns, AreThoseOfFloat64) {
  for (const trial::Kind& kind : {trial::kKinds[0], trial::kKinds[4]})
    for (const int64_t m : {1, 20, 40}) {
      const Gpu device({.check = false, .changes = {}, .tensor = false}, false);
      EXPECT_TRUE(trial::holds(trial::case_of(kind, MARLIN_COMPUTE_DEFAULT, m, 73448, 64))) << kind.name;
    }
}

/// Addresses of the host that have memory where they are touched.
class Sparse {
 public:
  explicit Sparse(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Sparse() {
    if (there()) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  bool there() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  dv::BufferRef on(dv::Device& device) const { return device.wrap(data_, bytes_, dv::Placement::shared).take(); }

 private:
  const size_t bytes_;
  void* const data_;
};

MatrixView view_of(const dv::BufferRef& memory, int64_t rows, int64_t cols, int64_t stride, marlin_dtype dtype) {
  MatrixView view{memory->host(), rows, cols, stride, dtype, MARLIN_MEM_METAL};
  view.native = memory.get();
  return view;
}

std::unique_ptr<mm::Backend> backend_on(const std::shared_ptr<TestbedDevice>& device) {
  return must(gpu::make_gpu_backend(device, {.threads = 1}, {.probe = false}));
}

constexpr int64_t kK = 64;

mm::MemorySource source_of(int64_t n, marlin_format format, uint32_t seed, mm::Order order = mm::Order::plain) {
  mm::MemorySource source;
  mm::WeightMeta& meta = source.mutable_meta();
  std::mt19937 random(seed);
  meta.format = format, meta.scale_type = mm::ScaleType::f16;
  meta.n = n, meta.k = kK, meta.group_size = 32;
  mm::set_groups(meta, order, random);
  mm::fill_randomly(source, random, true);
  return source;
}

/// Rows of A, C or unpacked weights; neighbors are `stride` elements apart.
class Rows {
 public:
  Rows(int64_t rows, int64_t cols, int64_t stride, marlin_dtype dtype)
      : rows_(rows), cols_(cols), stride_(stride), dtype_(dtype), memory_(((rows - 1) * stride + cols) * element()) {}
  bool there() const { return memory_.there(); }
  int64_t element() const { return dtype_ == MARLIN_F16 ? 2 : 4; }
  std::byte* row(int64_t r) const { return memory_.data() + r * stride_ * element(); }
  MatrixView view(const dv::BufferRef& memory) const { return view_of(memory, rows_, cols_, stride_, dtype_); }
  dv::BufferRef on(dv::Device& device) const { return memory_.on(device); }
  void fill(uint32_t seed) const {
    std::mt19937 random(seed);
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t i = 0; i < cols_; ++i) {
        const float x = static_cast<float>(static_cast<int>(random() % 64) - 32) / 16;
        const auto half = static_cast<_Float16>(x);
        std::memcpy(row(r) + i * element(), dtype_ == MARLIN_F16 ? static_cast<const void*>(&half) : &x,
                    static_cast<size_t>(element()));
      }
  }
  bool equals(const Rows& other) const {
    for (int64_t r = 0; r < rows_; ++r)
      if (std::memcmp(row(r), other.row(r), static_cast<size_t>(cols_ * element())) != 0) return false;
    return true;
  }

 private:
  const int64_t rows_, cols_, stride_;
  const marlin_dtype dtype_;
  const Sparse memory_;
};

/// Rows of A and of C that lie more than 2^31 elements, or 4 GB, apart: the same bits as if they were neighbors.
TEST(FarRows, GiveTheBitsOfNearOnes) {
  const auto device = std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}, .tensor = false});
  const auto backend = backend_on(device);
  constexpr int64_t kN = 40, kFarA = (int64_t{1} << 31) + 8, kFarC = (int64_t{1} << 30) + 4;
  for (const mm::Order order : {mm::Order::plain, mm::Order::shuffled})
    for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
      for (const int64_t m : {3, 12, 20}) {
        SCOPED_TRACE("M = " + std::to_string(m) + ", compute " + std::to_string(compute));
        const mm::MemorySource source = source_of(kN, MARLIN_FORMAT_INT4, 3, order);
        auto packed = must(backend->pack(source));
        const auto multiply = [&](const Rows& a, const Rows& c) {
          a.fill(5), c.fill(6);
          const dv::BufferRef a_memory = a.on(*device), c_memory = c.on(*device);
          GemmProblem problem;
          problem.weights = packed.get();
          problem.a = a.view(a_memory), problem.c = c.view(c_memory);
          problem.compute = compute, problem.accumulate = true;
          const Status ran = mm::plan_and_run(*backend, nullptr, problem);
          EXPECT_TRUE(ran.ok()) << ran.message();
        };
        const Rows near_a(m, kK, kK, MARLIN_F16), near_c(m, kN, kN, MARLIN_F32), far_a(m, kK, kFarA, MARLIN_F16),
            far_c(m, kN, kFarC, MARLIN_F32);
        if (!far_a.there() || !far_c.there()) GTEST_SKIP() << "this system gives no 80 GB of addresses";
        multiply(near_a, near_c);
        multiply(far_a, far_c);
        EXPECT_TRUE(far_c.equals(near_c));
      }
}

TEST(FarRows, AreUnpackedTo) {
  const auto device = std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}});
  const auto backend = backend_on(device);
  const mm::MemorySource source = source_of(5, MARLIN_FORMAT_INT4, 3);
  auto packed = must(backend->pack(source));
  const Rows near_rows(5, kK, kK, MARLIN_F32), far_rows(5, kK, (int64_t{1} << 30) + 4, MARLIN_F32);
  if (!far_rows.there()) GTEST_SKIP() << "this system gives no 20 GB of addresses";
  for (const Rows* rows : {&near_rows, &far_rows}) {
    const dv::BufferRef memory = rows->on(*device);
    EXPECT_TRUE(backend->unpack(nullptr, *packed, mm::RowSelection::from(0), rows->view(memory)).ok());
  }
  EXPECT_TRUE(far_rows.equals(near_rows));
}

/// The bytes of packed weights.
const std::byte* bytes_of(const mm::PackedWeights& weights) {
  const gpu::DevicePointer place = static_cast<const gpu::GpuWeights&>(weights).part(0);
  return place.buffer->host() + place.offset;
}
const gpu::RowBlockLayout& layout_of(const mm::PackedWeights& weights) {
  return static_cast<const gpu::GpuWeights&>(weights).layout;
}

/// Experts whose weights lie 5 GB apart.
TEST(FarExperts, GiveTheBitsOfNearOnes) {
  const auto device = std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}, .tensor = false});
  const auto backend = backend_on(device);
  constexpr int64_t kN = 40, kStride = kFour + (int64_t{1} << 30), kTopK = 2;
  std::vector<std::unique_ptr<mm::WeightSource>> sources;
  for (const uint32_t seed : {1, 2, 3})
    sources.push_back(std::make_unique<mm::MemorySource>(source_of(kN, MARLIN_FORMAT_INT4, seed)));
  auto packed = must(backend->pack_experts(sources));
  const mm::ExpertStack& near_stack = packed;
  const Sparse memory(3 * kStride);
  if (!memory.there()) GTEST_SKIP() << "this system gives no 15 GB of addresses";
  const dv::BufferRef buffer = memory.on(*device);
  mm::ExpertStack far_stack;
  for (size_t e = 0; e < 3; ++e) {
    const uint64_t at = e * static_cast<uint64_t>(kStride);
    std::memcpy(memory.data() + at, bytes_of(*near_stack[e]), near_stack[e]->bytes());
    far_stack.push_back(std::make_unique<gpu::GpuWeights>(near_stack[e]->meta(), layout_of(*near_stack[e]),
                                                          std::vector<int32_t>(), gpu::DevicePointer{buffer, at},
                                                          uint64_t{kStride}));
  }
  for (const int64_t tokens : {2, 30}) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < tokens; ++t) ids.insert(ids.end(), {static_cast<int32_t>(t % 3), 2});
    std::vector<float> a(static_cast<size_t>(tokens * kK)), near_c(static_cast<size_t>(tokens * kTopK * kN)), far_c(near_c);
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 13) - 6;
    for (const mm::ExpertStack* stack : {&near_stack, &std::as_const(far_stack)}) {
      std::vector<float>& c = stack == &near_stack ? near_c : far_c;
      GemmProblem problem;
      problem.weights = stack->front().get();
      problem.a = {a.data(), tokens, kK, kK, MARLIN_F32};
      problem.c = {c.data(), tokens * kTopK, kN, kN, MARLIN_F32};
      problem.routing.stack = stack;
      problem.routing.ids = {ids.data(), tokens, kTopK, kTopK, MARLIN_I32};
      const Status ran = mm::plan_and_run(*backend, nullptr, problem);
      EXPECT_TRUE(ran.ok()) << ran.message();
    }
    EXPECT_EQ(far_c, near_c);
    EXPECT_NE(near_c, std::vector<float>(near_c.size()));
  }
}

/// Weights of 2^26 rows and some more, of which the last rows have the values of a small matrix. Codes are 4 GB.
class ManyRows : public testing::Test {
 protected:
  static constexpr int64_t kBefore = int64_t{1} << 26, kRows = 104, kN = kBefore + kRows;

  void SetUp() override {
    device = std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}, .tensor = false});
    const mm::MemorySource source = source_of(kRows, MARLIN_FORMAT_INT8, 4);
    auto packed = must(backend_on(device)->pack(source));
    last = std::move(packed);
    mm::WeightMeta meta = source.meta();
    meta.n = kN;
    const auto plan = must(gpu::plan_packing(meta));
    const gpu::RowBlockLayout &layout = plan.layout, &small = layout_of(*last);
    ASSERT_GT(static_cast<int64_t>(layout.scales_at), kFour);
    memory.emplace(static_cast<int64_t>(layout.bytes));
    if (!memory->there()) GTEST_SKIP() << "this system gives no 5 GB of addresses";
    // The rows of the small matrix, whole row blocks, behind those of zeros.
    const auto put = [&](uint64_t at, uint64_t from, int64_t of_row_block) {
      std::memcpy(memory->data() + at + static_cast<uint64_t>(kBefore / kRowBlock * of_row_block), bytes_of(*last) + from,
                  static_cast<size_t>(small.row_blocks() * of_row_block));
    };
    put(0, 0, small.row_block_code_bytes());
    put(layout.scales_at, small.scales_at, small.row_block_record_bytes(2));
    all =
        std::make_unique<gpu::GpuWeights>(meta, layout, std::vector<int32_t>(), gpu::DevicePointer{memory->on(*device), 0}, 0);
  }

  std::shared_ptr<TestbedDevice> device;
  std::optional<Sparse> memory;
  std::unique_ptr<mm::PackedWeights> last, all;
};

TEST_F(ManyRows, AreMultiplied) {
  const auto few = backend_on(device), many = backend_on(std::make_shared<TestbedDevice>(TestbedOptions{
                                           .check = false, .changes = {}, .skipped_columns = kBefore, .tensor = false}));
  for (const int64_t m : {1, 12, 20, 40}) {
    SCOPED_TRACE("M = " + std::to_string(m));
    const Rows a(m, kK, kK, MARLIN_F16), small_c(m, kRows, kRows, MARLIN_F32), large_c(m, kN, kN, MARLIN_F32);
    if (!large_c.there()) GTEST_SKIP() << "this system gives no 12 GB of addresses";
    a.fill(7);
    for (const bool large : {false, true}) {
      const dv::BufferRef a_memory = a.on(*device), c_memory = (large ? large_c : small_c).on(*device);
      GemmProblem problem;
      problem.weights = (large ? all : last).get();
      problem.a = a.view(a_memory), problem.c = (large ? large_c : small_c).view(c_memory);
      const Status ran = mm::plan_and_run(large ? *many : *few, nullptr, problem);
      EXPECT_TRUE(ran.ok()) << ran.message();
    }
    for (int64_t row = 0; row < m; ++row)
      EXPECT_EQ(std::memcmp(large_c.row(row) + kBefore * 4, small_c.row(row), kRows * 4), 0) << "row " << row;
    EXPECT_NE(*reinterpret_cast<const float*>(small_c.row(m - 1)), 0.0f);
  }
}

TEST_F(ManyRows, AreUnpacked) {
  const auto backend = backend_on(device);
  std::vector<float> small_rows(kRows * kK), large_rows(kRows * kK);
  EXPECT_TRUE(backend->unpack(nullptr, *last, mm::RowSelection::from(0), {small_rows.data(), kRows, kK, kK, MARLIN_F32}).ok());
  EXPECT_TRUE(
      backend->unpack(nullptr, *all, mm::RowSelection::from(kBefore), {large_rows.data(), kRows, kK, kK, MARLIN_F32}).ok());
  EXPECT_EQ(large_rows, small_rows);
  EXPECT_NE(small_rows, std::vector<float>(small_rows.size()));
}

}  // namespace
