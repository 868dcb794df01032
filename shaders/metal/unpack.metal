// Unpacks weights to their exact values, rounded once to float32 and then to the type of the
// output: whole matrices, or the rows of an embedding. Each unit of eight slots of one row has one
// thread. Every number is built from integers (exact.h).
#include "../common/exact.h"
#include "epilogue.h"
#include "scales.h"

constant uint kQuietNaN = 0x7FC00000u;

/// The zero of tile i of the rows 8 i + r, which shares its byte with the scale, as float32.
static inline float joined_zero(const device void* scales, const device void* zeros, long row_block,
                                int quads, int group, ushort r, ushort i) {
  const int groups_shift = kSuperBlockShift - group_shift;
  const uchar both = ((const device uchar*)scales)[4 * (row_block * row_block_quads(quads) +
                                                        two_level_quad_at(group, r, group_shift)) +
                                                   i];
  const half factor =
      ((const device half*)zeros)[2 * (row_block * (quads >> groups_shift) * kFactorWords +
                                       joined_factor_quad_at(group >> groups_shift, r)) +
                                  i];
  return float(both >> 4) * float(factor);
}

/// The scale or zero of tile i of the rows 8 i + r, of two levels, as float32.
static inline float two_level_value(const device void* from, long row_block, int quads, int group,
                                    ushort r, ushort i) {
  const long first = row_block * row_block_quads(quads);  // in uint32
  const int super_block = group >> (kSuperBlockShift - group_shift);
  const char integer =
      ((const device char*)from)[4 * (first + two_level_quad_at(group, r, group_shift)) + i];
  const half factor =
      ((const device half*)from)[2 * (first + factor_quad_at(super_block, r, group_shift)) + i];
  return float(joined ? char(integer & 15) : integer) * float(factor);
}

/// A nested scale, rounded to float32.
static inline uint nested_bits(const device void* scales, long at, const device void* codebook,
                               int quads, int quad, long row_block, ushort r, ushort i) {
  const NestedScales levels(codebook, quads, row_block, r);
  const float unit = levels.unit(((const device uchar*)scales)[at]),
              factor = levels.factors(quad)[i], offset = levels.offsets()[i];
  const uint bits[3] = {as_type<uint>(unit), as_type<uint>(factor), as_type<uint>(offset)};
  if (!is_finite_bits(bits[0]) || !is_finite_bits(bits[1]) || !is_finite_bits(bits[2]))
    return as_type<uint>(unit * factor + offset);
  return round_to_bits(add(multiply(exact_of(bits[0]), exact_of(bits[1])), exact_of(bits[2])));
}

/// The bits of scale or zero number `at`, as float32; `type` is a MarlinScaleType.
static inline uint scale_bits(const device void* from, long at, uint type, int shift) {
  switch (type) {
    case kScaleF32:
      return ((const device uint*)from)[at];
    case kScaleF16:
      return as_type<uint>(float(((const device half*)from)[at]));
    case kScaleBf16:
      return uint(((const device ushort*)from)[at]) << 16;
    case kScaleE4m3: {
      const uint byte = ((const device uchar*)from)[at];
      return (byte & 0x7F) == 0x7F ? kQuietNaN
                                   : as_type<uint>(float(e4m3_pair(byte).x) * kE4m3Range);
    }
    default: {
      const int stored = ((const device uchar*)from)[at];
      if (stored == 0) return kQuietNaN;
      const int e = stored - shift;
      return e == 0 ? 0x00400000u : uint(e) << 23;
    }
  }
}

/// Turns finite numbers other than 0 into +-1, so that no number flushes on the way to an infinity
/// or a NaN.
static inline float shape_of(uint bits) {
  if (!is_finite_bits(bits) || (bits & 0x7FFFFFFFu) == 0) return as_type<float>(bits);
  return bits >> 31 != 0 ? -1.0f : 1.0f;
}

struct Group {
  uint scale, zero;  // bits; zero of additive zeros only
  float point;       // of integer zero points
};

constant float kE4m3NaN = 480.0f;  // as decode() has the byte of NaN

/// A decoded code, with as few bits as it needs: 8 at most, unless it is `real`.
static inline Exact exact_code(float number, bool real) {
  const Exact all = exact_of(as_type<uint>(number));
  if (all.mantissa == 0) return all;
  const int shift = real ? int(ctz(all.mantissa)) : 16;
  return Exact{all.negative, all.mantissa >> shift, all.exponent + shift};
}

/// (number * scale + zero) * tensor, rounded once. `number` is a code less its zero point; `real`
/// codes have no tensor scale.
static inline uint value_bits(float number, bool real, thread const Group& group, RowOrigin row) {
  const uint tensor = as_type<uint>(row.tensor);
  const bool no_tensor = row.tensor == 1.0f;
  if (real && !is_finite_bits(as_type<uint>(number)))
    return as_type<uint>(number * shape_of(group.scale));
  if (!is_finite_bits(group.scale) || (additive && !is_finite_bits(group.zero)) ||
      !is_finite_bits(tensor) || (row.divide != 0 && row.tensor == 0.0f)) {
    float v = number * shape_of(group.scale);
    if (additive) v += shape_of(group.zero);
    if (!no_tensor) v = row.divide != 0 ? v / shape_of(tensor) : v * shape_of(tensor);
    return as_type<uint>(v);
  }
  Exact v = multiply(exact_code(number, real), exact_of(group.scale));
  if (additive) v = add(v, exact_of(group.zero));
  if (!no_tensor) v = row.divide != 0 ? divide(v, exact_of(tensor)) : multiply(v, exact_of(tensor));
  return round_to_bits(v);
}

