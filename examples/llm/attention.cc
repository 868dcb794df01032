#include "attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <new>
#include <numbers>
#include <numeric>

#include "vector_clones.h"

namespace llm {
namespace {

constexpr int64_t kBlock = KeyValueCache::kBlock;
constexpr int64_t kLanes = KeyValueCache::kLanes;
static_assert(kBlock == 2 * kLanes);
// Query rows that share one reading of the cache; their states stay in the first cache.
constexpr int64_t kRows = 16;

// e^x for x <= 0 to about 2 ulp: 2^n from the exponent's bits, the rest, at most ln 2 / 2, from its
// Taylor series. std::exp is a call, and would keep the loop around it from becoming vector code.
inline float exp_of_negative(float x) {
  x = std::max(x, -87.0f);
  const float n = x * 1.44269504f + 12582912.0f - 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const float r =
      x - n * 0.693359375f + n * 2.12194440e-4f;  // ln 2 in two parts, the first of few bits
  const float e =
      1 + r * (1 + r * (1.0f / 2 +
                        r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
  return e * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// What one query has seen so far: softmax without a second pass, rescaled whenever a larger score
// comes.
struct State {
  float max = -std::numeric_limits<float>::infinity(), sum = 0;
  float* out;
};

// One query, the positions [begin, end) of a block, whose keys [size][32] and values [32][size] are
// floats. Sums stay in a few registers: 32 scores, then 16 elements of the result at a time.
LLM_VECTOR_CLONES void attend_block(const float* q, const float* keys, const float* values,
                                    int64_t size, int64_t begin, int64_t end, float scale,
                                    State& state) {
  float scores[kBlock] = {};
  for (int64_t d = 0; d < size; ++d) {
    for (int64_t p = 0; p < kBlock; ++p) scores[p] += q[d] * keys[d * kBlock + p];
  }
  for (int64_t p = 0; p < kBlock; ++p)
    scores[p] = p >= begin && p < end ? scores[p] * scale : -std::numeric_limits<float>::infinity();
  float max[kLanes], sum[kLanes] = {};
  for (int64_t j = 0; j < kLanes; ++j) max[j] = std::max(scores[j], scores[j + kLanes]);
  const float largest = std::max(state.max, *std::max_element(max, max + kLanes));
  for (int64_t p = 0; p < kBlock; ++p)
    scores[p] = p >= begin && p < end ? exp_of_negative(scores[p] - largest) : 0.0f;
  for (int64_t j = 0; j < kLanes; ++j) sum[j] = scores[j] + scores[j + kLanes];
  const float rescale = std::exp(state.max - largest);
  for (int64_t d = 0; d < size; d += kLanes) {
    float out[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) out[j] = state.out[d + j] * rescale;
    for (int64_t p = 0; p < kBlock; ++p) {
      for (int64_t j = 0; j < kLanes; ++j) out[j] += scores[p] * values[p * size + d + j];
    }
    for (int64_t j = 0; j < kLanes; ++j) state.out[d + j] = out[j];
  }
  state.max = largest;
  state.sum = std::accumulate(sum, sum + kLanes, state.sum * rescale);
}

}  // namespace

Rotation::Rotation(int64_t positions, int64_t head_size, double base, const Scaling& scaling)
    : half_(head_size / 2) {
  const auto half = static_cast<double>(half_);
  // The pair that turns so often in the context.
  const auto pair_of = [&](double turns) {
    const double longest = static_cast<double>(scaling.yarn_context) / (2 * std::numbers::pi);
    return half * std::log(longest / turns) / std::log(base);
  };
  const bool yarn = scaling.yarn_context > 0;
  const double first = yarn ? std::max(pair_of(Scaling::kFastTurns), 0.0) : 0,
               last = yarn ? std::min(pair_of(Scaling::kSlowTurns), 2 * half - 1) : 0,
               size = yarn ? 1 + 0.1 * std::log(scaling.factor) : 1;
  std::vector<double> speeds;
  for (int64_t i = 0; i < half_; ++i) {
    double speed = std::pow(base, -static_cast<double>(i) / half);
    if (!scaling.factors.empty()) speed /= double{scaling.factors[static_cast<size_t>(i)]};
    const double divided =
        yarn ? std::clamp((static_cast<double>(i) - first) / std::max(last - first, 1e-3), 0.0, 1.0)
             : 1;
    speeds.push_back(speed * (1 - divided) + speed / scaling.factor * divided);
  }
  for (int64_t position = 0; position < positions; ++position) {
    for (const double speed : speeds) {
      const double angle = static_cast<double>(position) * speed;
      cosines_.push_back(static_cast<float>(size * std::cos(angle)));
      sines_.push_back(static_cast<float>(size * std::sin(angle)));
    }
  }
}

void Rotation::apply(float* x, int64_t heads, int64_t position, bool halves) const {
  const float* const cosine = cosines_.data() + position * half_;
  const float* const sine = sines_.data() + position * half_;
  for (; heads > 0; --heads, x += 2 * half_) {
    for (int64_t i = 0; i < half_; ++i) {
      float& a = x[halves ? i : 2 * i];
      float& b = x[halves ? i + half_ : 2 * i + 1];
      const float turned = a * cosine[i] - b * sine[i];
      b = a * sine[i] + b * cosine[i];
      a = turned;
    }
  }
}

KeyValueCache::KeyValueCache(const Heads& heads, int64_t positions)
    : heads_(heads), blocks_((positions + kBlock - 1) / kBlock) {
  // Zeros: the scores of a block's unused positions are computed as well, and thrown away. From
  // calloc, so that positions of a long context take memory when they are used.
  const auto elements = static_cast<size_t>(heads.key_value * blocks_ * heads.size * kBlock);
  for (Floats* each : {&keys_, &values_}) {
    each->reset(static_cast<float*>(std::calloc(elements, sizeof(float))));
    if (!*each) throw std::bad_alloc();
  }
}

void KeyValueCache::store(int64_t position, const float* keys, const float* values) {
  const int64_t index = position / kBlock, p = position % kBlock;
  for (int64_t head = 0; head < heads_.key_value; ++head) {
    auto* const k = const_cast<float*>(block(keys_, head, index));
    auto* const v = const_cast<float*>(block(values_, head, index));
    for (int64_t d = 0; d < heads_.size; ++d) {
      k[d * kBlock + p] = keys[head * heads_.size + d];
      v[p * heads_.size + d] = values[head * heads_.size + d];
    }
  }
}

void KeyValueCache::attend(const float* q, int64_t q_stride, int64_t first, int64_t rows,
                           int64_t window, const float* sinks, float* out, Pool& pool) const {
  const int64_t size = heads_.size, group = heads_.query / heads_.key_value,
                chunks = (rows + kRows - 1) / kRows;
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  pool.run(static_cast<uint32_t>(heads_.key_value * chunks), [&](uint32_t task) {
    const int64_t head = task % heads_.key_value, begin = task / heads_.key_value * kRows,
                  end = std::min(rows, begin + kRows);
    std::vector<State> states(static_cast<size_t>((end - begin) * group));
    const auto column = [&](int64_t g) { return (head * group + g) * size; };
    const auto oldest = [&](int64_t row) { return std::max<int64_t>(first + row + 1 - window, 0); };
    for (int64_t b = oldest(begin) / kBlock; b * kBlock < first + end; ++b) {
      const float *keys = block(keys_, head, b), *values = block(values_, head, b);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t from = std::max<int64_t>(oldest(row) - b * kBlock, 0),
                      to = std::min(first + row + 1 - b * kBlock, kBlock);
        for (int64_t g = 0; g < group && from < to; ++g) {
          State& state = states[static_cast<size_t>((row - begin) * group + g)];
          state.out = out + row * heads_.query * size + column(g);
          if (b == oldest(row) / kBlock) std::fill_n(state.out, size, 0.0f);
          attend_block(q + row * q_stride + column(g), keys, values, size, from, to, scale, state);
        }
      }
    }
    for (size_t i = 0; i < states.size(); ++i) {
      const State& state = states[i];
      const int64_t g = static_cast<int64_t>(i) % group;
      const float sink = sinks ? std::exp(sinks[head * group + g] - state.max) : 0;
      for (int64_t d = 0; d < size; ++d) state.out[d] /= state.sum + sink;
    }
  });
}

}  // namespace llm
