#include "trial.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <utility>

#include "formats/format_table.h"

namespace trial {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

const char* name_of(marlin_dtype dtype) {
  const char* const name = metal_marlin::dtype_name(dtype);
  return name != nullptr ? name : "none";
}
constexpr const char* kComputes[] = {"default", "int8", "fp8", "w16"};
constexpr const char* kEpilogues[] = {"none", "silu", "gelu_tanh", "gelu_erf", "swiglu", "geglu_tanh", "swiglu_oai"};

testing::AssertionResult expect_ok(marlin_status status, const marlin_error& err, const char* what) {
  if (status == MARLIN_OK) return testing::AssertionSuccess();
  return testing::AssertionFailure() << what << ": " << marlin_status_name(status) << ": " << err.message;
}

marlin_error no_error() {
  marlin_error err{};
  err.struct_size = sizeof err;
  return err;
}

/// Rows [first, first + count) of a matrix.
marlin_matrix rows_of(const marlin_matrix& m, int64_t first, int64_t count, int64_t element_bytes) {
  marlin_matrix part = m;
  if (m.data == nullptr) return part;
  const int64_t stride = m.row_stride != 0 ? m.row_stride : m.cols;
  part.data = static_cast<std::byte*>(m.data) + first * stride * element_bytes;
  part.rows = count;
  return part;
}

int64_t element_bytes(marlin_dtype d) { return d == MARLIN_I32 ? 4 : oracle::bytes_of(d); }

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). Numbers are a large part of the time
/// of these tests, and std::mt19937 takes five times as long for them.
class Random {
 public:
  using result_type = uint64_t;
  explicit Random(uint32_t seed) : state_(seed * 0xd1342543de82ef95u) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(((*this)() >> 32) * n >> 32); }
  double uniform(double low, double high) { return low + (high - low) * static_cast<double>((*this)() >> 11) * 0x1p-53; }
  /// The sum of twelve uniform numbers, of 16 bits each and one of them of more.
  double normal() {
    uint64_t sum = 0;
    for (int i = 0; i < 3; ++i)
      for (uint64_t x = (*this)(); x != 0; x >>= 16) sum += x & 0xffff;
    return static_cast<double>(sum) * 0x1p-16 - 6 + uniform(0, 0x1p-16);
  }

 private:
  uint64_t state_;
};

/// Of the matrix of codes: 2:4 sparse weights store half of them.
int64_t code_columns(const Case& c) {
  if (c.k_quant) return c.k / kSuperBlock * k_block_bytes(c.format);
  if (c.sparse) return c.k / 4;
  return oracle::code_bits(c.format) == 4 ? (c.k + 1) / 2 : c.k;
}

int64_t groups_of(const Case& c) { return c.group == 0 ? 1 : (c.k + c.group - 1) / c.group; }

}  // namespace

std::string Case::describe() const {
  std::ostringstream s;
  s << metal_marlin::format_name(format)
    << (zeros == Zeros::integer    ? " integer zeros"
        : zeros == Zeros::additive ? " additive zeros"
                                   : "")
    << (sparse ? " sparse" : "") << (k_quant ? " K-quant" : "") << ", group " << group << ", scales " << name_of(scale_type)
    << ", order " << static_cast<int>(order) << ", " << kComputes[compute] << ", A " << name_of(a_type) << ", C "
    << name_of(c_type) << ", bias " << name_of(bias_type) << ", " << kEpilogues[epilogue] << (accumulate ? " accumulate" : "")
    << (row_invariant ? " row-invariant" : "") << ", strides " << static_cast<int>(strides) << ", M N K " << m << " " << n
    << " " << k << ", threads " << threads << ", tensor scale " << static_cast<int>(tensor)
    << (interleaved ? ", interleaved" : "") << (together ? ", together with another" : "") << ", seed " << seed;
  return s.str();
}

// --- matrices ----------------------------------------------------------------------------------------------------------------

