// Which kernel of a GPU multiplies a case.
#pragma once

#include <string>

#include "backends/gpu/kernels.h"
#include "product_factors.h"
#include "trial.h"

namespace trial {

/// Codes that Metal's kernels read in planes.
inline bool has_planes(const Case& c) {
  const int bits = oracle::code_bits(c.format);
  return bits != 4 && bits < 8;
}

/// Codes that Metal's kernels look up in a codebook of 16 numbers.
inline bool has_codebook(const Case& c) { return c.format == MARLIN_FORMAT_IQ4 || c.format == MARLIN_FORMAT_NF4; }

/// Whether the format of a row of choices has this. A format that is not chosen yet has nothing.
inline bool format_has(const covering::Row& row, bool (*has)(const Case&)) {
  Case c;
  if (row[kFormat] >= 0) c.format = kFormats[row[kFormat]].format;
  return row[kFormat] >= 0 && has(c);
}

/// Whether a kernel takes what a row has chosen so far. Tensor operations take 16-bit activations, and no numbers of codebooks;
/// those on registers take codes of whole words, and groups of 32 and more in their own order.
inline bool takes(const metal_marlin::gpu::ProductKernel& kernel, const covering::Row& row) {
  if ((kernel.features & metal_marlin::gpu::kTensor) == 0) return true;
  if (row[kCompute] > 0 || row[kA] == 0 || format_has(row, has_codebook)) return false;
  const auto is_nvfp4 = [](const Case& c) { return c.format == MARLIN_FORMAT_NVFP4; };
  const bool one_short_group = row[kGroup] == 5 && row[kK] <= 1;  // of the whole row, which may be 16 slots
  return !kernel.pattern.ends_with("_nax") || (!format_has(row, has_planes) && !format_has(row, is_nvfp4) && row[kGroup] != 0 &&
                                               !one_short_group && row[kOrder] <= 1 && row[kSparse] <= 0);
}

/// The kernel of this row that takes the case. Rows without kernels for planes, and for IQ4, take codes that are widened to 4
/// or 8 bits. Rows without kernels for UINT8 and FP8 alone have those of all bytes.
inline std::string kernel_name(const metal_marlin::gpu::ProductKernel& kernel, const Case& c) {
  namespace mm = metal_marlin;
  using mm::gpu::KernelCodes;
  const bool bytes = oracle::code_bits(c.format) > 4 || c.format == MARLIN_FORMAT_IQ4;
  const bool fp4 = c.format == MARLIN_FORMAT_FP4 || c.format == MARLIN_FORMAT_MXFP4 || c.format == MARLIN_FORMAT_NVFP4;
  const KernelCodes codes = bytes ? KernelCodes::i8
                            : fp4 ? (c.sparse ? KernelCodes::fp4_sparse : KernelCodes::fp4)
                                  : (c.sparse ? KernelCodes::u4_sparse : KernelCodes::u4);
  const bool takes_e4m3 =
      c.format == MARLIN_FORMAT_FP8 && kernel.compiled_for(KernelCodes::e4m3, mm::gpu::ActivationKind::e4m3);
  const auto activation =
      c.compute == MARLIN_COMPUTE_INT8 && !oracle::takes_float_activations(c.format) ? mm::gpu::ActivationKind::i8
      : c.compute == MARLIN_COMPUTE_FP8 ? (takes_e4m3 ? mm::gpu::ActivationKind::e4m3 : mm::gpu::ActivationKind::bf16)
      : c.a_type == MARLIN_F32          ? mm::gpu::ActivationKind::f32
      : c.a_type == MARLIN_F16          ? mm::gpu::ActivationKind::f16
                                        : mm::gpu::ActivationKind::bf16;
  const KernelCodes own = c.format == MARLIN_FORMAT_UINT8 ? KernelCodes::u8 : KernelCodes::e4m3;
  const std::string_view of_bytes = kernel.name(own, activation);
  const bool has_own = (c.format == MARLIN_FORMAT_UINT8 || c.format == MARLIN_FORMAT_FP8) && !of_bytes.empty();
  if (has_own) return std::string(of_bytes);
  const std::string_view planes = kernel.name(KernelCodes::planes, activation),
                         lut4 = kernel.name(KernelCodes::lut4, activation);
  const bool widens = planes.empty() && c.format == MARLIN_FORMAT_IQ4;
  if (has_codebook(c) && !widens && !lut4.empty()) return std::string(lut4);
  return std::string(has_planes(c) && !planes.empty() ? planes : kernel.name(codes, activation));
}

}  // namespace trial
