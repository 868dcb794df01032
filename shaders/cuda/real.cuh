// Weights that need float32: the numbers of codebooks, and floats as they are. Each is the sum of
// pieces of 16 bits, exactly (numbers.cuh), and h[p][t] holds piece p of both halves of step t.
// ../common/layout.h has the layouts.
#pragma once
#include "decode.cuh"

struct RealCodes : AnyCodes {
  static constexpr bool kIntegers = false, kReal = true;
};

/// Writes the bfloat16 pieces of the two numbers of step t.
template <int PIECES>
__device__ inline void write_pieces(float low, float high, int t, u32 (&h)[PIECES][4]) {
  const Bf16Pieces first(low), second(high);
  UNROLL for (int p = 0; p < PIECES; p++) h[p][t] = first.piece[p] | second.piece[p] << 16;
}

/// Indices of 16 float32 numbers. Lane i and lane 16 + i hold number i. A code takes two
/// shuffles: the first two pieces are in one register.
struct Lut4 : RealCodes {
  template <class>
  static constexpr int kPieces = Bf16Pieces::kCount;

  __device__ Lut4(const void* codebook, int lane) {
    const Bf16Pieces number(static_cast<const float*>(codebook)[lane % 16]);
    leading_ = number.piece[0] | number.piece[1] << 16;
    last_ = number.piece[2];
  }
  __device__ void decode(Bf16, const u32 (&word)[1], u32 (&h)[3][4]) const {
    UNROLL for (int t = 0; t < 4; t++) {
      const int low = int(word[0] >> (8 * t)), high = int(word[0] >> (8 * t + 4));
      const u32 first = number(leading_, low), second = number(leading_, high);
      h[0][t] = __byte_perm(first, second, 0x5410);
      h[1][t] = __byte_perm(first, second, 0x7632);
      h[2][t] = __byte_perm(number(last_, low), number(last_, high), 0x5410);
    }
  }

 private:
  __device__ static u32 number(u32 of_lane, int code) {
    return __shfl_sync(0xFFFFFFFFu, of_lane, code, 16);  // takes the low four bits of the code
  }
  u32 leading_, last_;
};

/// The same for weights that may be rounded to 16 bits (MARLIN_COMPUTE_W16): a byte is looked up as
/// a pair of rounded numbers, in a table of each lane's own, so that no two lanes meet in a bank.
/// The table begins at byte PLACE of the block's dynamic shared memory.
template <int PLACE>
struct LookedUpPairs : AnyCodes {
  static constexpr bool kIntegers = false;
  static constexpr int kEntries = 256, kTableBytes = kPairTableBytes;

  /// Makes the table. All threads of the block call it, and wait for each other before they look
  /// up.
  template <class Number>
  __device__ static void make_table(const float* codebook) {
    for (int i = int(threadIdx.x); i < kEntries * 32; i += int(blockDim.x)) {
      const int entry = i / 32;
      const u32 pair = Number::round(codebook[entry % 16], codebook[entry / 16]);
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(table() + 4 * i), "r"(pair) : "memory");
    }
  }
  template <class Number>
  __device__ static void decode(Number, const u32 (&word)[1], u32, u32 (&h)[4]) {
    const u32 of_lane = table() + 4 * (threadIdx.x % 32);
    UNROLL for (int t = 0; t < 4; t++) {
      constexpr u32 kEntry = (kEntries - 1) << 7;  // its bytes are those of 32 lanes
      const u32 entry = (t == 0 ? word[0] << 7 : word[0] >> (8 * t - 7)) & kEntry;
      asm("ld.shared.u32 %0, [%1];" : "=r"(h[t]) : "r"(of_lane + entry));
    }
  }

 private:
  __device__ static u32 table() {
    extern __shared__ __align__(128) unsigned char dynamic[];
    return u32(__cvta_generic_to_shared(dynamic)) + PLACE;
  }
};

/// Floats of 16 bits: those of the activations are one piece. bfloat16 holds float16 in two.
template <class Own>
struct Floats16 : RealCodes {
  static constexpr int kWords = 4;
  template <class Number>
  static constexpr int kPieces = Number::kMagic == Own::kMagic ? 1 : 2;

  __device__ Floats16(const void*, int) {}
  __device__ void decode(Own, const u32 (&word)[4], u32 (&h)[1][4]) const {
    UNROLL for (int t = 0; t < 4; t++) h[0][t] = word[t];
  }
  __device__ void decode(Bf16, const u32 (&word)[4], u32 (&h)[2][4]) const {
    UNROLL for (int t = 0; t < 4; t++)
        write_pieces(f16_to_float(u16(word[t])), f16_to_float(u16(word[t] >> 16)), t, h);
  }
};

struct Floats32 : RealCodes {
  static constexpr int kWords = 8;
  template <class>
  static constexpr int kPieces = Bf16Pieces::kCount;

  __device__ Floats32(const void*, int) {}
  __device__ void decode(Bf16, const u32 (&word)[8], u32 (&h)[3][4]) const {
    UNROLL for (int t = 0; t < 4; t++)
        write_pieces(__uint_as_float(word[2 * t]), __uint_as_float(word[2 * t + 1]), t, h);
  }
};