Matrix::Matrix(int64_t rows, int64_t cols, marlin_dtype dtype, Strides strides) {
  view_.rows = rows;
  view_.cols = cols;
  view_.dtype = dtype;
  view_.row_stride = strides == Strides::contiguous ? 0 : strides == Strides::padded ? cols + 7 : cols + 1;
  const auto bytes = at(((rows - 1) * stride() + cols) * element_bytes(dtype));
  memory_ = guarded::Memory(bytes, strides == Strides::padded ? guarded::Edge::begin : guarded::Edge::end);
  view_.data = memory_.data();
}

uint8_t* Matrix::bytes(int64_t row) const {
  return reinterpret_cast<uint8_t*>(memory_.data()) + row * stride() * element_bytes(view_.dtype);
}
double Matrix::get(int64_t row, int64_t col) const { return oracle::read(view_.dtype, bytes(row), col); }
double Matrix::set(int64_t row, int64_t col, double x) {
  oracle::write(view_.dtype, bytes(row), col, x);
  return get(row, col);
}

bool Matrix::gaps_untouched() const {
  const int64_t width = element_bytes(view_.dtype);
  for (int64_t r = 0; r + 1 < view_.rows; ++r) {
    const uint8_t *gap = bytes(r) + view_.cols * width, *next = bytes(r + 1);
    if (std::any_of(gap, next, [](uint8_t b) { return b != 0xff; })) return false;
  }
  return true;
}

std::vector<uint8_t> Matrix::raw() const {
  std::vector<uint8_t> out;
  for (int64_t r = 0; r < view_.rows; ++r) out.insert(out.end(), bytes(r), bytes(r) + view_.cols * element_bytes(view_.dtype));
  return out;
}

// --- trials ------------------------------------------------------------------------------------------------------------------

Trial::Trial(const Case& c) : spec(c) {
  fill_weights();
  fill_activations();
  if (!spec.together) return;
  constexpr int64_t kMostRows = 34;
  Case d = spec;
  d.together = false;
  d.seed ^= 0x3c6ef372u;  // other numbers, and another order of columns, if any
  d.n = std::min(d.n, kMostRows);
  other = std::make_unique<Trial>(d);
  other->shared_ = this;
}

void Trial::fill_weights() {
  Random random(spec.seed);
  const int64_t groups = groups_of(spec);
  const int bits = oracle::code_bits(spec.format);
  values = Matrix(spec.n, code_columns(spec), spec.format == MARLIN_INT8 ? MARLIN_I8 : MARLIN_U8,
                  spec.k_quant ? Strides::contiguous : spec.strides);
  if (spec.k_quant) return fill_k_blocks();
  if (spec.sparse) fill_masks();
  scales = Matrix(spec.n, groups, spec.scale_type, spec.strides);
  if (spec.zeros == Zeros::integer) zeros = Matrix(spec.n, groups, MARLIN_U8, spec.strides);
  constexpr marlin_dtype kFloats[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16};
  if (spec.zeros == Zeros::additive) {
    const marlin_dtype chosen = kFloats[random.below(3)];
    zeros = Matrix(spec.n, groups, spec.zero_type != 0 ? spec.zero_type : chosen, spec.strides);
  }
  // Sums of about 1, whatever K: epilogues are exercised where they bend, and F16 does not overflow.
  const double size = 0.5 / std::sqrt(static_cast<double>(spec.k)) * 16 / (spec.format == MARLIN_IQ4 ? 256 : 1 << bits);
  for (int64_t r = 0; r < spec.n; ++r) {
    for (int64_t i = 0; i < values.view().cols; ++i) {
      uint8_t& byte = values.bytes(r)[i] = static_cast<uint8_t>(random.below(256));
      // Mostly numbers from 2 to 30, so that no single product outweighs the others; no NaN.
      if (spec.format == MARLIN_FP8 && (random.below(16) != 0 || byte % 128 == 127)) byte = (byte & 0x9f) | 0x40;
    }
    for (int64_t g = 0; g < groups; ++g) {
      double scale = size * std::exp2(random.uniform(-2, 2)) * (random.below(16) == 0 ? -1 : 1);
      if (spec.scale_type == MARLIN_E8M0) {
        scales.bytes(r)[g] = static_cast<uint8_t>(127 + static_cast<int>(std::lround(std::log2(std::fabs(scale)))));
      } else if (spec.scale_type == MARLIN_E4M3) {
        scales.bytes(r)[g] = static_cast<uint8_t>(0x10 + random.below(0x28) + (random.below(16) == 0 ? 0x80 : 0));
      } else {
        scale = scales.set(r, g, scale);
      }
      if (spec.zeros == Zeros::integer) zeros.bytes(r)[g] = static_cast<uint8_t>(random.below(1u << bits));
      if (spec.zeros == Zeros::additive) zeros.set(r, g, scale * random.uniform(-10, 0));
    }
  }
  if (spec.order != Order::plain) {
    std::vector<int32_t> index(at(spec.k));
    for (int64_t k = 0; k < spec.k; ++k) {
      index[at(k)] = spec.order == Order::permuted ? static_cast<int32_t>(k / spec.group)
                                                   : static_cast<int32_t>(random.below(static_cast<uint32_t>(groups)));
    }
    std::shuffle(index.begin(), index.end(), random);
    group_index = Matrix(1, spec.k, MARLIN_I32, Strides::contiguous);
    std::memcpy(group_index.bytes(0), index.data(), index.size() * sizeof index[0]);
  }
  for (int i = 0; i < (spec.tensor == Tensor::two_parts ? 2 : spec.tensor == Tensor::none ? 0 : 1); ++i) {
    tensor_scales.push_back(static_cast<float>(std::exp2(random.uniform(-1, 1))));
  }
}

