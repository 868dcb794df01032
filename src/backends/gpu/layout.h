// The parts of one packed weight matrix in one block of memory. shaders/common/layout.h defines the
// order inside the parts.
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/bits.h"
#include "formats/weights.h"
#include "shaders/common/arguments.h"
#include "shaders/common/layout.h"

namespace metal_marlin::gpu {

/// The codes that a kernel is compiled for. Zeros are a function constant, so that kinds of codes
/// (formats/code_kind.h) that differ in their zeros share a kernel.
/// Kernels of Metal are told the form of bytes and floats (i8, floats); CUDA's are compiled for
/// each.
enum class KernelCodes : uint8_t {
  fp4,
  u4,
  i8,
  fp4_sparse,
  u4_sparse,
  planes,
  u8,
  e4m3,
  lut4,
  floats,
  f32,
  f16,
  bf16
};
inline constexpr const char* kKernelCodesNames[] = {
    "fp4",  "u4",   "i8",     "fp4_sparse", "u4_sparse", "planes", "u8",
    "e4m3", "lut4", "floats", "f32",        "f16",       "bf16"};
inline constexpr int kKernelCodes = std::size(kKernelCodesNames);
/// The name of the kind in names of kernels.
constexpr const char* kernel_codes_name(KernelCodes kind) {
  return kKernelCodesNames[static_cast<int>(kind)];
}
constexpr bool are_floats(KernelCodes kind) { return kind >= KernelCodes::floats; }
constexpr bool are_bytes(KernelCodes kind) {
  return kind == KernelCodes::i8 || kind == KernelCodes::u8 || kind == KernelCodes::e4m3;
}
/// Floats of 16 bits, by CUDA's names.
constexpr bool holds_halves(KernelCodes kind) {
  return kind == KernelCodes::f16 || kind == KernelCodes::bf16;
}
/// Numbers that need float32: those of codebooks, and floats as they are.
constexpr bool is_real(KernelCodes kind) { return kind >= KernelCodes::lut4; }

/// Which slots the lanes of a packed block hold (shaders/common/layout.h).
enum class SlotOrder : uint8_t {
  simdgroup,  ///< lane j a quarter of the block: operands of 8x8 simdgroup matrices
  mma,        ///< lane j slots of every unit of 32: operands of mma.m16n8k16 and wgmma
};

inline constexpr int64_t kCodebookBytes = 16 * sizeof(float);
/// Of packed weights in files, for both orders.
inline constexpr uint32_t kPackedVersion = 1;
/// Parts begin at multiples of this, so that each may be bound as a buffer of its own.
inline constexpr uint64_t kPartAlign = 256;

struct RowBlockLayout {
  int64_t n = 0, k = 0;  // of the file
  int64_t slots = 0;     // padded K, a multiple of kTailSlots
  KernelCodes codes = KernelCodes::u4;
  int code_bits = 4;
  uint32_t code_form = kFormOwn;  // enum MarlinCodeForm
  SlotOrder order = SlotOrder::simdgroup;
  int slot_group = 32;       // slots that a quad of scales stands for: 16, 32, 64 or 128
  int64_t quad_blocks = 1;   // with slot_group 128: blocks that share a quad
  int64_t quads = 0;         // a row block
  int64_t factor_quads = 0;  // of nested scales: quads that share a factor
  ScaleType scale_type = ScaleType::f16;  // as stored: E8M0 of very wide rows becomes F32
  ZeroKind zero_kind = ZeroKind::none;
  ScaleType zero_type = ScaleType::f16;
  MarlinRowFactor row_factor = kRowFactorNone;
  bool permuted = false;  // slot_to_k is there
  /// Of float32 scales in the order of mma: each is one of SteadyScales (formats/steady_scales.h).
  bool steady_scales = false;
  // Byte offsets of the parts, and the end of the last part.
  uint64_t scales_at = 0, zeros_at = 0, factors_at = 0, origins_at = 0, slot_to_k_at = 0, bytes = 0;

