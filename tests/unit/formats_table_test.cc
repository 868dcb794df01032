#include "fails.h"
#include "formats/format_table.h"
#include "test.h"

namespace metal_marlin {
namespace {

WeightMeta good() {
  WeightMeta m;
  m.format = MARLIN_FORMAT_INT4;
  m.n = 10;
  m.k = 100;
  m.group_size = 32;
  m.groups = 4;
  return m;
}

void expect_error(const WeightMeta& m, marlin_status code, const char* text) {
  EXPECT_THAT(check_meta(m), Fails(code, HasSubstr(text)));
}

TEST(FormatTable, RowsAreInOrderOfTheirNumbers) {
  marlin_format number = 1;
  for (const FormatRow& row : format_table()) {
    EXPECT_EQ(row.format, number++);
    EXPECT_EQ(format_row(row.format), &row);
    EXPECT_STREQ(format_name(row.format), row.name);
    EXPECT_TRUE(row.allows(row.default_type));
    EXPECT_TRUE(row.allows(ZeroKind::none));
  }
  EXPECT_EQ(number, MARLIN_FORMAT_BFLOAT16 + 1);
  EXPECT_EQ(last_format(), MARLIN_FORMAT_BFLOAT16);
  for (const marlin_format f : {MARLIN_FORMAT_NONE, marlin_format{MARLIN_FORMAT_BFLOAT16 + 1}, marlin_format{-1}})
    EXPECT_EQ(format_row(f), nullptr);
  EXPECT_STREQ(format_name(99), "unknown");
}

TEST(FormatTable, ScaleTypesAndDtypes) {
  for (const ScaleType t : {ScaleType::f32, ScaleType::f16, ScaleType::bf16, ScaleType::e8m0, ScaleType::e4m3}) {
    EXPECT_EQ(scale_type_of(scale_dtype(t)), t);
  }
  EXPECT_STREQ(scale_type_name(ScaleType::bf16), "BF16");
  for (const ScaleType t : {ScaleType::u4, ScaleType::u6, ScaleType::s6, ScaleType::s8}) EXPECT_EQ(scale_dtype(t), MARLIN_F16);
  EXPECT_EQ(scale_type_of(MARLIN_F16), ScaleType::f16) << "two-level scales have no dtype of their own";
  EXPECT_EQ(scale_type_of(MARLIN_F32), ScaleType::f32) << "nested scales have none either";
  EXPECT_EQ(scale_type_of(MARLIN_U8), std::nullopt);
}

TEST(FormatTable, GroupSizes) {
  const FormatRow &int4 = *format_row(MARLIN_FORMAT_INT4), &mx = *format_row(MARLIN_FORMAT_MXFP4),
                  &nv = *format_row(MARLIN_FORMAT_NVFP4);
  const auto resolved = [](const FormatRow& row, int64_t requested, int64_t k) {
    const auto r = resolve_group_size(row, requested, k);
    return r.ok() ? r.value() : -1;
  };
  for (const int64_t g : {16, 32, 64, 128, 256, 1024}) EXPECT_EQ(resolved(int4, g, 4096), g);
  for (const int64_t g : {1, 8, 48, 96, 130, -1, -16}) EXPECT_EQ(resolved(int4, g, 4096), -1) << g;
  EXPECT_EQ(resolved(int4, 0, 4096), 32);
  EXPECT_EQ(resolved(int4, 0, 20), 20);
  EXPECT_EQ(resolved(int4, 50, 50), 50);
  EXPECT_EQ(resolved(int4, 4096, 50), 50);
  EXPECT_EQ(resolved(mx, 0, 4096), 32);
  EXPECT_EQ(resolved(mx, 32, 7), 32);
  EXPECT_EQ(resolved(mx, 7, 7), 32);
  EXPECT_EQ(resolved(mx, 64, 4096), -1);
  EXPECT_EQ(resolved(mx, 4096, 4096), -1);
  EXPECT_EQ(resolved(nv, 0, 4096), 16);
  EXPECT_EQ(resolved(nv, 32, 4096), -1);
}

TEST(CheckMeta, AcceptsWhatIsServed) {
  EXPECT_TRUE(check_meta(good()).ok());
  WeightMeta m = good();
  m.group_size = m.k;
  m.groups = 1;
  EXPECT_TRUE(check_meta(m).ok());
  m.format = MARLIN_FORMAT_MXFP4;
  m.scale_type = ScaleType::e8m0;
  m.k = 20;
  m.group_size = 32;
  EXPECT_TRUE(check_meta(m).ok());
  m.group_size = 20;
  EXPECT_TRUE(check_meta(m).ok());
  m = good();
  m.tensor_scales = {{0, 1, false}, {9, 2, true}};
  m.group_index.assign(100, 6);
  m.groups = 7;
  m.zero_kind = ZeroKind::integer;
  m.gate_up_interleaved = true;
  EXPECT_TRUE(check_meta(m).ok());
}

TEST(CheckMeta, EveryError) {
  WeightMeta m = good();
  m.format = 77;
  expect_error(m, MARLIN_E_ARGUMENT, "77");
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1} << 31, int64_t{1} << 62}) {
    (m = good()).n = bad;
    expect_error(m, MARLIN_E_SHAPE, "n, k");
    (m = good()).k = bad;
    expect_error(m, MARLIN_E_SHAPE, "n, k");
  }
  (m = good()).gate_up_interleaved = true;
  m.n = 9;
  expect_error(m, MARLIN_E_SHAPE, "pairs");
  (m = good()).scale_type = ScaleType::e8m0;
  expect_error(m, MARLIN_E_UNSUPPORTED, "E8M0");
  (m = good()).format = MARLIN_FORMAT_MXFP4;
  m.scale_type = ScaleType::e4m3;
  expect_error(m, MARLIN_E_UNSUPPORTED, "E4M3");
  (m = good()).format = MARLIN_FORMAT_FP4;
  m.zero_kind = ZeroKind::additive;
  expect_error(m, MARLIN_E_UNSUPPORTED, "additive");
  (m = good()).format = MARLIN_FORMAT_INT8;
  m.zero_kind = ZeroKind::integer;
  expect_error(m, MARLIN_E_UNSUPPORTED, "integer");
  (m = good()).zero_kind = ZeroKind::additive;
  m.zero_type = ScaleType::e4m3;
  expect_error(m, MARLIN_E_UNSUPPORTED, "E4M3");
  (m = good()).group_size = 48;
  expect_error(m, MARLIN_E_UNSUPPORTED, "48");
  (m = good()).group_size = 0;
  expect_error(m, MARLIN_E_UNSUPPORTED, "group_size");
  (m = good()).format = MARLIN_FORMAT_MXFP4;
  m.group_size = 64;
  expect_error(m, MARLIN_E_UNSUPPORTED, "groups of 32");
  (m = good()).groups = 3;
  expect_error(m, MARLIN_E_SHAPE, "expected 4 groups");
}