void Trial::fill_k_blocks() {
  std::mt19937 random(spec.seed ^ 0x4b4b4b4bu);
  const double size = 8 / std::sqrt(static_cast<double>(spec.k)) / (1 << oracle::code_bits(spec.format));
  for (int64_t i = 0; i < spec.n * (spec.k / kSuperBlock); ++i) blocks.push_back(random_k_block(spec.format, size, random));
}

void Trial::read_k_blocks() {
  const int64_t row_blocks = spec.k / kSuperBlock, groups = kSuperBlock / spec.group;
  for (int64_t i = 0; i < static_cast<int64_t>(blocks.size()); ++i) {
    const KBlock& block = blocks[at(i)];
    const std::vector<uint8_t> bytes = block.bytes(spec.format);
    uint8_t* const to = values.bytes(i / row_blocks) + i % row_blocks * k_block_bytes(spec.format);
    if (!std::equal(bytes.begin(), bytes.end(), to)) std::copy(bytes.begin(), bytes.end(), to);  // read-only once it is packed
    expected.codes.insert(expected.codes.end(), block.codes.begin(), block.codes.end());
    for (int64_t g = 0; g < groups; ++g) {
      expected.scale.push_back(block.scale(g));
      if (spec.zeros == Zeros::additive) expected.zero.push_back(block.zero(g));
    }
  }
}

/// Bit i of byte b of a row: element 8 b + i is kept; two of every four are.
void Trial::fill_masks() {
  constexpr uint8_t kPairs[] = {3, 5, 6, 9, 10, 12};
  Random random(spec.seed ^ 0x24242424u);
  kept = Matrix(spec.n, (spec.k + 7) / 8, MARLIN_U8, spec.strides);
  for (int64_t r = 0; r < spec.n; ++r) {
    for (int64_t k = 0; k < spec.k; k += 4) {
      uint8_t& byte = kept.bytes(r)[k / 8];
      const uint8_t pair = kPairs[random.below(6)];
      byte = k % 8 == 0 ? pair : static_cast<uint8_t>(byte | pair << 4);
    }
  }
}