  bool operator==(const RowBlockLayout&) const = default;
  int64_t row_blocks() const { return ceil_div(n, kRowBlock); }
  /// The bytes of the codes as floats of 16 bits.
  int64_t halves_bytes() const { return row_blocks() * kRowBlock * slots * 2; }
  /// What `expand` makes of the codes, scales and zeros. The other parts stay where they are.
  RowBlockLayout as_halves(KernelCodes halves) const {
    RowBlockLayout of = *this;
    of.codes = halves;
    of.code_bits = 16;
    of.code_form = kFormOwn;
    of.slot_group = kBlockSlots;
    of.scale_type = ScaleType::f32;  // which no kernel reads
    of.zero_kind = ZeroKind::none;
    return of;
  }
  bool sparse() const {
    return codes == KernelCodes::fp4_sparse || codes == KernelCodes::u4_sparse;
  }
  /// The uint32 words of one lane and tile in a block of this many slots.
  int64_t words(int64_t block_slots) const {
    const int64_t units = block_slots / kLanes;
    if (are_bytes(codes)) return 2 * units;
    if (are_floats(codes)) return units * (code_bits / 4);
    if (codes == KernelCodes::planes) return plane_words(code_bits, static_cast<marlin_int>(units));
    return sparse() && units == 4 ? 3 : units;
  }
  int64_t row_block_code_bytes() const {
    if (order == SlotOrder::mma && sparse()) return slots / kMmaSlots * kMmaSparseWords * 4;
    int64_t total = slots / kBlockSlots * words(kBlockSlots);
    if ((slots & 64) != 0) total += words(64);
    if ((slots & 32) != 0) total += words(32);
    return total * kLanes * 16;
  }
  int64_t zero_bytes() const {
    if (zero_kind == ZeroKind::none) return 0;
    return zero_kind == ZeroKind::integer ? 1 : static_cast<int64_t>(scale_bytes(zero_type));
  }
  bool two_level() const { return is_two_level(scale_type); }
  bool nested() const { return scale_type == ScaleType::nested; }
  /// The float32 numbers of nested scales that a row block has, after the codebook.
  int64_t nested_numbers() const { return kRowBlock * (2 + (quads - 1) / factor_quads); }
  /// The bytes of a codebook, and of what follows it.
  int64_t codebook_bytes() const {
    if (!nested()) return kCodebookBytes;
    return int64_t{sizeof(float)} * (kNestedAt + row_blocks() * nested_numbers());
  }
  /// The bytes of the scales or zeros of a row block, which have elements of this size.
  int64_t row_block_record_bytes(int64_t element) const {
    if (!two_level() || element == 0) return quads * kRowBlock * element;
    const auto shift = static_cast<marlin_int>(group_shift_constant());
    return (quads << shift >> kSuperBlockShift) * super_block_words(shift) * 4;
  }
  /// Whether a byte holds the integers of a scale and a zero.
  bool joined() const {
    return scale_type == ScaleType::u4 && zero_kind == ZeroKind::additive &&
           zero_type == ScaleType::u4;
  }
  /// The bytes of the zeros of a row block.
  int64_t row_block_zero_bytes() const {
    const auto shift = static_cast<marlin_int>(group_shift_constant());
    if (joined()) return (quads << shift >> kSuperBlockShift) * kFactorWords * 4;
    return row_block_record_bytes(zero_bytes());
  }
  /// Whether there are row factors and origins. CUDA's order always has them.
  bool has_row_records() const { return order == SlotOrder::mma || row_factor != kRowFactorNone; }
  /// What plans depend on besides the kind of the weights and their slots: the scales and the order
  /// of columns, as they are stored.
  uint32_t plan_bits() const {
    return static_cast<uint32_t>(scale_type) | static_cast<uint32_t>(row_factor) << 8 |
           (permuted ? kPermutedBit : 0) | (steady_scales ? kSteadyBit : 0);
  }
  static constexpr uint32_t kScaleBits = 0xFF, kPermutedBit = 1 << 16, kSteadyBit = 1 << 17;
  /// The values of the function constants that follow from the weights.
  uint32_t scale_constant() const {
    if (nested()) return kScaleNested;
    return two_level() ? uint32_t{kScaleTwoLevel} : static_cast<uint32_t>(scale_type);
  }
  uint32_t zero_constant() const {
    if (codes == KernelCodes::lut4) return kZeroCodebook;
    if (zero_kind == ZeroKind::none) return kZeroNone;
    if (joined()) return kZeroJoined;
    if (zero_kind == ZeroKind::additive && is_two_level(zero_type)) return kZeroTwoLevel;
    return zero_kind == ZeroKind::integer ? uint32_t{kZeroInteger}
                                          : uint32_t{kZeroF32} + static_cast<uint32_t>(zero_type);
  }
  uint32_t group_shift_constant() const {
    return static_cast<uint32_t>(std::countr_zero(static_cast<uint32_t>(slot_group)));
  }
};
static_assert(static_cast<int>(ScaleType::f32) == kScaleF32 &&
              static_cast<int>(ScaleType::f16) == kScaleF16 &&
              static_cast<int>(ScaleType::bf16) == kScaleBf16 &&
              static_cast<int>(ScaleType::e8m0) == kScaleE8m0 &&
              static_cast<int>(ScaleType::e4m3) == kScaleE4m3);
static_assert(MARLIN_EPILOGUE_SILU == kEpilogueSilu &&
              MARLIN_EPILOGUE_GELU_TANH == kEpilogueGeluTanh &&
              MARLIN_EPILOGUE_GELU_ERF == kEpilogueGeluErf &&
              MARLIN_EPILOGUE_SWIGLU == kEpilogueSwiglu &&
              MARLIN_EPILOGUE_GEGLU_TANH == kEpilogueGegluTanh &&
              MARLIN_EPILOGUE_SITU == kEpilogueSitu);

}  // namespace metal_marlin::gpu
