#include "checkpoints/value_table.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>

#include "api/checkpoint.h"
#include "api/errors.h"
#include "api/weights.h"
#include "base/bits.h"

using namespace metal_marlin;

namespace {

constexpr double kTwo63 = 9223372036854775808.0, kTwo64 = 2 * kTwo63;

marlin_value_type element_type_of(gguf::ValueType type) {
  static constexpr marlin_value_type kTypes[] = {
      MARLIN_VALUE_U8,     MARLIN_VALUE_I8,    MARLIN_VALUE_U16, MARLIN_VALUE_I16,
      MARLIN_VALUE_U32,    MARLIN_VALUE_I32,   MARLIN_VALUE_F32, MARLIN_VALUE_BOOL,
      MARLIN_VALUE_STRING, MARLIN_VALUE_ARRAY, MARLIN_VALUE_U64, MARLIN_VALUE_I64,
      MARLIN_VALUE_F64};
  return kTypes[type];
}

void set_integer(marlin_value& out, int64_t value) {
  out.kind = MARLIN_VALUE_I64;
  out.i64 = value;
  out.u64 = value < 0 ? 0 : static_cast<uint64_t>(value);
  out.f64 = static_cast<double>(value);
}
void set_natural(marlin_value& out, uint64_t value) {
  out.kind = MARLIN_VALUE_U64;
  out.i64 = static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX));
  out.u64 = value;
  out.f64 = static_cast<double>(value);
}
/// NaN becomes the integer 0.
void set_real(marlin_value& out, double value) {
  out.kind = MARLIN_VALUE_F64;
  out.f64 = value;
  if (std::isnan(value)) return;
  const double bounded = std::max(value, -kTwo63);
  out.i64 = bounded >= kTwo63 ? INT64_MAX : static_cast<int64_t>(bounded);
  out.u64 = value >= kTwo64 ? UINT64_MAX : static_cast<uint64_t>(std::max(value, 0.0));
}

void set_number(marlin_value& out, gguf::ValueType type, const std::byte* data) {
  switch (type) {
    case gguf::kU8:
      return set_natural(out, load<uint8_t>(data));
    case gguf::kI8:
      return set_integer(out, load<int8_t>(data));
    case gguf::kU16:
      return set_natural(out, load<uint16_t>(data));
    case gguf::kI16:
      return set_integer(out, load<int16_t>(data));
    case gguf::kU32:
      return set_natural(out, load<uint32_t>(data));
    case gguf::kI32:
      return set_integer(out, load<int32_t>(data));
    case gguf::kU64:
      return set_natural(out, load<uint64_t>(data));
    case gguf::kI64:
      return set_integer(out, load<int64_t>(data));
    case gguf::kF32:
      return set_real(out, static_cast<double>(load<float>(data)));
    case gguf::kF64:
      return set_real(out, load<double>(data));
    default:  // kBool
      set_integer(out, load<uint8_t>(data) != 0 ? 1 : 0);
      out.kind = MARLIN_VALUE_BOOL;
  }
}

Status write_value(const ValueTable& values, size_t index, marlin_value* out) {
  MARLIN_ASSIGN(const Value value, values.at(index));
  marlin_value filled{};
  filled.key = value.key.data();
  filled.key_bytes = value.key.size();
  if (value.type == gguf::kString || value.type == gguf::kArray) {
    filled.kind = element_type_of(value.type);
    filled.data = value.data.data();
    filled.bytes = filled.count = value.data.size();
  } else {
    set_number(filled, value.type, value.data.data());
  }
  if (value.type == gguf::kArray) {
    filled.element_type = element_type_of(value.element_type);
    filled.count = value.count;
  }
  return api::write_descriptor(out, filled, "out");
}

/// The key-values of a checkpoint, if the arguments that all readers share are right.
Result<const ValueTable*> values_of(const marlin_checkpoint* checkpoint, const marlin_value* out) {
  MARLIN_RETURN_IF_ERROR(api::check_handle(checkpoint, "checkpoint"));
  MARLIN_RETURN_IF_ERROR(api::check_output(out, "out"));
  const ValueTable& values = checkpoint->files->values();
  MARLIN_RETURN_IF_ERROR(values.status());
  return &values;
}

Status next_string(const marlin_value* array, const char** text, uint64_t* bytes) {
  if (array == nullptr) return Status::error(MARLIN_E_ARGUMENT, "array is NULL");
  if (text == nullptr) return Status::error(MARLIN_E_ARGUMENT, "text is NULL");
  if (bytes == nullptr) return Status::error(MARLIN_E_ARGUMENT, "bytes is NULL");
  MARLIN_ASSIGN(const marlin_value a, api::read_descriptor(array, "array"));
  if (a.reserved != 0)
    return Status::error(MARLIN_E_UNSUPPORTED, "array->reserved is %u, expected 0", a.reserved);
  if (a.kind != MARLIN_VALUE_ARRAY || a.element_type != MARLIN_VALUE_STRING) {
    return Status::error(MARLIN_E_ARGUMENT,
                         "array is of kind %d of %d, expected an array (%d) of strings (%d)",
                         a.kind, a.element_type, MARLIN_VALUE_ARRAY, MARLIN_VALUE_STRING);
  }
  std::span<const std::byte> rest(static_cast<const std::byte*>(a.data), a.bytes);
  if (*text != nullptr) {
    const auto begin = reinterpret_cast<uintptr_t>(*text) - reinterpret_cast<uintptr_t>(a.data);
    if (begin > a.bytes || *bytes > a.bytes - begin)
      return Status::error(MARLIN_E_ARGUMENT, "text and bytes are no string of the array");
    rest = rest.subspan(begin + *bytes);
  }
  if (rest.empty()) return Status::error(MARLIN_E_NOT_FOUND, "the array has no more strings");
  const auto next = take_gguf_string(rest);
  if (!next) {
    return Status::error(MARLIN_E_FORMAT, "array: byte %" PRIu64 ": expected a string",
                         a.bytes - rest.size());
  }
  *text = next->data();
  *bytes = next->size();
  return {};
}

}  // namespace

marlin_status marlin_checkpoint_value(const marlin_checkpoint* checkpoint, const char* key,
                                      marlin_value* out, marlin_error* err) {
  return api::boundary(err, [&]() -> Status {
    MARLIN_ASSIGN(const ValueTable* values, values_of(checkpoint, out));
    if (key == nullptr) return Status::error(MARLIN_E_ARGUMENT, "key is NULL");
    const auto index = values->find(key);
    if (!index)
      return Status::error(MARLIN_E_NOT_FOUND, "key '%.160s' is not in the checkpoint", key);
    return write_value(*values, *index, out);
  });
}

marlin_status marlin_checkpoint_value_at(const marlin_checkpoint* checkpoint, uint64_t index,
                                         marlin_value* out, marlin_error* err) {
  return api::boundary(err, [&]() -> Status {
    MARLIN_ASSIGN(const ValueTable* values, values_of(checkpoint, out));
    if (index >= values->size())
      return Status::error(MARLIN_E_NOT_FOUND, "key-value %" PRIu64 " of %zu", index,
                           values->size());
    return write_value(*values, index, out);
  });
}

marlin_status marlin_value_next_string(const marlin_value* array, const char** text,
                                       uint64_t* bytes, marlin_error* err) {
  return api::boundary(err, [&] { return next_string(array, text, bytes); });
}