void Trial::fill_activations() {
  Random random(spec.seed ^ 0x5bd1e995u);
  a = Matrix(spec.m, spec.k, spec.a_type, spec.strides);
  c = Matrix(spec.m, spec.columns(), spec.c_type, spec.strides);
  for (int64_t r = 0; r < spec.m; ++r) {
    for (int64_t k = 0; k < spec.k; ++k) a.set(r, k, random.normal());
  }
  if (spec.bias_type != 0) {
    bias = Matrix(1, spec.n, spec.bias_type, spec.strides);
    for (int64_t n = 0; n < spec.n; ++n) bias.set(0, n, random.normal());
  }
  c_before.resize(at(spec.m * spec.columns()));
  for (int64_t r = 0; r < spec.m; ++r) {
    for (int64_t n = 0; n < spec.columns(); ++n) c_before[at(r * spec.columns() + n)] = c.set(r, n, random.normal());
  }
}

void Trial::read_back() {
  oracle::Weights& w = expected;
  w = {};
  w.format = spec.format;
  w.n = spec.n;
  w.k = spec.k;
  w.group_size = spec.group == 0 ? spec.k : spec.group;
  w.groups = groups_of(spec);
  w.additive = spec.zeros == Zeros::additive;
  w.divide = spec.tensor == Tensor::divide;
  w.interleaved = spec.interleaved;
  if (spec.k_quant) return read_k_blocks();
  for (int64_t r = 0; r < spec.n; ++r) {
    const uint8_t* row = values.bytes(r);
    int64_t next = 0;  // of the kept codes of a sparse row
    for (int64_t k = 0; k < spec.k; ++k) {
      if (spec.sparse) {
        const bool here = (kept.bytes(r)[k / 8] >> k % 8 & 1) != 0;
        w.kept.push_back(here);
        w.codes.push_back(static_cast<uint8_t>(!here ? 0 : next % 2 == 0 ? row[next / 2] & 15 : row[next / 2] >> 4));
        next += here ? 1 : 0;
        continue;
      }
      const int bits = oracle::code_bits(spec.format);
      const int code = bits != 4 ? row[k] & ((1 << bits) - 1) : k % 2 == 0 ? row[k / 2] & 15 : row[k / 2] >> 4;
      w.codes.push_back(static_cast<uint8_t>(code));
    }
    for (int64_t g = 0; g < w.groups; ++g) {
      w.scale.push_back(scales.get(r, g));
      if (spec.zeros == Zeros::integer) w.zero.push_back(zeros.bytes(r)[g]);
      if (spec.zeros == Zeros::additive) w.zero.push_back(zeros.get(r, g));
    }
    if (!tensor_scales.empty())
      w.tensor_scale.push_back(tensor_scales[tensor_scales.size() == 2 && r >= spec.n / 4 * 2 ? 1 : 0]);
  }
  if (spec.order != Order::plain) {
    w.group_index.resize(at(spec.k));
    std::memcpy(w.group_index.data(), group_index.bytes(0), w.group_index.size() * sizeof w.group_index[0]);
  }
}

std::vector<marlin_pack_desc> Trial::parts() {
  read_back();
  for (const Matrix* m : {&values, &kept, &scales, &zeros, &group_index, &a, &bias}) m->make_read_only();
  // An even number of rows in the first part: pairs of gate and up stay together. Part 2 of very few rows may hold all of them.
  const int64_t first = spec.n / 4 * 2;
  const bool two = spec.tensor == Tensor::two_parts && first > 0;
  std::vector<marlin_pack_desc> parts(two ? 2 : 1);
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t from = i == 1 ? first : 0, count = !two ? spec.n : i == 1 ? spec.n - first : first;
    marlin_pack_desc& d = parts[i];
    d.struct_size = sizeof d;
    d.format = spec.format;
    d.group_size = static_cast<uint32_t>(spec.group == 0 ? spec.k : spec.group);
    d.n = count;
    d.k = spec.k;
    d.values = rows_of(values.view(), from, count, 1);
    d.sparse_meta = rows_of(kept.view(), from, count, 1);
    d.scales = rows_of(scales.view(), from, count, element_bytes(spec.scale_type));
    d.zeros = rows_of(zeros.view(), from, count, element_bytes(zeros.view().dtype));
    d.group_index = group_index.view();
    if (!tensor_scales.empty()) {
      factors_[i] = static_cast<float>(tensor_scales[two ? i : tensor_scales.size() - 1]);
      d.tensor_scale.data = &factors_[i];
      d.tensor_scale.rows = d.tensor_scale.cols = 1;
      d.tensor_scale.dtype = MARLIN_F32;
    }
    if (spec.k_quant) {
      d.layout = MARLIN_LAYOUT_GGUF;
      d.flags |= MARLIN_PACK_TWO_LEVEL_SCALES;
    }
    if (spec.zeros == Zeros::additive) d.flags |= MARLIN_PACK_ADDITIVE_ZEROS;
    if (spec.tensor == Tensor::divide) d.flags |= MARLIN_PACK_DIVIDE_SCALE;
    if (spec.interleaved) d.flags |= MARLIN_PACK_GATE_UP_INTERLEAVED;
  }
  return parts;
}

