#include "problem.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>

#include "core/parallel.h"
#include "core/shapes.h"
#include "formats/format_table.h"

namespace shaders {
namespace {

namespace gpu = metal_marlin::gpu;
using metal_on_cpu::Dispatch;
using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

size_t at(int64_t i) { return static_cast<size_t>(i); }

uint64_t float_constant(marlin_dtype type) {
  return type == MARLIN_F32 ? kFloat32 : type == MARLIN_F16 ? kFloat16 : type == MARLIN_BF16 ? kFloatBf16 : kFloatNone;
}
const char* float_name(marlin_dtype type) { return type == MARLIN_F32 ? "f32" : type == MARLIN_F16 ? "f16" : "bf16"; }
const char* msl_name(marlin_dtype type) { return type == MARLIN_F32 ? "float" : type == MARLIN_F16 ? "half" : "bfloat"; }

const char* codes_type(gpu::KernelCodes kind) {
  // Of Metal's kinds; CUDA's own have none.
  constexpr const char* kTypes[gpu::kKernelCodes] = {"Fp4",    "U4", "I8", "Fp4Sparse", "U4Sparse",
                                                     "Planes", "",   "",   "Lut4",      "Floats"};
  return kTypes[static_cast<int>(kind)];
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The folder to compile from: the shipped one, or a copy with the changes made.
std::string folder_of(const Setting& setting) {
  const std::string shipped = MARLIN_SHADERS;
  if (setting.changes.empty()) return shipped;
  const std::string copy = testing::TempDir() + "/shaders-" + std::to_string(getpid());
  std::filesystem::remove_all(copy);
  std::filesystem::copy(shipped, copy, std::filesystem::copy_options::recursive);
  for (const Setting::Change& change : setting.changes) {
    const std::string path = copy + "/" + change.file;
    std::string text = read_file(path);
    const size_t place = text.find(change.from);
    EXPECT_NE(place, std::string::npos) << change.file << " has no " << change.from;
    if (place == std::string::npos) continue;
    text.replace(place, change.from.size(), change.to);
    std::ofstream(path) << text;
  }
  return copy;
}

/// Runs, and turns whatever goes wrong or is found into a failure.
AssertionResult run_dispatch(Dispatch& dispatch, const Setting& setting, const std::string& name,
                             metal_on_cpu::Counters* counters = nullptr) {
  dispatch.seed(setting.seed).flush_to_zero().publish_fragments();
  if (setting.count)
    dispatch.count();
  else
    dispatch.check();
  const auto report = dispatch.run();
  if (!report.ok()) return AssertionFailure() << name << ": " << report.message();
  if (!report.value().findings.empty()) return AssertionFailure() << name << ": " << report.value().text();
  if (counters != nullptr) *counters = report.value().counters;
  return AssertionSuccess();
}

void set_constants(metal_on_cpu::Kernel& kernel, const Constants& constants) {
  for (const auto& [index, value] : constants) kernel.constant(index, value);
}

}  // namespace

const KernelRow& kernel_row(const Case& spec) {
  for (const KernelRow& row : kernel_rows()) {
    if (spec.suffix.empty() ? !row.tensor() && spec.m >= row.m_min && (row.m_max == 0 || spec.m <= row.m_max)
                            : spec.suffix == row.suffix)
      return row;
  }
  ADD_FAILURE() << "no kernel row for " << spec.describe();
  return kernel_rows().front();
}

metal_on_cpu::Library library(const std::string& file, const std::vector<std::string>& defines, const Setting& setting) {
  static std::map<std::string, metal_on_cpu::Library> libraries;
  std::string key = file + (setting.count ? "\ncounted" : "");
  for (const std::string& d : defines) key += "\n" + d;
  if (setting.changes.empty()) {
    if (const auto found = libraries.find(key); found != libraries.end()) return found->second;
  }
  metal_on_cpu::CompileOptions options;
  options.defines = defines;
  options.late_constants = defines.empty() && !setting.count;  // only products need macros; what is counted is folded
  if (file.starts_with("metal4/")) options.language = 17;
  auto made = metal_on_cpu::Library::from_file(folder_of(setting) + "/" + file, options);
  EXPECT_TRUE(made.ok()) << made.message();
  if (!made.ok()) std::exit(1);
  if (setting.changes.empty()) libraries.emplace(key, made.value());
  return made.take();
}

AssertionResult Problem::pack(const Packer& packer) {
  metal_marlin::SequentialRunner runner;
  for (const auto exponents : {gpu::Exponents::bytes, gpu::Exponents::floats}) {
    auto planned = packer.plan(source.meta(), exponents, gpu::SlotOrder::simdgroup);
    if (!planned.ok()) return AssertionFailure() << planned.status().message();
    plan = planned.take();
    packed.assign(plan.layout.bytes, std::byte{0xA5});
    const auto done = packer.pack(source, plan, packed, runner);
    if (!done.ok()) return AssertionFailure() << done.status().message();
    if (done.value()) return AssertionSuccess();
  }
  return AssertionFailure() << "exponents do not fit as floats either";
}

oracle::Weights Problem::expected() const {
  oracle::Weights w = to_oracle();
  w.group_index = plan.meta.group_index;
  w.slot_group = plan.layout.slot_group;
  return w;
}

bool Problem::is_partial() const { return splits() > 1 || spec.epilogue >= MARLIN_EPILOGUE_SWIGLU; }

Constants Problem::constants() const {
  const auto number = [](auto value) { return static_cast<uint64_t>(value); };
  const bool own = !prepared_.empty();  // gathered or quantized
  Constants c;
  c[MARLIN_CONSTANT_SCALE_TYPE] = number(plan.layout.scale_constant());
  c[MARLIN_CONSTANT_ZERO_KIND] = number(plan.layout.zero_constant());
  c[MARLIN_CONSTANT_GROUP_SHIFT] = number(plan.layout.group_shift_constant());
  c[MARLIN_CONSTANT_ROW_FACTOR] = number(plan.layout.row_factor);
  c[MARLIN_CONSTANT_ALIGNED] = own || lda_ * oracle::bytes_of(spec.a_type) % 16 == 0;
  c[MARLIN_CONSTANT_RAGGED] = !own && spec.k != plan.layout.slots;
  c[MARLIN_CONSTANT_OUTPUT_TYPE] = float_constant(spec.c_type);
  c[MARLIN_CONSTANT_BIAS_TYPE] = float_constant(spec.bias_type);
  c[MARLIN_CONSTANT_EPILOGUE] = number(epilogue().epilogue);
  c[MARLIN_CONSTANT_ACCUMULATE] = spec.accumulate;
  c[MARLIN_CONSTANT_PARTIAL] = is_partial();
  c[MARLIN_CONSTANT_INTERLEAVED] = spec.interleaved;
  c[MARLIN_CONSTANT_SLOT_TO_K] = plan.layout.permuted;
  c[MARLIN_CONSTANT_QUANTIZED] = int8();
  c[MARLIN_CONSTANT_ROW_LIST] = false;
  c[MARLIN_CONSTANT_ROUTING] = uint64_t{kRoutingNone};
  c[MARLIN_CONSTANT_CODE_FORM] = number(plan.layout.code_form);
  return c;
}

metal_marlin::GemmProblem Problem::epilogue() const {
  metal_marlin::GemmProblem problem;
  const oracle::Gate gate = spec.gate();
  set_epilogue(problem, spec.epilogue, {gate.gate_limit, gate.up_limit, gate.gate_alpha, gate.up_offset});
  return problem;
}

ProductArgs Problem::product_args() const {
  const gpu::RowBlockLayout& layout = plan.layout;
  ProductArgs args{};
  args.m = static_cast<int32_t>(spec.m);
  args.n = static_cast<int32_t>(spec.n);
  args.slots = static_cast<int32_t>(layout.slots);
  args.k = static_cast<int32_t>(prepared_.empty() ? spec.k : layout.slots);
  args.quads = static_cast<int32_t>(layout.quads);
  args.quad_blocks = static_cast<int32_t>(layout.quad_blocks);
  args.split_blocks = static_cast<int32_t>((block_count(args.slots) + splits() - 1) / splits());
  args.splits = static_cast<int32_t>(splits());
  args.lda = prepared_.empty() ? lda_ : layout.slots;
  args.ldc = ldc_;
  const metal_marlin::GateNumbers gate = epilogue().gate;
  args.gate_limit = gate.gate_limit, args.up_limit = gate.up_limit, args.gate_alpha = gate.alpha,
  args.up_offset = gate.up_offset;
  return args;
}

AssertionResult Problem::prepare_activations(const Setting& setting) {
  const int64_t width = oracle::bytes_of(spec.a_type);
  lda_ = (spec.strides == Strides::odd) ? spec.k + 3 : (spec.k + 7) / 8 * 8;
  a_memory_.assign(at(((spec.m - 1) * lda_ + spec.k) * width), 0xff);
  for (int64_t m = 0; m < spec.m; ++m)
    for (int64_t k = 0; k < spec.k; ++k) {
      double& x = a[at(m * spec.k + k)];
      oracle::write(spec.a_type, a_memory_.data(), m * lda_ + k, x);
      x = oracle::read(spec.a_type, a_memory_.data(), m * lda_ + k);
    }
  prepared_.clear();
  if (!int8() && !plan.layout.permuted) return AssertionSuccess();

  const int64_t slots = plan.layout.slots;
  PrepareArgs args{};
  args.m = static_cast<int32_t>(spec.m);
  args.k = static_cast<int32_t>(spec.k);
  args.slots = static_cast<int32_t>(slots);
  args.lda = lda_;
  if (spec.activation_group < spec.k)
    args.group = static_cast<int32_t>(spec.activation_group == 0 ? 32 : spec.activation_group);
  const std::string name = int8() ? std::string("quantize_") + float_name(spec.a_type) : width == 2 ? "gather_b2" : "gather_b4";
  auto kernel = library("metal/prepare.metal", {}, setting).kernel(name);
  set_constants(kernel, constants());
  prepared_.assign(at(spec.m * slots * (int8() ? 1 : width)), 0xff);
  a_scales_.assign(at(spec.m * slots / kActivationBlock), NAN);
  auto dispatch = kernel.dispatch();
  dispatch.buffer(MARLIN_BUFFER_SOURCE, std::as_const(a_memory_))
      .output(MARLIN_BUFFER_QUANTIZED, prepared_)
      .value(MARLIN_BUFFER_PREPARE_ARGS, args);
  if (int8()) dispatch.output(MARLIN_BUFFER_QUANT_SCALES, a_scales_);
  if (plan.layout.permuted)
    dispatch.buffer(MARLIN_BUFFER_SOURCE_SLOTS, packed.data() + plan.layout.slot_to_k_at, at(slots) * 4);
  const int64_t across = int8() ? slots / kActivationBlock : slots;
  dispatch.groups(static_cast<uint32_t>((across + 31) / 32), static_cast<uint32_t>(spec.m)).threads(32);
  return run_dispatch(dispatch, setting, name);
}

void Problem::bind_part(Dispatch& dispatch, int index, uint64_t from, uint64_t end) const {
  dispatch.buffer(index, static_cast<const void*>(packed.data() + from), static_cast<size_t>(end - from));
}

void Problem::bind_weights(Dispatch& dispatch) const {
  const gpu::RowBlockLayout& layout = plan.layout;
  bind_part(dispatch, MARLIN_BUFFER_CODES, 0, static_cast<uint64_t>(layout.row_blocks() * layout.row_block_code_bytes()));
  const auto bytes = [&](int64_t element) {
    return static_cast<uint64_t>(layout.row_blocks() * layout.row_block_record_bytes(element));
  };
  bind_part(dispatch, MARLIN_BUFFER_SCALES, layout.scales_at,
            layout.scales_at + bytes(static_cast<int64_t>(metal_marlin::scale_bytes(layout.scale_type))));
  if (layout.codes == gpu::KernelCodes::lut4)
    bind_part(dispatch, MARLIN_BUFFER_ZEROS, layout.zeros_at, layout.zeros_at + static_cast<uint64_t>(layout.codebook_bytes()));
  else if (layout.zero_kind != ZeroKind::none)
    bind_part(dispatch, MARLIN_BUFFER_ZEROS, layout.zeros_at,
              layout.zeros_at + static_cast<uint64_t>(layout.row_blocks() * layout.row_block_zero_bytes()));
}

metal_on_cpu::Kernel Problem::kernel(const Setting& setting, std::string* given_name) const {
  const gpu::KernelCodes codes = plan.layout.codes;
  const KernelRow& row = kernel_row(spec);
  const bool int8 = spec.compute == MARLIN_COMPUTE_INT8;
  const std::string a_name = int8 ? "i8" : float_name(spec.a_type), a_type = int8 ? "char" : msl_name(spec.a_type);
  const std::string name = std::string(row.family) + "_" + gpu::kernel_codes_name(codes) + "_" + a_name + "_" + row.suffix;
  const std::string one = std::string(gpu::kernel_codes_name(codes)) + "," + codes_type(codes) + "," + a_name + "," + a_type;
  const std::string tile = std::to_string(row.rows) + "," + std::to_string(row.columns);
  std::vector<std::string> defines = {"MARLIN_PRODUCTS(X)=X(" + one + ")"};
  if (row.nax()) defines.push_back("MARLIN_NAX_ROWS(X,...)=X(__VA_ARGS__," + std::to_string(row.rows) + ")");
  if (row.matrix()) {
    defines.push_back("MARLIN_REGDECODE_TILES(DIRECT,THREADGROUP,...)=" +
                      std::string(row.shares_a() ? "THREADGROUP" : "DIRECT") + "(__VA_ARGS__," + tile + ")");
  } else {
    defines.push_back("MARLIN_GEMV_ROWS(X,...)=X(__VA_ARGS__," + std::to_string(row.rows) + ")");
  }
  auto kernel = library((row.tensor() ? "metal4/regdecode_" + row.suffix.substr(row.suffix.rfind('_') + 1) + ".metal"
                                      : "metal/" + std::string(row.family) + ".metal"),
                        defines, setting)
                    .kernel(name);
  set_constants(kernel, constants());
  if (given_name != nullptr) *given_name = name;
  return kernel;
}

AssertionResult Problem::multiply(const Setting& setting) {
  const gpu::RowBlockLayout& layout = plan.layout;
  const KernelRow& row = kernel_row(spec);
  std::string name;
  auto dispatch = kernel(setting, &name).dispatch();
  bind_weights(dispatch);
  if (layout.row_factor != kRowFactorNone)
    bind_part(dispatch, MARLIN_BUFFER_ROWS, layout.factors_at,
              layout.factors_at + static_cast<uint64_t>(layout.row_blocks()) * kRowBlock * sizeof(RowFactor));
  dispatch.buffer(MARLIN_BUFFER_A, std::as_const(prepared_.empty() ? a_memory_ : prepared_));
  if (int8()) dispatch.buffer(MARLIN_BUFFER_A_SCALES, std::as_const(a_scales_));
  if (is_partial()) {
    partials_.assign(at(splits() * spec.m * spec.n), NAN);
    dispatch.output(MARLIN_BUFFER_PARTIALS, partials_);
  } else {
    if (spec.bias_type != 0) dispatch.buffer(MARLIN_BUFFER_BIAS, std::as_const(bias_memory_));
    dispatch.buffer(MARLIN_BUFFER_C, c_memory_.data(), c_memory_.size());
  }
  dispatch.value(MARLIN_BUFFER_ARGS, product_args());
  dispatch.groups(static_cast<uint32_t>((spec.n + row.columns - 1) / row.columns),
                  static_cast<uint32_t>((spec.m + row.rows - 1) / row.rows), static_cast<uint32_t>(splits()));
  dispatch.threads(is_wide() ? row.wide_threads : row.threads);
  return run_dispatch(dispatch, setting, name, &counters);
}

AssertionResult Problem::finish(const Setting& setting) {
  auto kernel = library("metal/finish.metal", {}, setting).kernel("finish");
  set_constants(kernel, constants());
  auto dispatch = kernel.dispatch();
  dispatch.buffer(MARLIN_BUFFER_PARTIALS, std::as_const(partials_));
  if (plan.layout.row_factor != kRowFactorNone)
    dispatch.buffer(MARLIN_BUFFER_ROWS, static_cast<const void*>(packed.data() + plan.layout.factors_at),
                    at(spec.n) * sizeof(RowFactor));
  if (spec.bias_type != 0) dispatch.buffer(MARLIN_BUFFER_BIAS, std::as_const(bias_memory_));
  dispatch.buffer(MARLIN_BUFFER_C, c_memory_.data(), c_memory_.size()).value(MARLIN_BUFFER_ARGS, product_args());
  dispatch.groups(static_cast<uint32_t>((columns() + 31) / 32), static_cast<uint32_t>(spec.m)).threads(32);
  return run_dispatch(dispatch, setting, "finish");
}

AssertionResult Problem::run(const Setting& setting) {
  bias_memory_.assign(bias.size() * 4, 0);
  for (size_t i = 0; i < bias.size(); ++i) {
    oracle::write(spec.bias_type, bias_memory_.data(), static_cast<int64_t>(i), bias[i]);
    bias[i] = oracle::read(spec.bias_type, bias_memory_.data(), static_cast<int64_t>(i));
  }
  const int64_t width = oracle::bytes_of(spec.c_type);
  ldc_ = columns() + ((spec.strides == Strides::odd) ? 5 : 0);
  c_memory_.assign(at(((spec.m - 1) * ldc_ + columns()) * width), 0xff);
  for (int64_t m = 0; spec.accumulate && m < spec.m; ++m)
    for (int64_t n = 0; n < columns(); ++n) {
      double& x = c_before[at(m * columns() + n)];
      oracle::write(spec.c_type, c_memory_.data(), m * ldc_ + n, x);
      x = oracle::read(spec.c_type, c_memory_.data(), m * ldc_ + n);
    }
  if (AssertionResult r = prepare_activations(setting); !r) return r;
  if (AssertionResult r = multiply(setting); !r) return r;
  return is_partial() ? finish(setting) : AssertionSuccess();
}

AssertionResult Problem::check() {
  const oracle::Weights weights = expected();
  oracle::Product product = problem::product_of(spec, weights);
  product.a = a;
  product.bias = bias;
  if (spec.accumulate) product.c = c_before;
  std::vector<double> got;
  for (int64_t m = 0; m < spec.m; ++m)
    for (int64_t n = 0; n < columns(); ++n) got.push_back(c_at(m, n));
  worst = 0;
  if (AssertionResult r = problem::compare(oracle::multiply(product), got, columns(), &worst); !r) return r;
  const int64_t width = oracle::bytes_of(spec.c_type);
  for (int64_t m = 0; m + 1 < spec.m; ++m)
    for (int64_t i = (m * ldc_ + columns()) * width; i < (m + 1) * ldc_ * width; ++i)
      if (c_memory_[at(i)] != 0xff) return AssertionFailure() << "C: the gap after row " << m << " was written";
  return AssertionSuccess();
}

namespace {

/// Equal bits, or both NaN.
bool same(marlin_dtype type, const uint8_t* got, double expected) {
  uint8_t want[4] = {};
  oracle::write(type, want, 0, expected);
  const double value = oracle::read(type, got, 0);
  return std::isnan(expected) ? std::isnan(value) : std::memcmp(got, want, at(oracle::bytes_of(type))) == 0;
}

}  // namespace

AssertionResult Problem::check_unpack(marlin_dtype type, const std::vector<int32_t>& rows, const Setting& setting) {
  const gpu::RowBlockLayout& layout = plan.layout;
  const oracle::Weights weights = expected();
  const int64_t count = rows.empty() ? spec.n : static_cast<int64_t>(rows.size()), ld = spec.k + 3,
                width = oracle::bytes_of(type);
  std::vector<uint8_t> out(at(((count - 1) * ld + spec.k) * width), 0xEE);
  UnpackArgs args{};
  args.n = static_cast<int32_t>(spec.n);
  args.k = static_cast<int32_t>(spec.k);
  args.slots = static_cast<int32_t>(layout.slots);
  args.quads = static_cast<int32_t>(layout.quads);
  args.quad_blocks = static_cast<int32_t>(layout.quad_blocks);
  args.count = static_cast<int32_t>(count);
  args.ld = ld;
  args.id_stride = 1;
  const std::string name = std::string("unpack_") + gpu::kernel_codes_name(layout.codes);
  auto kernel = library("metal/unpack.metal", {}, setting).kernel(name);
  Constants values = constants();
  values[MARLIN_CONSTANT_OUTPUT_TYPE] = float_constant(type);
  values[MARLIN_CONSTANT_ROW_LIST] = !rows.empty();
  set_constants(kernel, values);
  auto dispatch = kernel.dispatch();
  bind_weights(dispatch);
  if (layout.row_factor != kRowFactorNone)
    bind_part(dispatch, MARLIN_BUFFER_ROWS, layout.origins_at,
              layout.origins_at + static_cast<uint64_t>(layout.row_blocks()) * kRowBlock * sizeof(RowOrigin));
  if (!rows.empty()) dispatch.buffer(MARLIN_BUFFER_ROW_LIST, rows);
  if (layout.permuted)
    dispatch.buffer(MARLIN_BUFFER_SLOT_TO_K, static_cast<const void*>(packed.data() + layout.slot_to_k_at),
                    at(layout.slots) * 4);
  dispatch.buffer(MARLIN_BUFFER_OUT, out.data(), out.size()).value(MARLIN_BUFFER_UNPACK_ARGS, args);
  dispatch.groups(static_cast<uint32_t>((layout.slots / kUnitSlots + 31) / 32), static_cast<uint32_t>(count)).threads(32);
  if (AssertionResult r = run_dispatch(dispatch, setting, name); !r) return r;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < spec.k; ++k) {
      const int64_t row = rows.empty() ? i : rows[at(i)];
      const double want =
          row < 0 || row >= spec.n ? std::numeric_limits<double>::quiet_NaN() : double{oracle::value_f32(weights, row, k)};
      const uint8_t* const got = out.data() + (i * ld + k) * width;
      if (!same(type, got, want))
        return AssertionFailure() << name << " W[" << row << ", " << k << "]: expected " << want << ", found "
                                  << oracle::read(type, got, 0) << " (" << spec.describe() << ")";
    }
  for (int64_t i = 0; i + 1 < count; ++i)
    for (int64_t b = (i * ld + spec.k) * width; b < (i + 1) * ld * width; ++b)
      if (out[at(b)] != 0xEE) return AssertionFailure() << name << ": the gap after row " << i << " was written";
  return AssertionSuccess();
}

AssertionResult holds(const Case& spec, const Setting& setting) {
  Problem problem(spec);
  AssertionResult step = problem.pack();
  if (step) step = problem.run(setting);
  if (step) step = problem.check();
  return step ? step : AssertionFailure() << spec.describe() << ": " << step.message();
}

}  // namespace shaders
