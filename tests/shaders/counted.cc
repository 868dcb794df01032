#include "counted.h"

#include "formats/format_table.h"

namespace shaders {
namespace {

double ratio(uint64_t a, uint64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

std::vector<int64_t> groups_of(const Kind& kind) {
  if (metal_marlin::is_two_level(kind.scale_type)) return {kind.group};
  switch (kind.format) {
    case MARLIN_FORMAT_NVFP4:
      return {16};
    case MARLIN_FORMAT_MXFP4:
    case MARLIN_FORMAT_FP4:
    case MARLIN_FORMAT_UINT8:
    case MARLIN_FORMAT_FP8:
    case MARLIN_FORMAT_IQ4:
    case MARLIN_FORMAT_NF4:
    case MARLIN_FORMAT_CODEBOOK4:
      return {32};
    case MARLIN_FORMAT_FLOAT32:
    case MARLIN_FORMAT_FLOAT16:
    case MARLIN_FORMAT_BFLOAT16:
      return {0};
    case MARLIN_FORMAT_INT8:
      return {32, 64};
    case MARLIN_FORMAT_INT2:
    case MARLIN_FORMAT_INT3:
    case MARLIN_FORMAT_INT5:
    case MARLIN_FORMAT_INT6:
      return {64};
    default:
      return {32, 64, 128, 0};
  }
}

/// Kinds that share a kernel differ in decoding alone: one kernel of each family is counted, of Q4_K and Q6_K all.
bool is_counted(const Kind& kind, int64_t m) {
  const bool other = metal_marlin::is_two_level(kind.scale_type) || kind.format == MARLIN_FORMAT_UINT8 ||
                     kind.format == MARLIN_FORMAT_FP8 || metal_marlin::format_row(kind.format)->code_bits % 4 != 0 ||
                     kind.format == MARLIN_FORMAT_IQ4 || kind.format == MARLIN_FORMAT_NF4 ||
                     kind.format == MARLIN_FORMAT_CODEBOOK4 || is_float(kind);
  return !other || kind.name == std::string("q4_k") || kind.name == std::string("q6_k") || m == 1 || m == 32;
}

/// Bytes that the kernel ought to write to threadgroup memory: activations or sums, nothing of the weights.
double own_threadgroup_bytes(const KernelRow& row, uint64_t padded_m, marlin_dtype a_type) {
  const auto width = static_cast<uint64_t>(oracle::bytes_of(a_type)), columns = static_cast<uint64_t>(row.columns);
  const uint64_t sharers = row.threads / columns;  // simdgroups that share the K of 32 columns
  if (row.shares_a()) return static_cast<double>(padded_m * kCountedK * width * (kCountedN / columns));
  return row.matrix() && sharers == 1 ? 0 : static_cast<double>(padded_m * kCountedN * 4 * sharers);
}

}  // namespace

void PrintTo(const CountedProduct& c, std::ostream* out) {
  *out << c.kind.name << " group " << c.group << " M " << c.m << " A " << c.a_type;
}

std::vector<CountedProduct> counted_cases() {
  std::vector<CountedProduct> cases;
  for (const Kind& kind : kKinds)
    for (const int64_t group : groups_of(kind))
      for (const int64_t m : kCountedM)
        if (is_counted(kind, m)) cases.push_back({kind, group, m});
  for (const marlin_dtype a_type : {MARLIN_BF16, MARLIN_F32})
    for (const int64_t m : {32, 64}) cases.push_back({kKinds[4], 32, m, a_type});
  return cases;
}

testing::AssertionResult count(const CountedProduct& product, Counted& out) {
  problem::Case s = case_of(product.kind, product.m, kCountedN, kCountedK);
  s.group = product.group;
  s.a_type = product.a_type;
  s.suffix = product.suffix;
  Problem problem(s);
  Setting setting;
  setting.count = true;
  testing::AssertionResult step = problem.pack();
  if (step) step = problem.run(setting);
  if (step) step = problem.check();
  if (!step) return step;

  const KernelRow& row = kernel_row(s);
  out.kernel = std::string(row.family) + "_" + row.suffix;
  out.passes = (s.m + row.rows - 1) / row.rows;
  const auto& layout = problem.plan.layout;
  out.packed_code_bytes = static_cast<uint64_t>(layout.row_blocks() * layout.row_block_code_bytes());
  out.counters = problem.counters;
  const metal_on_cpu::Counters& c = out.counters;
  const auto &codes = c.buffers.at(MARLIN_BUFFER_CODES), &a = c.buffers.at(MARLIN_BUFFER_A);
  metal_on_cpu::BufferCounters scales = c.buffers.at(MARLIN_BUFFER_SCALES);
  if (const auto zeros = c.buffers.find(MARLIN_BUFFER_ZEROS); layout.two_level() && zeros != c.buffers.end()) {
    scales.bytes_read += zeros->second.bytes_read;
    scales.unique_bytes_read += zeros->second.unique_bytes_read;
    scales.unique_lines += zeros->second.unique_lines;
    scales.simdgroup_lines += zeros->second.simdgroup_lines;
  }
  const auto passes = static_cast<uint64_t>(out.passes), padded_m = passes * static_cast<uint64_t>(row.rows);
  const double tiles_of_columns = kCountedN / 128.0, blocks = kCountedK / 128.0;
  std::optional<double> a_goal;
  if (row.shares_a()) a_goal = 128.0 / static_cast<double>(row.columns);
  out.quantities = {
      {"codes", ratio(codes.bytes_read, out.packed_code_bytes * passes), 1, Goal::exactly},
      {"+ scales", ratio(codes.bytes_read + scales.bytes_read, (codes.unique_bytes_read + scales.unique_bytes_read) * passes),
       1.10, Goal::at_most},
      {"code lines", ratio(codes.simdgroup_lines, codes.unique_lines * passes), 1, Goal::exactly},
      {"scale lines", ratio(scales.simdgroup_lines, scales.unique_lines * passes), 1, Goal::exactly},
      {"A lines", ratio(a.simdgroup_lines, a.unique_lines) / tiles_of_columns, a_goal, Goal::exactly},
      {"barriers", ratio(c.threadgroup_barriers, c.threadgroups) / blocks, 1, Goal::at_most},
      {"MMAs", ratio(512 * c.matrix_multiplies, padded_m * kCountedN * kCountedK), row.matrix() ? 1 : 0, Goal::exactly},
      {"memory", static_cast<double>(c.threadgroup_memory), 16 << 10, Goal::at_most},
      {"for W", static_cast<double>(c.threadgroup_bytes_written) - own_threadgroup_bytes(row, padded_m, s.a_type), 0,
       Goal::exactly},
  };
  return step;
}

}  // namespace shaders