testing::AssertionResult Trial::pack() {
  if (other != nullptr) {
    if (const auto ok = other->pack(); !ok) return ok;
  }
  marlin_weights_destroy(std::exchange(weights_, nullptr));
  const std::vector<marlin_pack_desc> descs = parts();
  const marlin_pack_desc* pointers[] = {&descs.front(), &descs.back()};
  marlin_error err = no_error();
  return expect_ok(
      marlin_weights_pack(context(spec.threads), pointers, static_cast<uint32_t>(descs.size()), 0, &weights_, &err), err,
      "marlin_weights_pack");
}

marlin_gemm_desc Trial::gemm_desc() const {
  marlin_gemm_desc d{};
  d.struct_size = sizeof d;
  d.compute = spec.compute;
  d.epilogue = spec.epilogue;
  d.flags = (spec.accumulate ? MARLIN_GEMM_ACCUMULATE : 0) | (spec.row_invariant ? MARLIN_GEMM_ROW_INVARIANT : 0);
  d.weights = weights_;
  d.a = activations().view();
  d.c = c.view();
  d.a.rows = d.c.rows = spec.m;  // the first ones, when spec.m was lowered
  d.bias = bias.view();
  return d;
}

void Trial::clear_c() {
  const int64_t columns = spec.columns();
  for (int64_t r = 0; r < spec.m; ++r) {
    for (int64_t n = 0; n < columns; ++n) c.set(r, n, spec.accumulate ? c_before[at(r * columns + n)] : NAN);
  }
}

testing::AssertionResult Trial::run() {
  clear_c();
  const marlin_gemm_desc d = gemm_desc();
  marlin_error err = no_error();
  if (other == nullptr) return expect_ok(marlin_gemm(nullptr, &d, &err), err, "marlin_gemm");
  other->clear_c();
  const marlin_gemm_desc e = other->gemm_desc();
  const marlin_gemm_desc* const both[] = {&d, &e};
  return expect_ok(marlin_gemm_many(nullptr, both, 2, &err), err, "marlin_gemm_many");
}

oracle::Product Trial::product() const {
  oracle::Product p;
  p.weights = &expected;
  p.m = spec.m;
  p.compute = spec.compute;
  p.a_dtype = spec.a_type;
  p.epilogue = spec.epilogue;
  p.c_dtype = spec.c_type;
  for (int64_t r = 0; r < spec.m; ++r) {
    for (int64_t k = 0; k < spec.k; ++k) p.a.push_back(activations().get(r, k));
  }
  for (int64_t n = 0; spec.bias_type != 0 && n < spec.n; ++n) p.bias.push_back(bias.get(0, n));
  if (spec.accumulate) p.c = c_before;
  return p;
}

