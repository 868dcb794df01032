// Every 64-bit field of a product's descriptor at the ends of its range and around 2^31 and 2^32, alone and in pairs: each
// call comes back, soon, with success or with a typed error. The operands lie in a marlin_buffer, so that a size that is
// accepted by mistake meets the bounds of the buffer and not the memory of this program.
#include <unistd.h>

#include "model_files.h"
#include "support.h"
#include "test.h"

namespace abi_test::extremes_tests {
namespace {

constexpr int64_t kN = 10, kK = 64, kExperts = 2, kTopK = 2;
constexpr int64_t kValues[] = {
    INT64_MAX, INT64_MIN, int64_t{1} << 31, (int64_t{1} << 32) - 1, int64_t{1} << 32, (int64_t{1} << 32) + 1};

/// Where the 64-bit fields of a marlin_gemm_desc are.
std::vector<size_t> fields() {
  std::vector<size_t> offsets;
  for (const size_t matrix : {offsetof(marlin_gemm_desc, a), offsetof(marlin_gemm_desc, c), offsetof(marlin_gemm_desc, bias),
                              offsetof(marlin_gemm_desc, expert_ids), offsetof(marlin_gemm_desc, expert_scales)})
    for (const size_t field : {offsetof(marlin_matrix, offset_bytes), offsetof(marlin_matrix, rows),
                               offsetof(marlin_matrix, cols), offsetof(marlin_matrix, row_stride)})
      offsets.push_back(matrix + field);
  return offsets;
}

void set(marlin_gemm_desc& desc, size_t field, int64_t value) {
  std::memcpy(reinterpret_cast<char*>(&desc) + field, &value, sizeof value);
}

class Extremes : public testing::Test {
 protected:
  void SetUp() override { alarm(60); }  // a call that does not come back ends in a signal
  void TearDown() override { alarm(0); }

  /// Two experts when there is a routing, else one matrix.
  mm::weights packed(uint32_t experts) const {
    const auto values = numbers(kN * kK, 1);
    return mm::pack(context, std::vector<marlin_pack_desc>(experts, pack_desc(values, kN, kK)), experts);
  }
  marlin_gemm_desc base(int64_t rows, bool experts, bool sums) const {
    auto d = mm::make<marlin_gemm_desc>();
    d.weights = experts ? stack.get() : matrix.get();
    d.a = memory.matrix<float>(rows, kK);
    d.c = memory.matrix<float>(experts && !sums ? rows * kTopK : rows, kN, 1024);
    d.bias = memory.matrix<float>(1, kN, 2048);
    if (experts) d.expert_ids = memory.matrix<int32_t>(rows, kTopK, 3072);
    if (sums) d.expert_scales = memory.matrix<float>(rows, kTopK, 3584);
    return d;
  }
  /// All sound products that the fields are changed in: without rows, and with a few.
  std::vector<marlin_gemm_desc> bases() const {
    std::vector<marlin_gemm_desc> all;
    for (const int64_t rows : {0, 1, 3})
      for (const auto& [experts, sums] : {std::pair(false, false), std::pair(true, false), std::pair(true, true)})
        all.push_back(base(rows, experts, sums));
    return all;
  }
  /// Every call that takes the product.
  void expect_typed(const marlin_gemm_desc& desc) {
    const marlin_gemm_desc* const two[] = {&desc, &other};
    char text[64];
    uint64_t bytes = 0;
    for (const marlin_status status :
         {marlin_explain(&desc, text, sizeof text, nullptr, nullptr), marlin_prepare(nullptr, two, 2, 1, &bytes, nullptr),
          marlin_gemm(nullptr, &desc, nullptr), marlin_gemm_many(nullptr, two, 2, nullptr)}) {
      ++calls;
      served += status == MARLIN_OK;
      ASSERT_TRUE(status == MARLIN_OK || status == MARLIN_E_SHAPE || status == MARLIN_E_ARGUMENT) << marlin_status_name(status);
    }
  }