TEST(CheckMeta, GroupIndex) {
  WeightMeta m = good();
  m.group_index.assign(99, 0);
  expect_error(m, MARLIN_E_SHAPE, "100 entries");
  m.group_index.assign(100, 0);
  m.group_index[42] = 4;
  expect_error(m, MARLIN_E_FORMAT, "group_index[42]");
  m.group_index[42] = -1;
  expect_error(m, MARLIN_E_FORMAT, "found -1");
  m.group_index[42] = 0;
  m.groups = 0;
  expect_error(m, MARLIN_E_SHAPE, "groups a row");
}

TEST(CheckMeta, TensorScales) {
  WeightMeta m = good();
  m.tensor_scales = {{1, 1, false}};
  expect_error(m, MARLIN_E_SHAPE, "tensor_scale 0");
  m.tensor_scales = {{0, 1, false}, {5, 1, false}, {5, 1, false}};
  expect_error(m, MARLIN_E_SHAPE, "tensor_scale 2");
  m.tensor_scales = {{0, 1, false}, {10, 1, false}};
  expect_error(m, MARLIN_E_SHAPE, "below n = 10");
  m.tensor_scales = {{0, 1, false}};
  m.zero_kind = ZeroKind::additive;
  expect_error(m, MARLIN_E_UNSUPPORTED, "additive");
  m = good();
  m.tensor_scales = {{0, 1, false, 2688}};
  expect_error(m, MARLIN_E_UNSUPPORTED, "NVFP4 only, found INT4");
}

}  // namespace
}  // namespace metal_marlin
