#include "core/shapes.h"

#include <algorithm>
#include <cinttypes>

#include "base/bits.h"
#include "base/checked.h"

namespace metal_marlin {
namespace {

/// Floor of a / b for b > 0.
constexpr int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b < 0);  // NOLINT(clang-analyzer-core.DivideZero)
}

Status check_cols(const MatrixView& m, const char* name, int64_t expected, const char* what) {
  if (m.cols == expected) return {};
  return Status::error(MARLIN_E_SHAPE, "%s.cols is %" PRId64 ", expected %s = %" PRId64, name,
                       m.cols, what, expected);
}

Status check_apart(const MatrixView& c, const MatrixView& input, const char* name) {
  if (!overlap(c, input)) return {};
  return Status::error(MARLIN_E_ARGUMENT,
                       "c overlaps %s: c [%" PRId64 ", %" PRId64 "] at %p, %s [%" PRId64
                       ", %" PRId64 "] at %p",
                       name, c.rows, c.cols, c.data, name, input.rows, input.cols, input.data);
}

Status check_row_count(const MatrixView& m, const char* name, int64_t expected, const char* what) {
  if (m.rows == expected) return {};
  return Status::error(MARLIN_E_SHAPE, "%s.rows is %" PRId64 ", expected %s = %" PRId64, name,
                       m.rows, what, expected);
}

/// Checks ids and scales, and the rows of A and C that follow from them.
Status check_routing(const GemmProblem& p) {
  const MatrixView &ids = p.routing.ids, &scales = p.routing.scales;
  if (ids.dtype != MARLIN_I32)
    return Status::error(MARLIN_E_ARGUMENT, "expert_ids.dtype is %d, expected I32 (%d)", ids.dtype,
                         MARLIN_I32);
  const auto slots = (Checked(ids.rows) * Checked(ids.cols)).at_most(INT32_MAX);
  // Without tokens there are no slots. However, plans are made for at least one token.
  if (ids.cols < 1 || ids.cols > INT32_MAX || !slots)
    return Status::error(MARLIN_E_SHAPE,
                         "expert_ids is [%" PRId64 ", %" PRId64
                         "], expected 1 .. 2^31 - 1 ids a token and in all",
                         ids.rows, ids.cols);
  const auto all = static_cast<int64_t>(*slots);
  if (p.a.rows != ids.rows && p.a.rows != all)
    return Status::error(MARLIN_E_SHAPE,
                         "a.rows is %" PRId64 ", expected a row a token = %" PRId64
                         " or one for each of its experts = %" PRId64,
                         p.a.rows, ids.rows, all);
  if (!scales.present()) return check_row_count(p.c, "c", all, "rows times cols of expert_ids");
  MARLIN_RETURN_IF_ERROR(check_floats(scales, "expert_scales"));
  MARLIN_RETURN_IF_ERROR(check_cols(scales, "expert_scales", ids.cols, "expert_ids.cols"));
  MARLIN_RETURN_IF_ERROR(check_row_count(scales, "expert_scales", ids.rows, "expert_ids.rows"));
  return check_row_count(p.c, "c", ids.rows, "expert_ids.rows, as expert_scales are given");
}

Status check_bias(const GemmProblem& p) {
  if (!p.bias.present()) return {};
  MARLIN_RETURN_IF_ERROR(check_floats(p.bias, "bias"));
  MARLIN_RETURN_IF_ERROR(check_cols(p.bias, "bias", p.weights->meta().n, "n of the weights"));
  const int64_t experts = p.routing.present() ? static_cast<int64_t>(p.routing.stack->size()) : 1;
  if (p.bias.rows == 1 || p.bias.rows == experts) return {};
  return Status::error(MARLIN_E_SHAPE, "bias.rows is %" PRId64 ", expected 1%s", p.bias.rows,
                       experts > 1 ? " or one for each expert" : "");
}

/// Whether the scales of activations are those of groups that kernels have.
Status check_activation_group(const GemmProblem& p) {
  const int64_t group = p.activation_group;
  if (group == kLeastActivationGroup) return {};
  if (p.compute != MARLIN_COMPUTE_INT8)
    return Status::error(MARLIN_E_ARGUMENT,
                         "activation_group is %" PRId64
                         " and compute is %d, expected 0, or compute "
                         "1 (INT8)",
                         group, p.compute);
  if (group == 64 || group == 128 || (group > 0 && group >= p.weights->meta().k)) return {};
  return Status::error(MARLIN_E_ARGUMENT,
                       "activation_group is %" PRId64 ", expected 0, 32, 64, 128, or K (%" PRId64
                       ") and more for one scale per row",
                       group, p.weights->meta().k);
}

Status check_choices(const GemmProblem& p) {
  if (p.weights == nullptr) return Status::error(MARLIN_E_ARGUMENT, "weights is NULL");
  if (p.compute < MARLIN_COMPUTE_DEFAULT || p.compute > MARLIN_COMPUTE_W16)
    return Status::error(MARLIN_E_ARGUMENT,
                         "compute is %d, expected 0 (default), 1 (INT8), 2 (FP8) or 3 (W16)",
                         p.compute);
  if (p.epilogue < MARLIN_EPILOGUE_NONE || p.epilogue > MARLIN_EPILOGUE_SITU)
    return Status::error(MARLIN_E_ARGUMENT, "epilogue is %d, expected 0..%d", p.epilogue,
                         MARLIN_EPILOGUE_SITU);
  return {};
}

}  // namespace

const char* activation_group_text(int64_t group) {
  switch (group) {
    case kLeastActivationGroup:
      return "int8 in groups of 32";
    case 64:
      return "int8 in groups of 64";
    case 128:
      return "int8 in groups of 128";
    default:
      return "int8 with one scale per row";
  }
}

