// marlin_weights_pack: up to three parts, in any layout, and what was packed is unpacked.
#include "fuzz/operands.h"

namespace metal_marlin::fuzz {
namespace {

constexpr marlin_format kFormats = 18;
constexpr marlin_layout kLayouts = 11;

/// How many codes of a format 32 bits hold, for the usual shape of its codes.
int64_t bits_per_code(marlin_format format) {
  static constexpr int8_t kBits[] = {32, 4, 4, 4, 4, 8, 2, 3, 5, 6, 4, 8, 8, 4, 4, 32, 16, 16};
  return format >= 0 && format < kFormats ? kBits[format] : 4;
}

struct Shape {
  int64_t rows, cols;
  marlin_dtype dtype;
};

Shape usual_values(const marlin_pack_desc& d) {
  const int64_t bits = bits_per_code(d.format);
  switch (d.layout) {
    case MARLIN_LAYOUT_K8N:
      return {d.k / 8, d.n, MARLIN_U32};
    case MARLIN_LAYOUT_GPTQ_V1:
    case MARLIN_LAYOUT_GPTQ_V2:
      return {d.k * bits / 32, d.n, MARLIN_I32};
    case MARLIN_LAYOUT_AWQ:
      return {d.k, d.n / 8, MARLIN_I32};
    case MARLIN_LAYOUT_AWQ_GEMV:
      return {d.n, d.k / 8, MARLIN_I32};
    case MARLIN_LAYOUT_AWQ_GEMV_FAST:
      return {d.n / 4, d.k, MARLIN_I16};
    case MARLIN_LAYOUT_GGUF:
      return {d.n, d.k / 32 * (bits * 4 + 2), MARLIN_U8};
    case MARLIN_LAYOUT_MARLIN:
      return {d.k / 16, d.n * 2, MARLIN_I32};
    case MARLIN_LAYOUT_MARLIN_24:
      return {d.k / 32, d.n * 2, MARLIN_I32};
    default:
      break;
  }
  if (bits > 8) return {d.n, d.k, bits == 32 ? MARLIN_F32 : MARLIN_F16};
  return {d.n, bits == 4 ? (d.k + 1) / 2 : d.k, MARLIN_U8};
}

Shape usual_scales(const marlin_pack_desc& d) {
  const int64_t groups = (d.k + std::max<int64_t>(d.group_size, 1) - 1) / std::max<int64_t>(d.group_size, 1);
  const bool by_columns = d.layout >= MARLIN_LAYOUT_K8N && d.layout != MARLIN_LAYOUT_AWQ_GEMV;
  const marlin_dtype dtype =
      d.format == MARLIN_FORMAT_MXFP4 ? MARLIN_E8M0 : (d.format == MARLIN_FORMAT_NVFP4 ? MARLIN_E4M3 : MARLIN_F16);
  return by_columns ? Shape{groups, d.n, dtype} : Shape{d.n, groups, dtype};
}

marlin_pack_desc take_part(Reader& in, Operands& operands) {
  auto d = make<marlin_pack_desc>();
  d.format = static_cast<marlin_format>(in.choice(kFormats + 1));
  d.layout = static_cast<marlin_layout>(in.choice(kLayouts + 1));
  const bool floats = (in.byte() & 1) != 0;
  set_size(d, in);
  static constexpr int64_t kN[] = {8, 64, 1, 16, 7}, kK[] = {64, 128, 256, 32, 48, 1};
  d.n = in.number(kN[in.choice(5)]);
  d.k = in.number(kK[in.choice(6)]);
  d.group_size = in.bits(d.format == MARLIN_FORMAT_NVFP4 ? 16 : 32);
  d.flags = in.bits(0);
  d.gptq_zero_f = in.number32(0);
  const int64_t n = std::min<int64_t>(std::max<int64_t>(d.n, 0), 4096), k = std::min<int64_t>(std::max<int64_t>(d.k, 0), 65536);
  marlin_pack_desc small = d;  // sizes that can be multiplied
  small.n = n;
  small.k = k;
  const Shape values = floats ? Shape{n, k, MARLIN_F32} : usual_values(small), scales = usual_scales(small);
  d.values = operands.take(in, values.rows, values.cols, values.dtype);
  d.scales = operands.take(in, scales.rows, scales.cols, scales.dtype, !floats && d.layout != MARLIN_LAYOUT_GGUF);
  d.zeros = operands.take(in, scales.rows, scales.cols, MARLIN_U8, false);
  d.sparse_meta = operands.take(in, n, (k + 7) / 8, MARLIN_U8, false);
  d.group_index = operands.take(in, 1, k, MARLIN_I32, false);
  d.tensor_scale = operands.take(in, 1, 1, MARLIN_F32, false);
  d.column_norms = operands.take(in, 1, k, MARLIN_F32, false);
  d.codebook = operands.take(in, 1, 16, MARLIN_F32, d.format == MARLIN_FORMAT_CODEBOOK4);
  return d;
}

void unpack_all(const weights& packed) {
  auto info = make<marlin_layer_info>();
  auto err = make<marlin_error>();
  expect(marlin_weights_info(packed.get(), &info, &err) == MARLIN_OK, "packed weights have an info", err.message);
  const int64_t rows = info.n * info.experts;
  if (rows * info.k > 1 << 16) return;
  std::vector<float> values(static_cast<size_t>(rows * info.k));
  const marlin_matrix out = matrix_view(values.data(), rows, info.k);
  const marlin_status status = marlin_weights_unpack(nullptr, packed.get(), nullptr, 0, &out, &err);
  expect(status == MARLIN_OK, "what is packed can be unpacked", err.message);
}

}  // namespace
}  // namespace metal_marlin::fuzz

MARLIN_FUZZ_TARGET(pack) {
  using namespace metal_marlin;
  using namespace metal_marlin::fuzz;
  Reader in(input);
  (void)the_context();
  Operands operands;
  const uint32_t parts = 1 + in.choice(3) * (in.choice(4) == 3);
  const uint32_t experts = in.bits(in.choice(2) == 0 ? 0 : parts);
  std::vector<marlin_pack_desc> descs;
  for (uint32_t i = 0; i < parts; ++i) descs.push_back(i == 0 || in.choice(2) != 0 ? take_part(in, operands) : descs[0]);
  std::vector<const marlin_pack_desc*> pointers;
  for (const auto& d : descs) pointers.push_back(&d);
  auto err = make<marlin_error>();
  weights packed;
  const Peak peak;
  const marlin_status status = marlin_weights_pack(the_context().get(), pointers.data(), parts, experts, packed.out(), &err);
  expect_typed(status, err.message);
  expect((status == MARLIN_OK) == (packed.get() != nullptr), "a failed call gives no handle");
  expect(peak.bytes() <= (32 << 20), "packing takes memory by the size of its operands");
  if (status == MARLIN_OK) unpack_all(packed);
}
