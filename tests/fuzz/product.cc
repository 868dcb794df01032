// marlin_gemm, marlin_gemm_many, marlin_prepare and marlin_explain: products and mixtures of experts.
#include <bit>
#include <map>

#include "fuzz/operands.h"

namespace metal_marlin::fuzz {
namespace {

constexpr int64_t kN = 10, kK = 64, kTopK = 2;

/// INT4 weights [10, 64] in groups of 16 with this index. The descriptor borrows what does not differ from static memory.
marlin_pack_desc act_order(const int32_t* order) {
  static const std::vector<uint8_t> codes(kN * kK / 2, 0x57);
  static const std::vector<float> scales(kN * kK / 16, 0.5f);
  auto d = make<marlin_pack_desc>();
  d.format = MARLIN_FORMAT_INT4;
  d.group_size = 16;
  d.n = kN;
  d.k = kK;
  d.values = matrix_view(codes.data(), kN, kK / 2);
  d.scales = matrix_view(scales.data(), kN, kK / 16);
  d.group_index = matrix_view(order, 1, kK);
  return d;
}

/// Weights [10, 64] of several formats; then three experts each, the last of which have orders of columns that differ; and
/// last, plain weights in orders that differ.
const weights& some_weights(uint32_t which) {
  static const std::vector<weights> all = [] {
    std::vector<float> values(kN * kK);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 37 % 31) - 15) / 8;
    std::vector<weights> made;
    const auto add = [&](marlin_format format, uint32_t flags, uint32_t experts) {
      auto d = make<marlin_pack_desc>();
      d.format = format;
      d.flags = flags;
      d.n = kN;
      d.k = kK;
      d.values = matrix_view(values.data(), kN, kK);
      made.push_back(pack(the_context(), std::vector<marlin_pack_desc>(experts, d), experts));
    };
    for (const marlin_format format :
         {MARLIN_FORMAT_INT4, MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4, MARLIN_FORMAT_INT8, MARLIN_FORMAT_FLOAT32})
      add(format, 0, 1);
    add(MARLIN_FORMAT_INT4, MARLIN_PACK_PRUNE_2_4, 1);
    add(MARLIN_FORMAT_INT4, 0, 3);
    add(MARLIN_FORMAT_MXFP4, 0, 3);
    std::vector<marlin_pack_desc> experts;
    int32_t orders[3][kK];
    for (int64_t k = 0; k < kK; ++k) {
      orders[0][k] = static_cast<int32_t>(k / 16);
      orders[1][k] = static_cast<int32_t>(k % 4);
      orders[2][k] = static_cast<int32_t>(k < 3 ? k : 3);
    }
    for (const auto& order : orders) experts.push_back(act_order(order));
    made.push_back(pack(the_context(), experts, 3));
    for (const size_t plain : {1, 2}) made.push_back(pack(the_context(), experts[plain]));
    return made;
  }();
  return all[which % all.size()];
}
constexpr uint32_t kFirstOfExperts = 6, kLastOfExperts = 8, kWeights = 11;

marlin_gemm_desc take_product(Reader& in, Operands& operands) {
  static constexpr int64_t kM[] = {2, 1, 0, 5, 17};
  const uint32_t which = in.choice(kWeights);
  auto d = make<marlin_gemm_desc>();
  set_size(d, in);
  d.weights = some_weights(which).get();
  if (in.byte() >= 250) d.weights = nullptr;
  d.compute = in.number32(0);
  d.epilogue = static_cast<marlin_epilogue>(in.choice(9));
  d.flags = in.bits(0);
  if (in.byte() >= 192)
    for (float* number : {&d.gate_limit, &d.up_limit, &d.gate_alpha, &d.up_offset})
      *number = std::bit_cast<float>(in.number32(0));
  const int64_t m = kM[in.choice(5)];
  const bool experts = which >= kFirstOfExperts && which <= kLastOfExperts;
  const bool routed = experts || in.byte() >= 224, sums = routed && (in.byte() & 1) != 0;
  const int64_t cols = d.epilogue >= MARLIN_EPILOGUE_SWIGLU && d.epilogue <= MARLIN_EPILOGUE_SITU ? kN / 2 : kN;
  d.a = operands.take(in, m, kK, MARLIN_F32);
  d.c = operands.take(in, routed && !sums ? m * kTopK : m, cols, MARLIN_F32);
  d.bias = operands.take(in, 1, kN, MARLIN_F32, false);
  d.expert_ids = operands.take(in, m, kTopK, MARLIN_I32, routed);
  d.expert_scales = operands.take(in, m, kTopK, MARLIN_F32, sums);
  return d;
}

void explain_and_prepare(const std::vector<const marlin_gemm_desc*>& descs, Reader& in) {
  auto err = make<marlin_error>();
  char text[300];
  size_t needed = 0;
  const size_t capacity = in.byte();
  expect_typed(marlin_explain(descs[0], text, capacity, &needed, &err), err.message);
  // A size that would be served takes as much memory as it says: so much for each expert of each row.
  int64_t max_m = in.number(4), experts = 1;
  for (const marlin_gemm_desc* d : descs) experts = std::max(experts, d->expert_ids.cols);
  if (experts > 600 && experts < int64_t{1} << 60) return;
  if (max_m > 300 && max_m < int64_t{1} << 60) max_m = 300;
  if (experts <= 600) max_m = std::min(max_m, std::max<int64_t>(600 / experts, 1));
  uint64_t scratch = 0;
  err = make<marlin_error>();
  const marlin_status status =
      marlin_prepare(nullptr, descs.data(), static_cast<uint32_t>(descs.size()), max_m, &scratch, &err);
  expect_typed(status, err.message);
}

}  // namespace
}  // namespace metal_marlin::fuzz

MARLIN_FUZZ_TARGET(product) {
  using namespace metal_marlin;
  using namespace metal_marlin::fuzz;
  Reader in(input);
  (void)the_context();
  Operands operands;
  const uint8_t shape = in.byte();
  const uint32_t count = shape < 128 ? 1 : (shape < 224 ? 2 + shape % 2 : 9 + shape % 3);
  std::vector<marlin_gemm_desc> descs;
  for (uint32_t i = 0; i < count; ++i) descs.push_back(take_product(in, operands));
  std::vector<const marlin_gemm_desc*> pointers;
  for (const auto& d : descs) pointers.push_back(&d);
  const auto before = operands.snapshot();
  auto err = make<marlin_error>();
  const Peak peak;
  const marlin_status status =
      shape < 64 ? marlin_gemm(nullptr, pointers[0], &err) : marlin_gemm_many(nullptr, pointers.data(), count, &err);
  expect_typed(status, err.message);
  if (status != MARLIN_OK) expect(operands.snapshot() == before, "a failed call has changed nothing", err.message);
  explain_and_prepare(pointers, in);
  expect(peak.bytes() <= (64 << 20), "a product takes memory by the size of its operands");
}
