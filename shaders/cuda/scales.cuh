// Quads of group scales and zeros (../common/layout.h): those of a chunk of units are loaded
// together, before they are needed. A lane's quad has the rows 8 i + lane / 4 of its row block, i =
// 0..3, which are the rows of its sums.
#pragma once
#include "numbers.cuh"

/// What is loaded ahead of a chunk of units: two words a unit.
template <int UNITS>
struct RawQuads {
  u32 words[2 * UNITS];
};

template <int SCALE, int SHIFT>
struct Quads {
  /// `type` is a MarlinScaleType.
  __device__ Quads(const void* all, u32 scale_type, u32 group_shift, int blocks,
                   long long row_block, int quads, int lane)
      : bytes(static_cast<const unsigned char*>(all)),
        type{scale_type},
        shift{group_shift},
        quad_blocks(blocks),
        first(row_block * quads * 8),
        row(lane / 4) {}

  /// Loads quads of the chunk that begins at unit `u`, as far as they fit.
  template <int UNITS>
  __device__ void load(int u, int units, RawQuads<UNITS>& to) const {
    u32(&raw)[2 * UNITS] = to.words;
    const u32 size = element_bytes();
    UNROLL for (int w = 0; w < UNITS; w++) {
      if (w >= units) continue;
      if (shift == 7 && w > 0) {
        raw[2 * w] = raw[0];
        raw[2 * w + 1] = raw[1];
        continue;
      }
      const int slot = 32 * (u + w);
      if (size == 1 && shift == 4) {
        const uint2 v = pairs()[(first + scale_quad_at(slot >> 4, row, true)) / 2];
        raw[2 * w] = v.x;
        raw[2 * w + 1] = v.y;
      } else if (size == 1) {
        raw[2 * w] = reinterpret_cast<const u32*>(bytes)[quad_of(slot)];
      } else if (size == 2 && shift != 4) {
        const uint2 v = pairs()[quad_of(slot)];
        raw[2 * w] = v.x;
        raw[2 * w + 1] = v.y;
      }
    }
  }

  __device__ u32 kind() const { return type; }
  /// The bytes of unit w, of its steps 0 and 1 (half 0) or 2 and 3 (half 1). For one-byte types.
  template <int UNITS>
  __device__ u32 four_bytes(const RawQuads<UNITS>& raw, int w, int half) const {
    return shift == 4 ? raw.words[2 * w + half] : raw.words[2 * w];
  }

  /// The numbers of unit u, which is number w of the chunk, and half as above. E8M0 gives 2^14 of
  /// the scale, because FP4 codes are decoded as 2^-14 of their value.
  template <int UNITS>
  __device__ void get(const RawQuads<UNITS>& raw, int u, int w, int half, float (&out)[4]) const {
    if (type == kScaleE8m0) {
      const u32 e = four_bytes(raw, w, half);
      UNROLL for (int i = 0; i < 4; i++) out[i] = e8m0_factor(e >> (8 * i));
    } else if (type == kScaleE4m3) {
      const u32 e = four_bytes(raw, w, half);
      UNROLL for (int i = 0; i < 4; i++) out[i] = e5m3_value(e >> (8 * i) & 0xFF);
    } else if (type == kScaleF32) {
      const uint4 v = reinterpret_cast<const uint4*>(bytes)[quad_of(32 * u + 16 * half)];
      out[0] = __uint_as_float(v.x);
      out[1] = __uint_as_float(v.y);
      out[2] = __uint_as_float(v.z);
      out[3] = __uint_as_float(v.w);
    } else {
      uint2 v = make_uint2(raw.words[2 * w], raw.words[2 * w + 1]);
      if (shift == 4) v = pairs()[quad_of(32 * u + 16 * half)];
      const u32 words[2] = {v.x, v.y};
      UNROLL for (int i = 0; i < 4; i++) {
        const u16 bits = u16(words[i / 2] >> (16 * (i % 2)));
        out[i] = type == kScaleF16 ? f16_to_float(bits) : bf16_to_float(bits);
      }
    }
  }

 private:
  __device__ u32 element_bytes() const {
    if (type >= kScaleE8m0) return 1;
    return type == kScaleF32 ? 4 : 2;
  }
  __device__ const uint2* pairs() const { return reinterpret_cast<const uint2*>(bytes); }
  __device__ long long quad_of(int slot) const {
    int group = slot >> shift;
    if (shift == 7 && quad_blocks != 1) group /= quad_blocks;
    return first + scale_quad_at(group, row, false);
  }

  const unsigned char* bytes;
  const Uniform<SCALE> type;
  const Uniform<SHIFT> shift;
  int quad_blocks;
  long long first;  // quad of the row block
  int row;
};
