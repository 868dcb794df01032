// Products on the idle device, and what was recorded for them.
#pragma once

#include "api/weights.h"
#include "backends/gpu/gemm.h"
#include "test.h"
#include "world.h"

namespace device_test {

namespace gpu = metal_marlin::gpu;

/// Weights of this KernelCodes's number.
inline mm::weights pack(const mm::context& context, int64_t n, int64_t k, int codes, bool permuted = false,
                        bool interleaved = false) {
  constexpr marlin_format kFormats[] = {MARLIN_FORMAT_FP4,  MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT8, MARLIN_FORMAT_FP4,
                                        MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT5, MARLIN_FORMAT_IQ4,  MARLIN_FORMAT_BFLOAT16};
  const auto values = abi_test::numbers(static_cast<size_t>(n * k), 5);
  auto d = abi_test::pack_desc(values, n, k, kFormats[codes]);
  d.group_size = codes == 7 ? 0 : 32;
  const bool planes = codes == 5, lut4 = codes == 6, floats = codes == 7;  // which nobody quantizes
  if (codes == 3 || codes == 4) d.flags |= MARLIN_PACK_PRUNE_2_4;
  if (interleaved) d.flags |= MARLIN_PACK_GATE_UP_INTERLEAVED;
  std::vector<int32_t> groups;
  std::vector<uint8_t> bytes;
  std::vector<float> scales;
  std::vector<uint16_t> halves;
  if (planes || lut4) {
    bytes.assign(static_cast<size_t>(planes ? n * k : n * k / 2), 0x11);
    halves.assign(static_cast<size_t>(n * k / 32), 0x3800);
    d.values = mm::matrix_view(bytes.data(), n, planes ? k : k / 2);
    d.scales = {halves.data(), 0, n, k / 32, 0, MARLIN_F16, MARLIN_MEM_HOST};
  }
  if (floats) {
    halves.assign(static_cast<size_t>(n * k), 0x3f80);
    d.values = {halves.data(), 0, n, k, 0, MARLIN_BF16, MARLIN_MEM_HOST};
  }
  if (permuted) {
    for (int64_t i = 0; i < k; ++i) groups.push_back(static_cast<int32_t>(i % (k / 32)));
    bytes.assign(static_cast<size_t>(n * k / 2), 0x21);
    scales.assign(static_cast<size_t>(n * k / 32), 0.5f);
    d.values = mm::matrix_view(bytes.data(), n, k / 2);
    d.scales = mm::matrix_view(scales.data(), n, k / 32);
    d.group_index = mm::matrix_view(groups.data(), 1, k);
  }
  return mm::pack(context, d);
}

inline const gpu::RowBlockLayout& layout_of(const mm::weights& w) {
  return static_cast<const gpu::GpuWeights&>(*w.get()->experts.front()).layout;
}
inline const dv::Buffer* buffer_of(const mm::weights& w) {
  return static_cast<const gpu::GpuWeights&>(*w.get()->experts.front()).part(0).buffer.get();
}

inline mm::stream stream_of(World& world, marlin_native kind = MARLIN_NATIVE_NONE) {
  auto d = mm::make<marlin_stream_desc>();
  int native = 0;
  d.kind = kind;
  d.native = kind == MARLIN_NATIVE_NONE ? nullptr : &native;
  marlin_stream* made = nullptr;
  EXPECT_EQ(marlin_stream_create(world.context.get(), &d, &made, nullptr), MARLIN_OK);
  return mm::stream(made);
}

inline marlin_gemm_desc gemm_desc(const mm::weights& w, const Matrix& a, const Matrix& c) {
  auto d = mm::make<marlin_gemm_desc>();
  d.weights = w.get();
  d.a = a.view;
  d.c = c.view;
  return d;
}

/// What the stream records for these products, which are one call.
inline std::vector<Command> recorded(World& world, const mm::stream& stream, const std::vector<marlin_gemm_desc>& descs) {
  std::vector<const marlin_gemm_desc*> all;
  for (const marlin_gemm_desc& each : descs) all.push_back(&each);
  world.record.take();
  if (descs.size() == 1)
    EXPECT_OK(marlin_gemm, stream.get(), all[0]);
  else
    EXPECT_OK(marlin_gemm_many, stream.get(), all.data(), static_cast<uint32_t>(all.size()));
  return world.record.take();
}

/// "dispatch NAME", "barrier", ... of what was recorded.
inline std::vector<std::string> outline(const std::vector<Command>& commands) {
  std::vector<std::string> lines;
  for (const Command& c : commands) lines.push_back(c.kernel.empty() ? c.what : c.kernel);
  return lines;
}
using Lines = std::vector<std::string>;

template <class T>
T value_of(const Command& command, uint32_t index) {
  T v{};
  const auto& bytes = command.arguments.at(index).value;
  EXPECT_EQ(bytes.size(), sizeof v);
  std::memcpy(&v, bytes.data(), std::min(sizeof v, bytes.size()));
  return v;
}

/// That argument `index` is `buffer` from `offset` on.
inline void expect_bound(const Command& command, uint32_t index, const dv::Buffer* buffer, uint64_t offset) {
  ASSERT_TRUE(command.arguments.contains(index)) << command.kernel << " has no argument " << index;
  EXPECT_EQ(command.arguments.at(index).buffer, buffer) << command.kernel << " argument " << index;
  EXPECT_EQ(command.arguments.at(index).offset, offset) << command.kernel << " argument " << index;
}

/// The address of an argument.
inline uint64_t place_of(const Command& command, uint32_t index) {
  const Bound& bound = command.arguments.at(index);
  return bound.buffer->address() + bound.offset;
}

}  // namespace device_test