  const mm::context context{MARLIN_BACKEND_CPU};
  const mm::weights matrix = packed(1), stack = packed(kExperts);
  const mm::buffer memory{context, 8192};
  const marlin_gemm_desc other = [this] {
    marlin_gemm_desc d = base(1, false, false);
    d.c = memory.matrix<float>(1, kN, 4096);
    return d;
  }();
  int64_t calls = 0, served = 0;
};

TEST_F(Extremes, EveryFieldAloneIsATypedErrorOrServed) {
  for (const marlin_gemm_desc& base : bases()) {
    EXPECT_OK(marlin_gemm, nullptr, &base);
    for (const size_t field : fields())
      for (const int64_t value : kValues) {
        SCOPED_TRACE(testing::Message() << "field at " << field << " is " << value << ", A has " << base.a.rows << " rows");
        marlin_gemm_desc changed = base;
        set(changed, field, value);
        expect_typed(changed);
        changed.a.data = changed.c.data = changed.expert_ids.data = nullptr;
        EXPECT_NE(marlin_explain(&changed, nullptr, 0, nullptr, nullptr), MARLIN_E_INTERNAL);
      }
  }
  EXPECT_GT(served, 0);
  EXPECT_LT(served, calls);
}

TEST_F(Extremes, PairsOfFieldsAreTypedErrorsOrServed) {
  for (const marlin_gemm_desc& base : bases())
    for (const size_t first : fields())
      for (const size_t second : fields())
        for (const int64_t value : kValues)
          for (const int64_t more : {value, int64_t{INT64_MAX}}) {
            if (second <= first) continue;
            SCOPED_TRACE(testing::Message() << "fields at " << first << " and " << second << " are " << value << " and " << more
                                            << ", A has " << base.a.rows << " rows");
            marlin_gemm_desc changed = base;
            set(changed, first, value);
            set(changed, second, more);
            expect_typed(changed);
          }
}

/// The operands of one row of weights may have any stride.
TEST_F(Extremes, TheStrideOfOneRowOfWeightsDoesNotMatter) {
  std::vector<int8_t> codes(kK, 3);
  std::vector<float> scales(2, 0.5f), zeros(2, 0.25f), found(kK);
  auto desc = mm::make<marlin_pack_desc>();
  desc.format = MARLIN_FORMAT_INT8;
  desc.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  desc.group_size = 32;
  desc.n = 1;
  desc.k = kK;
  desc.values = mm::matrix_view(codes.data(), 1, kK);
  desc.scales = mm::matrix_view(scales.data(), 1, 2);
  desc.zeros = mm::matrix_view(zeros.data(), 1, 2);
  desc.values.row_stride = desc.scales.row_stride = desc.zeros.row_stride = INT64_MAX;
  mm::unpack(mm::pack(context, desc), mm::matrix_view(found.data(), 1, kK));
  EXPECT_EQ(found, std::vector<float>(kK, 3 * 0.5f + 0.25f));
}

TEST_F(Extremes, MoreExpertsATokenThanIdsCountAreAShapeAlsoWithoutTokens) {
  for (const int64_t cols : {int64_t{1} << 31, (int64_t{1} << 32) + 1, INT64_MAX}) {
    for (const bool sums : {false, true}) {
      marlin_gemm_desc desc = base(0, true, sums);
      desc.expert_ids.cols = cols;
      if (sums) desc.expert_scales.cols = cols;
      const marlin_gemm_desc* const descs[] = {&desc};
      uint64_t bytes = 0;
      EXPECT_FAILS(MARLIN_E_SHAPE, "expert_ids is [0, ", marlin_explain, &desc, nullptr, size_t{0}, nullptr);
      EXPECT_FAILS(MARLIN_E_SHAPE, "expert_ids is [0, ", marlin_prepare, nullptr, descs, 1u, int64_t{1}, &bytes);
      EXPECT_FAILS(MARLIN_E_SHAPE, "expert_ids is [0, ", marlin_gemm, nullptr, &desc);
      EXPECT_FAILS(MARLIN_E_SHAPE, "expert_ids is [0, ", marlin_gemm_many, nullptr, descs, 1u);
    }
  }
}

TEST_F(Extremes, TheMostExpertsATokenAreExplained) {
  marlin_gemm_desc desc = base(0, true, false);
  desc.expert_ids.cols = INT32_MAX;
  EXPECT_TRUE(contains(mm::explain(desc), "experts: 2, 2147483647 a token\n"));
  EXPECT_OK(marlin_gemm, nullptr, &desc);
}

TEST_F(Extremes, RowsToPrepareForAreATypedErrorOrServed) {
  for (const marlin_gemm_desc& base : bases()) {
    const marlin_gemm_desc* const descs[] = {&base};
    uint64_t bytes = 0;
    for (const int64_t max_m : {INT64_MIN, int64_t{-1}})
      EXPECT_FAILS(MARLIN_E_ARGUMENT, "max_m", marlin_prepare, nullptr, descs, 1u, max_m, &bytes);
    EXPECT_FAILS(MARLIN_E_SHAPE, "max_m", marlin_prepare, nullptr, descs, 1u, INT64_MAX, &bytes);
  }
}

// A host may loop over the rows of a tensor without elements.
TEST_F(Extremes, NoFileMakesAMatrixWithoutElementsLong) {
  const struct {
    const char* shape;
    int64_t rows, cols;
  } cases[] = {{"4611686018427387904,0", 0, 0},
               {"0,4611686018427387904", 0, 0},
               {"2147483647,0", 2147483647, 0},
               {"0,2147483648", 0, 0},
               {"0", 1, 0},
               {"3,0", 3, 0},
               {"0,9223372036854775807", 0, 0},
               {"2,0,9223372036854775807", 0, 0},
               {"65536,65536,0", 0, 0}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.shape);
    const std::string path = testing::TempDir() + "no_elements.safetensors";
    const std::string header = R"({"x":{"dtype":"F32","shape":[)" + std::string(one.shape) + R"(],"data_offsets":[0,0]}})";
    std::ofstream(path, std::ios::binary) << model_files::safetensors(header, "");
    const mm::checkpoint file(path);
    const marlin_matrix x = file.tensor("x");
    EXPECT_EQ(x.rows, one.rows);
    EXPECT_EQ(x.cols, one.cols);
    EXPECT_EQ(x.row_stride, one.cols);
  }
}

}  // namespace
}  // namespace abi_test::extremes_tests
