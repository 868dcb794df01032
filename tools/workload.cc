#include "workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

#include "command.h"
#include "cpu_info.h"
#include "names.h"

namespace metal_marlin::tools {
namespace {

void push_f16(std::vector<uint8_t>& to, double value) {
  const uint16_t bits = to_f16(static_cast<float>(value));
  to.push_back(static_cast<uint8_t>(bits));
  to.push_back(static_cast<uint8_t>(bits >> 8));
}

marlin_matrix rows_of(const std::vector<uint8_t>& bytes, int64_t first, int64_t rows, int64_t cols,
                      marlin_dtype dtype) {
  marlin_matrix matrix{};
  const int64_t row_bytes = cols * (dtype == MARLIN_F16 ? 2 : 1);
  matrix.data = const_cast<uint8_t*>(
      bytes.data() + first * row_bytes);  // the ABI has one matrix type; packing only reads
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.dtype = dtype;
  return matrix;
}

/// Blocks of GGUF: their sizes, and where their float16 numbers are.
struct BlockForm {
  std::string_view name;
  int64_t elements, bytes;
  std::vector<size_t> factors;
};
const BlockForm& block_form(std::string_view name) {
  static const BlockForm forms[] = {
      {"Q2_K", 256, 84, {80, 82}}, {"Q3_K", 256, 110, {108}},  {"Q4_0", 32, 18, {0}},
      {"Q4_1", 32, 20, {0, 2}},    {"Q4_K", 256, 144, {0, 2}}, {"Q5_0", 32, 22, {0}},
      {"Q5_1", 32, 24, {0, 2}},    {"Q5_K", 256, 176, {0, 2}}, {"Q6_K", 256, 210, {208}},
      {"Q8_0", 32, 34, {0}},       {"IQ4_NL", 32, 18, {0}},    {"IQ4_XS", 256, 136, {0}}};
  for (const BlockForm& form : forms)
    if (form.name == name) return form;
  throw Failure(fmt::format("no random blocks of type {}", name));
}

/// The bytes of a row of the matrix of codes.
int64_t code_columns(const WeightShape& shape) {
  if (shape.block != nullptr) {
    const BlockForm& form = block_form(shape.block);
    if (shape.k % form.elements != 0)
      throw Failure(
          fmt::format("-k {}: {} wants a multiple of {}", shape.k, shape.block, form.elements),
          ExitCode::usage);
    return shape.k / form.elements * form.bytes;
  }
  if (shape.sparse) return shape.k / 4;
  const int bits = code_bits(shape.format);
  return bits == 4 ? (shape.k + 1) / 2 : bits <= 8 ? shape.k : shape.k * bits / 8;
}

/// What the codes of a format are in a matrix for packing.
marlin_dtype code_dtype(marlin_format format) {
  switch (format) {
    case MARLIN_FORMAT_INT8:
      return MARLIN_I8;
    case MARLIN_FORMAT_FP8:
      return MARLIN_E4M3;
    case MARLIN_FORMAT_FLOAT32:
      return MARLIN_F32;
    case MARLIN_FORMAT_FLOAT16:
      return MARLIN_F16;
    case MARLIN_FORMAT_BFLOAT16:
      return MARLIN_BF16;
    default:
      return MARLIN_U8;
  }
}

/// Makes codes of random bytes: those of the format, and no NaN or infinity among floats.
void make_codes(const WeightShape& shape, std::vector<uint8_t>& bytes) {
  const int bits = code_bits(shape.format);
  if (shape.block != nullptr) {
    const BlockForm& form = block_form(shape.block);
    for (size_t at = 0; at + static_cast<size_t>(form.bytes) <= bytes.size();
         at += static_cast<size_t>(form.bytes))
      for (const size_t factor : form.factors)  // 0.002 to 0.016
        bytes[at + factor + 1] = static_cast<uint8_t>(0x18 + bytes[at + factor + 1] % 12);
  } else if (bits > 8) {
    // The exponent is that of numbers between 2^-7 and 1, or up to 2 in float16.
    for (size_t at = 0; at < bytes.size(); ++at) {
      const size_t size = static_cast<size_t>(bits) / 8;
      if (at % size != size - 1) continue;
      bytes[at] = shape.format == MARLIN_FORMAT_FLOAT16
                      ? static_cast<uint8_t>((bytes[at] & 0x9f) | 0x20)
                      : static_cast<uint8_t>((bytes[at] & 0x81) | 0x3c);
    }
  } else if (shape.format == MARLIN_FORMAT_FP8) {
    for (uint8_t& code : bytes)
      if ((code & 0x7f) == 0x7f) code ^= 1;
  } else if (bits != 4 && bits != 8) {
    for (uint8_t& code : bytes) code = static_cast<uint8_t>(code & ((1 << bits) - 1));
  }
}

/// The rows of all experts together.
int64_t rows_of_all(const WeightShape& shape) { return shape.n + shape.experts - 1; }

/// Bit i of byte b of a row says that element 8 b + i is kept. Any two of every four are kept.
std::vector<uint8_t> random_masks(const WeightShape& shape, Random& random) {
  constexpr uint8_t kPairs[] = {3, 5, 6, 9, 10, 12};
  const int64_t columns = (shape.k + 7) / 8;
  std::vector<uint8_t> masks(static_cast<size_t>(rows_of_all(shape) * columns));
  for (size_t i = 0; i < masks.size(); ++i) {
    const uint64_t bits = random.next();
    masks[i] = kPairs[bits % 6];
    const bool whole =
        (static_cast<int64_t>(i) % columns + 1) * 8 <= shape.k;  // bits beyond K are 0
    if (whole) masks[i] = static_cast<uint8_t>(masks[i] | kPairs[(bits >> 32) % 6] << 4);
  }
  return masks;
}

int64_t groups_of(const WeightShape& shape) { return (shape.k + shape.group - 1) / shape.group; }

}  // namespace

RandomWeights::RandomWeights(const WeightShape& shape, uint64_t seed) : shape_(shape) {
  if (shape_.group == 0) shape_.group = default_group(shape.format);
  shape_.group = static_cast<uint32_t>(std::min<int64_t>(shape_.group, shape.k));
  Random random(seed);
  const int64_t row = code_columns(shape);
  if (shape.sparse) kept_ = random_masks(shape, random);
  codes_.resize(static_cast<size_t>(rows_of_all(shape) * row + 7) / 8 * 8);
  for (size_t i = 0; i < codes_.size(); i += 8) {
    const uint64_t bits = random.next();
    std::memcpy(codes_.data() + i, &bits, 8);
  }
  make_codes(shape, codes_);
  if (shape.format == MARLIN_FORMAT_CODEBOOK4)
    for (int i = 0; i < 16; ++i) codebook_.push_back(static_cast<float>(i) / 8 - 1);
  if (shape.block != nullptr || code_bits(shape.format) > 8) return;  // no scales beside the codes
  scale_type_ = shape.format == MARLIN_FORMAT_MXFP4   ? MARLIN_E8M0
                : shape.format == MARLIN_FORMAT_NVFP4 ? MARLIN_E4M3
                                                      : MARLIN_F16;
  const int64_t scales = rows_of_all(shape) * groups_of(shape_);
  for (int64_t i = 0; i < scales; ++i) {
    // Like the scales of a trained layer, these are within a few powers of two of each other.
    switch (scale_type_) {
      case MARLIN_E8M0:
        scales_.push_back(static_cast<uint8_t>(118 + random.next() % 8));
        break;
      case MARLIN_E4M3:
        scales_.push_back(static_cast<uint8_t>(0x28 + random.next() % 0x28));
        break;
      default:
        push_f16(scales_, 0.002 + 0.01 * random.uniform());
    }
    if (shape.zeros == Zeros::integer) zeros_.push_back(static_cast<uint8_t>(random.next() % 16));
    if (shape.zeros == Zeros::additive) push_f16(zeros_, -0.1 * random.uniform());
  }
}

marlin_pack_desc RandomWeights::part(int64_t expert) const {
  const int64_t groups = groups_of(shape_);
  const auto rows = [&](const std::vector<uint8_t>& bytes, int64_t cols, marlin_dtype dtype) {
    return rows_of(bytes, expert, shape_.n, cols, dtype);
  };
  auto desc = make<marlin_pack_desc>();
  desc.format = shape_.format;
  desc.group_size = shape_.group;
  desc.layout = MARLIN_LAYOUT_ROWS;
  desc.n = shape_.n;
  desc.k = shape_.k;
  desc.values = rows(codes_, code_columns(shape_), MARLIN_U8);
  desc.values.dtype = code_dtype(shape_.format);
  if (shape_.block != nullptr) {
    desc.layout = MARLIN_LAYOUT_GGUF;
    desc.group_size = 0;
    desc.values.dtype = MARLIN_U8;
    desc.flags = parse_weight_type(shape_.block)->flags;
    return desc;
  }
  if (code_bits(shape_.format) > 8) {
    desc.group_size = 0;
    desc.values.cols = shape_.k;
    return desc;
  }
  if (!codebook_.empty())
    desc.codebook = {
        const_cast<float*>(codebook_.data()), 0, 1, 16, 0, MARLIN_F32, MARLIN_MEM_HOST};
  if (shape_.sparse) desc.sparse_meta = rows(kept_, (shape_.k + 7) / 8, MARLIN_U8);
  desc.scales = rows(scales_, groups, scale_type_);
  if (shape_.zeros == Zeros::integer) desc.zeros = rows(zeros_, groups, MARLIN_U8);
  if (shape_.zeros == Zeros::additive) {
    desc.zeros = rows(zeros_, groups, MARLIN_F16);
    desc.flags |= MARLIN_PACK_ADDITIVE_ZEROS;
  }
  if (shape_.format == MARLIN_FORMAT_NVFP4) {
    desc.tensor_scale.data = const_cast<float*>(&tensor_scale_);
    desc.tensor_scale.rows = desc.tensor_scale.cols = 1;
    desc.tensor_scale.dtype = MARLIN_F32;
  }
  return desc;
}

Weights RandomWeights::pack(marlin_context* context) const {
  std::vector<marlin_pack_desc> descs;
  descs.reserve(static_cast<size_t>(shape_.experts));
  for (int64_t e = 0; e < shape_.experts; ++e) descs.push_back(part(e));
  std::vector<const marlin_pack_desc*> parts;
  parts.reserve(descs.size());
  for (const marlin_pack_desc& desc : descs) parts.push_back(&desc);
  const auto count = static_cast<uint32_t>(parts.size());
  auto error = make<marlin_error>();
  marlin_weights* weights = nullptr;
  check(marlin_weights_pack(context, parts.data(), count, count, &weights, &error), error,
        "cannot pack random weights");
  return Weights(weights);
}

Rotation::Rotation(const std::function<Weights()>& make, uint64_t bytes, size_t most) {
  uint64_t packed = 0;
  do {
    copies_.push_back(make());
    packed += info_of(copies_.back().get()).bytes;
  } while (packed < bytes && copies_.size() < most);
}

const marlin_weights* Rotation::next() {
  at_ = (at_ + 1) % copies_.size();
  return copies_[at_].get();
}

uint64_t rotation_bytes() {
  const uint64_t cold = std::max<uint64_t>(uint64_t{420} << 20, 8 * cpu_info().last_level_cache());
  return std::min<uint64_t>(cold, free_memory() / 2);
}

marlin_gemm_desc product(const marlin_weights* weights, const HostMatrix& a, const HostMatrix& c,
                         int64_t m, marlin_compute compute) {
  auto desc = make<marlin_gemm_desc>();
  desc.compute = compute;
  desc.weights = weights;
  desc.a = a.view(m);
  desc.c = c.view(m);
  return desc;
}

void multiply(const marlin_gemm_desc& desc) {
  auto error = make<marlin_error>();
  check(marlin_gemm(nullptr, &desc, &error), error, "cannot multiply");
}

}  // namespace metal_marlin::tools