void set_epilogue(GemmProblem& problem, marlin_epilogue epilogue, const GateNumbers& given) {
  const bool of_gpt_oss = epilogue == MARLIN_EPILOGUE_SWIGLU_OAI;
  problem.epilogue = of_gpt_oss ? MARLIN_EPILOGUE_SWIGLU : epilogue;
  problem.gate = of_gpt_oss ? GateNumbers{7.0f, 7.0f, 1.702f, 1.0f} : GateNumbers();
  if (given.gate_limit != 0) problem.gate.gate_limit = given.gate_limit;
  if (given.up_limit != 0) problem.gate.up_limit = given.up_limit;
  if (given.alpha != 0) problem.gate.alpha = given.alpha;
  if (given.up_offset != 0) problem.gate.up_offset = given.up_offset;
}

int64_t element_bytes(const MatrixView& m) {
  return m.dtype == MARLIN_I32 ? 4 : static_cast<int64_t>(float_bytes(m.dtype));
}

int64_t span_bytes(const MatrixView& m) {
  if (m.rows == 0 || m.cols == 0) return 0;
  return ((m.rows - 1) * m.stride + m.cols) * element_bytes(m);
}

std::array<Input, kInputs> inputs_of(const GemmProblem& p) {
  return {{{p.a, "a"},
           {p.bias, "bias"},
           {p.routing.ids, "expert_ids"},
           {p.routing.scales, "expert_scales"}}};
}

Status check_floats(const MatrixView& m, const char* name) {
  if (float_bytes(m.dtype) != 0) return {};
  return Status::error(MARLIN_E_ARGUMENT, "%s.dtype is %d, expected F32 (1), F16 (2) or BF16 (3)",
                       name, m.dtype);
}

Status check_gemm(const GemmProblem& p, Pointers pointers) {
  MARLIN_RETURN_IF_ERROR(check_choices(p));
  MARLIN_RETURN_IF_ERROR(check_activation_group(p));
  const WeightMeta& w = p.weights->meta();
  MARLIN_RETURN_IF_ERROR(check_floats(p.a, "a"));
  MARLIN_RETURN_IF_ERROR(check_floats(p.c, "c"));
  MARLIN_RETURN_IF_ERROR(check_cols(p.a, "a", w.k, "k of the weights"));
  if (is_two_input(p.epilogue)) {
    if (w.n % 2 != 0)
      return Status::error(MARLIN_E_SHAPE,
                           "n of the weights is %" PRId64
                           ", expected even: epilogue %d takes gate and up rows",
                           w.n, p.epilogue);
    MARLIN_RETURN_IF_ERROR(check_cols(p.c, "c", w.n / 2, "n / 2 of the weights"));
  } else {
    MARLIN_RETURN_IF_ERROR(check_cols(p.c, "c", w.n, "n of the weights"));
  }
  MARLIN_RETURN_IF_ERROR(p.routing.present() ? check_routing(p)
                                             : check_row_count(p.c, "c", p.a.rows, "a.rows"));
  MARLIN_RETURN_IF_ERROR(check_bias(p));
  if (pointers == Pointers::unread) return {};
  for (const Input& input : inputs_of(p))
    MARLIN_RETURN_IF_ERROR(check_apart(p.c, input.matrix, input.name));
  return {};
}

Result<int64_t> selected_row(const RowSelection& rows, int64_t i, int64_t n) {
  if (!rows.ids.present()) return rows.first + i;
  const int64_t id =
      load<int32_t>(static_cast<const std::byte*>(rows.ids.data) + i * rows.ids.stride * 4);
  if (id >= 0 && id < n) return id;
  return Status::error(MARLIN_E_ARGUMENT,
                       "row id %" PRId64 " of output row %" PRId64 " is outside [0, %" PRId64 ")",
                       id, i, n);
}

Status check_rows(const RowSelection& rows, int64_t count, int64_t n) {
  if (!rows.ids.present()) return {};
  for (int64_t i = 0; i < count; ++i) MARLIN_RETURN_IF_ERROR(selected_row(rows, i, n).status());
  return {};
}

bool overlap(const MatrixView& a, const MatrixView& b) {
  const int64_t a_bytes = span_bytes(a), b_bytes = span_bytes(b);
  if (a_bytes == 0 || b_bytes == 0) return false;
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data),
             b_begin = reinterpret_cast<uintptr_t>(b.data);
  if (a_begin >= b_begin + static_cast<uint64_t>(b_bytes) ||
      b_begin >= a_begin + static_cast<uint64_t>(a_bytes))
    return false;

  // The stride of a single row has no meaning and may be any number.
  const int64_t a_element = element_bytes(a), b_element = element_bytes(b);
  const int64_t a_stride = a.rows > 1 ? a.stride * a_element : 0,
                b_stride = b.rows > 1 ? b.stride * b_element : 0;
  if (a.rows > 1 && b.rows > 1 && a_stride != b_stride) return true;
  if (a.rows == 1 && b.rows == 1) return true;
  // Row i of a is [i s, i s + aw), and row j of b is [d + j s, d + j s + bw) with d = b - a. With t
  // = j - i, they share a byte if -bw < d + t s < aw. i and j exist for every t in [-(a.rows - 1),
  // b.rows - 1].
  const int64_t s = a.rows > 1 ? a_stride : b_stride, d = static_cast<int64_t>(b_begin - a_begin);
  const int64_t first = std::max(floor_div(-b.cols * b_element - d, s) + 1, -(a.rows - 1));
  const int64_t last = std::min(-floor_div(d - a.cols * a_element, s) - 1, b.rows - 1);
  return first <= last;
}

}  // namespace metal_marlin