testing::AssertionResult Trial::check() {
  // The library's choice of slots decides which columns share a block of INT8 activations.
  if (spec.compute == MARLIN_COMPUTE_INT8 && spec.order != Order::plain)
    expected.slot_group = std::stoi(explained("slot_group"));
  const std::vector<oracle::Element> want = oracle::multiply(product());
  const int64_t columns = spec.columns();
  std::vector<double> got;
  for (int64_t r = 0; r < spec.m; ++r) {
    for (int64_t n = 0; n < columns; ++n) {
      const oracle::Element& e = want[at(r * columns + n)];
      const double x = c.get(r, n);
      got.push_back(x);
      if (e.kind == oracle::Element::finite) worst = std::max(worst, std::fabs(x - e.value) / e.bound);
      if (!e.accepts(x)) {
        return testing::AssertionFailure() << "C[" << r << ", " << n << "] is " << x << ", expected " << e.value << " +- "
                                           << e.bound << " (kind " << static_cast<int>(e.kind) << ")\n"
                                           << explain();
      }
    }
  }
  if (!c.gaps_untouched()) return testing::AssertionFailure() << "wrote between the rows of C";
  double limit = spec.c_type == MARLIN_F32 ? 1e-11 : spec.c_type == MARLIN_F16 ? 1e-7 : 5e-6;
  if (spec.compute == MARLIN_COMPUTE_W16) limit += spec.a_type == MARLIN_F16 ? 1e-7 : 6e-6;
  // A statement about many elements; an epilogue or an old C may leave little of a sum.
  const bool many = spec.m * columns >= 256 && !special && spec.epilogue == MARLIN_EPILOGUE_NONE;
  if (const double e = many ? oracle::nmse(want, got) : 0; e > limit) {
    return testing::AssertionFailure() << "NMSE " << e << ", expected at most " << limit << "\n" << explain();
  }
  if (other != nullptr) {
    const testing::AssertionResult ok = other->check();
    worst = std::max(worst, other->worst);
    if (!ok) return testing::AssertionFailure() << "the other product: " << ok.message();
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult Trial::check_unpack() {
  Matrix out(spec.n, spec.k, MARLIN_F32, spec.strides);
  marlin_error err = no_error();
  const auto status = marlin_weights_unpack(nullptr, weights_, nullptr, 0, &out.view(), &err);
  if (const auto ok = expect_ok(status, err, "marlin_weights_unpack"); !ok) return ok;
  for (int64_t r = 0; r < spec.n; ++r) {
    for (int64_t k = 0; k < spec.k; ++k) {
      const float want = oracle::value_f32(expected, r, k);
      float got;
      std::memcpy(&got, out.bytes(r) + k * 4, sizeof got);
      if (std::isnan(want) ? !std::isnan(got) : std::bit_cast<uint32_t>(want) != std::bit_cast<uint32_t>(got)) {
        return testing::AssertionFailure() << "unpacked [" << r << ", " << k << "] is " << got << ", expected " << want;
      }
    }
  }
  return testing::AssertionSuccess();
}

std::string Trial::explain() const {
  const marlin_gemm_desc d = gemm_desc();
  char text[2048] = {};
  marlin_error err = no_error();
  const marlin_status status = marlin_explain(&d, text, sizeof text, nullptr, &err);
  return status == MARLIN_OK ? text : err.message;
}

std::string Trial::explained(const std::string& key) const {
  const std::string text = explain();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ':') {
      return line.substr(std::min(key.size() + 2, line.size()));
    }
  }
  return {};
}

testing::AssertionResult holds(const Case& spec, double* worst) {
  Trial t(spec);
  for (const auto step : {&Trial::pack, &Trial::run, &Trial::check}) {
    const testing::AssertionResult r = (t.*step)();
    if (worst != nullptr) *worst = std::max(*worst, t.worst);
    if (!r) return testing::AssertionFailure() << spec.describe() << "\n" << r.message();
  }
  // Decoding does not depend on most of a case's factors.
  if (spec.seed % 3 == 0) {
    if (const auto r = t.check_unpack(); !r) return testing::AssertionFailure() << spec.describe() << "\n" << r.message();
  }
  return testing::AssertionSuccess();
}

}  // namespace trial