static inline void write_bits(device void* out, long at, uint bits) {
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  if (output_type == kFloat32) {
    ((device uint*)out)[at] = bits;
  } else if (output_type == kFloat16) {
    ((device half*)out)[at] =
        half(as_type<float>(bits));  // float32's subnormals are 0 in half, flushed or not
  } else {
    ((device ushort*)out)[at] =
        ushort(nan ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
}

static inline uint positions_of(uint4, ushort) { return 0; }
static inline uint positions_of(ByteSpan::Unit, ushort) { return 0; }
static inline uint positions_of(PlaneSpan::Unit, ushort) { return 0; }
static inline uint positions_of(FloatSpan::Unit, ushort) { return 0; }
static inline uint positions_of(SparseSpan::Unit unit, ushort i) { return unit.positions[i]; }

template <typename Codes>
kernel void unpack(const device uint4* codes [[buffer(MARLIN_BUFFER_CODES)]],
                   const device void* scales [[buffer(MARLIN_BUFFER_SCALES)]],
                   const device void* zeros
                   [[buffer(MARLIN_BUFFER_ZEROS), function_constant(has_zeros)]],
                   const device RowOrigin* origins
                   [[buffer(MARLIN_BUFFER_ROWS), function_constant(has_row_factor)]],
                   device void* out [[buffer(MARLIN_BUFFER_OUT)]],
                   const device int* row_list
                   [[buffer(MARLIN_BUFFER_ROW_LIST), function_constant(has_row_list)]],
                   const device int* slot_to_k
                   [[buffer(MARLIN_BUFFER_SLOT_TO_K), function_constant(has_slot_to_k)]],
                   constant UnpackArgs& args [[buffer(MARLIN_BUFFER_UNPACK_ARGS)]],
                   uint2 at [[thread_position_in_grid]]) {
  const int slot = at.x * kUnitSlots, item = at.y;
  if (slot >= args.slots || item >= args.count) return;
  const long asked = has_row_list ? long(row_list[item * args.id_stride]) : args.first_row + item;
  const bool exists = asked >= 0 && asked < args.n;
  const int row = exists ? int(asked) : 0, row_block = row / kRowBlock;
  const ushort r = row % 8, i = row % kRowBlock / 8;

  const int full = args.slots / kBlockSlots;
  const int b = slot / kBlockSlots < full
                    ? slot / kBlockSlots
                    : full + int((args.slots & 64) != 0 && slot >= full * kBlockSlots + 64);
  const int k0 = block_begin(args.slots, b);
  const ushort units = block_slots(args.slots, b) / kLanes,
               unit_in_block = (slot - k0) / kUnitSlots;
  typename Codes::Span span;
  span.open(codes + row_block * Codes::Span::words(args.slots) + Codes::Span::words(k0), units,
            lane_at(r, unit_in_block / units));
  const typename Codes::Span::Unit unit = span.unit(unit_in_block % units);

  const int quad = group_shift == 7 ? (slot >> 7) / args.quad_blocks : slot >> group_shift;
  const long first = long(row_block) * args.quads * kRowBlock + i;  // of the row block and tile
  const long scale_place = first + 4 * scale_quad_at(quad, r, scale_pairs);
  const long zero_place = first + 4 * scale_quad_at(quad, r, zero_pairs);
  RowOrigin origin = {1.0f, 0, 0};
  if (has_row_factor) origin = origins[row];
  Group group;
  group.zero = 0;
  if (two_level)
    group.scale = as_type<uint>(two_level_value(scales, row_block, args.quads, quad, r, i));
  else if (nested)
    group.scale = nested_bits(scales, scale_place, zeros, args.quads, quad, row_block, r, i);
  else
    group.scale = scale_bits(scales, scale_place, scale_type, origin.shift);
  if (joined)
    group.zero = as_type<uint>(-joined_zero(scales, zeros, row_block, args.quads, quad, r, i));
  else if (zero_kind == kZeroTwoLevel)
    group.zero = as_type<uint>(-two_level_value(zeros, row_block, args.quads, quad, r, i));
  else if (additive)
    group.zero = scale_bits(zeros, zero_place, zero_kind - kZeroF32, 0);
  group.point = additive ? 0 : Codes::zero_point();
  if (zero_kind == kZeroInteger) group.point = ((const device uchar*)zeros)[zero_place];
  typename Codes::Pair h[4];
  decode_pairs<Codes>(unit, i, TableInMemory{(const device float*)zeros}, h);
  for (ushort e = 0; e < kUnitSlots; e++) {
    const int k = has_slot_to_k ? slot_to_k[slot + e] : slot + e;
    if (k < 0 || k >= args.k) continue;
    const ushort t = e % 4, p = e / 4;
    // A float may be subnormal, and no operation may flush it.
    const float decoded = float(p == 0 ? h[t].x : h[t].y),
                number = Codes::kReal ? decoded : decoded * Codes::range(t);
    uint bits =
        value_bits(Codes::kReal ? number : number - group.point, Codes::kReal, group, origin);
    if (code_form == kFormE4m3 && fabs(number) == kE4m3NaN) bits = kQuietNaN;
    if (Codes::kSparse && !is_kept(positions_of(unit, i), t, p)) bits = 0;
    write_bits(out, item * args.ld + k, exists ? bits : kQuietNaN);
  }
}

#define UNPACK(name, Codes) \
  template [[host_name("unpack_" #name)]] [[kernel]] decltype(unpack<Codes>) unpack<Codes>;
#ifndef MARLIN_UNPACKED
#define MARLIN_UNPACKED(X) \
  X(fp4, Fp4)              \
  X(u4, U4)                \
  X(i8, I8)                \
  X(planes, Planes)        \
  X(fp4_sparse, Fp4Sparse) X(u4_sparse, U4Sparse) X(lut4, Lut4) X(floats, Floats)
#endif
MARLIN_UNPACKED(UNPACK)
