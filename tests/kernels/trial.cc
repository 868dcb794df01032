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

/// Of the matrix of codes: 2:4 sparse weights store half of them.
int64_t code_columns(const Case& c) {
  if (c.k_quant()) return c.k / kSuperBlock * k_block_bytes(c.format);
  if (c.sparse) return c.k / 4;
  return oracle::code_bits(c.format) == 4 ? (c.k + 1) / 2 : c.k;
}

}  // namespace

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

void Matrix::set(const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    set(static_cast<int64_t>(i) / view_.cols, static_cast<int64_t>(i) % view_.cols, values[i]);
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

Trial::Trial(const Case& c) : problem::Weights(c) {
  if (spec.zeros == ZeroKind::integer && oracle::code_bits(spec.format) < 8)  // 2^bits is none of these layouts'
    for (uint8_t& zero : source.all().zeros) zero = static_cast<uint8_t>(zero % (1 << oracle::code_bits(spec.format)));
  fill_operands();
  if (!spec.together) return;
  constexpr int64_t kMostRows = 34;
  Case d = spec;
  d.together = false;
  d.seed ^= 0x3c6ef372u;  // other numbers, and another order of columns, if any
  d.n = std::min(d.n, kMostRows);
  other = std::make_unique<Trial>(d);
  other->shared_ = this;
}

void Trial::fill_operands() {
  problem::Operands drawn(spec);
  a = Matrix(spec.m, spec.k, spec.a_type, spec.strides);
  c = Matrix(spec.m, spec.columns(), spec.c_type, spec.strides);
  if (spec.bias_type != 0) bias = Matrix(1, spec.n, spec.bias_type, spec.strides);
  a.set(drawn.a);
  bias.set(drawn.bias);
  c_before = std::move(drawn.c_before);
}

/// A row as a caller has it. What no code needs of a byte is filled with other bits.
void Trial::store_codes(int64_t row) {
  const int64_t k = spec.k;
  const std::vector<uint8_t>& kept = source.all().kept;  // empty if all are
  const uint8_t *codes = source.all().codes.data() + row * k, *masks = kept.empty() ? nullptr : kept.data() + row * k / 4;
  uint8_t* const to = values_.bytes(row);
  const int bits = oracle::code_bits(spec.format);
  const auto put_nibble = [&](int64_t i, uint8_t code) {
    to[i / 2] = static_cast<uint8_t>(i % 2 == 0 ? 0xf0 | code : (to[i / 2] & 15) | code << 4);
  };
  if (spec.k_quant()) {
    for (int64_t b = 0; b < k / kSuperBlock; ++b) {
      const std::vector<uint8_t> block = k_block(source, row, b);
      std::copy(block.begin(), block.end(), to + b * k_block_bytes(spec.format));
    }
    return;
  }
  int64_t next = 0;  // of the kept codes of a sparse row
  for (int64_t i = 0; i < k; ++i) {
    if (spec.sparse) {
      if (metal_marlin::is_kept(masks, i)) put_nibble(next++, codes[i]);
    } else if (bits == 4) {
      put_nibble(i, codes[i]);
    } else {
      to[i] = static_cast<uint8_t>(codes[i] | i * 37 << bits);
    }
  }
  // Bit i of byte b of a row: element 8 b + i is kept.
  for (int64_t i = 0; spec.sparse && i < k / 4; i += 2)
    kept_.bytes(row)[i / 2] = static_cast<uint8_t>(masks[i] | (i + 1 < k / 4 ? masks[i + 1] << 4 : 0));
}

void Trial::store_weights() {
  const metal_marlin::WeightMeta& meta = source.meta();
  values_ = Matrix(spec.n, code_columns(spec), spec.format == MARLIN_FORMAT_INT8 ? MARLIN_I8 : MARLIN_U8,
                   spec.k_quant() ? Strides::contiguous : spec.strides);
  if (spec.sparse) kept_ = Matrix(spec.n, (spec.k + 7) / 8, MARLIN_U8, spec.strides);
  for (int64_t r = 0; r < spec.n; ++r) store_codes(r);
  const auto store = [&](const std::vector<uint8_t>& all, marlin_dtype dtype) {
    Matrix stored(spec.n, meta.groups, dtype, spec.strides);
    const int64_t bytes = meta.groups * element_bytes(dtype);
    for (int64_t r = 0; r < spec.n; ++r) std::copy_n(all.data() + r * bytes, bytes, stored.bytes(r));
    return stored;
  };
  if (!spec.k_quant()) scales_ = store(source.all().scales, metal_marlin::scale_dtype(spec.scale_type));
  if (!spec.k_quant() && spec.zeros != ZeroKind::none)
    zeros_ = store(source.all().zeros, spec.zeros == ZeroKind::integer ? MARLIN_U8 : metal_marlin::scale_dtype(spec.zero_type));
  if (meta.group_index.empty()) return;
  group_index_ = Matrix(1, spec.k, MARLIN_I32, Strides::contiguous);
  std::memcpy(group_index_.bytes(0), meta.group_index.data(), meta.group_index.size() * sizeof meta.group_index[0]);
}

std::vector<marlin_pack_desc> Trial::parts() {
  expected = to_oracle();
  store_weights();
  for (const Matrix* m : {&values_, &kept_, &scales_, &zeros_, &group_index_, &a, &bias}) m->make_read_only();
  const metal_marlin::WeightMeta& meta = source.meta();
  const bool two = meta.tensor_scales.size() == 2;
  const int64_t first = two ? meta.tensor_scales[1].first_row : 0;
  std::vector<marlin_pack_desc> parts(two ? 2 : 1);
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t from = i == 1 ? first : 0, count = !two ? spec.n : i == 1 ? spec.n - first : first;
    marlin_pack_desc& d = parts[i];
    d.struct_size = sizeof d;
    d.format = spec.format;
    d.group_size = static_cast<uint32_t>(meta.group_size);
    d.n = count;
    d.k = spec.k;
    d.values = rows_of(values_.view(), from, count, 1);
    d.sparse_meta = rows_of(kept_.view(), from, count, 1);
    d.scales = rows_of(scales_.view(), from, count, element_bytes(scales_.view().dtype));
    d.zeros = rows_of(zeros_.view(), from, count, element_bytes(zeros_.view().dtype));
    d.group_index = group_index_.view();
    if (!meta.tensor_scales.empty()) {
      factors_[i] = meta.tensor_scales[i].value;
      d.tensor_scale.data = &factors_[i];
      d.tensor_scale.rows = d.tensor_scale.cols = 1;
      d.tensor_scale.dtype = MARLIN_F32;
    }
    if (spec.k_quant()) {
      d.layout = MARLIN_LAYOUT_GGUF;
      d.flags |= MARLIN_PACK_TWO_LEVEL_SCALES;
    }
    if (spec.zeros == ZeroKind::additive) d.flags |= MARLIN_PACK_ADDITIVE_ZEROS;
    if (expected.divide) d.flags |= MARLIN_PACK_DIVIDE_SCALE;
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
  d.activation_group = spec.activation_group;
  d.epilogue = spec.epilogue;
  const oracle::Gate gate = spec.gate();
  d.gate_limit = gate.gate_limit, d.up_limit = gate.up_limit, d.gate_alpha = gate.gate_alpha, d.up_offset = gate.up_offset;
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
  oracle::Product p = problem::product_of(spec, expected);
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
  for (int64_t r = 0; r < spec.m; ++r)
    for (int64_t n = 0; n < columns; ++n) got.push_back(c.get(r, n));
  if (const auto ok = problem::compare(want, got, columns, &worst); !ok)
    return testing::AssertionFailure() << ok.message() << "\n" << explain();
  if (!c.gaps_untouched()) return testing::AssertionFailure() << "wrote between the rows of C";
  double limit = spec.c_type == MARLIN_F32 ? 1e-11 : spec.c_type == MARLIN_F16 ? 1e-7 : 5e-6;
  if (spec.compute == MARLIN_COMPUTE_W16) limit += spec.a_type == MARLIN_F16 ? 1e-7 : 6e-6;
  if (spec.compute == MARLIN_COMPUTE_FP8 && spec.format == MARLIN_FORMAT_FP8) limit += 1e-6;
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
