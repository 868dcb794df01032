#include "checkpoints/gguf_parts.h"

#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <deque>

#include "checkpoints/gguf_file.h"

namespace metal_marlin {
namespace {

constexpr std::string_view kOf = "-of-";
constexpr size_t kDigits = 5;  // at least

/// Takes "-" and a number of at least five digits from the end of a text.
std::optional<uint64_t> take_number(std::string_view& text) {
  const size_t dash = text.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view digits = text.substr(dash + 1);
  uint64_t number = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_padded = digits.size() > kDigits && digits[0] == '0';
  if (digits.size() < kDigits || is_padded || end.ec != std::errc() ||
      end.ptr != digits.data() + digits.size())
    return std::nullopt;
  text = text.substr(0, dash);
  return number;
}

/// Compares a key of a part with the number that the other parts ask for.
Status check_key(const GgufHeader& part, const char* key, const std::optional<uint64_t>& found,
                 uint64_t expected, const char* source) {
  if (found == expected) return {};
  if (!found) {
    return Status::error(MARLIN_E_FORMAT,
                         "%s: byte 0: key '%s': expected %" PRIu64 " by %s, found none",
                         file_label(part.name), key, expected, source);
  }
  return Status::error(MARLIN_E_FORMAT,
                       "%s: byte 0: key '%s': expected %" PRIu64 " by %s, found %" PRIu64,
                       file_label(part.name), key, expected, source, *found);
}

/// The name of the first part, which must agree with its keys. `count` is its split.count.
Result<GgufPartName> check_first(const GgufHeader& first, uint64_t count) {
  const uint64_t number = first.split.number.value_or(0) + 1;
  const auto name = parse_gguf_part_name(first.name);
  if (!name) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "%s: byte 0: this is part %" PRIu64 " of %" PRIu64
                         " of a split model: expected a name with the ending '%s', which leads to "
                         "the other parts",
                         file_label(first.name), number, count,
                         gguf_part_name("", number, count).c_str());
  }
  MARLIN_RETURN_IF_ERROR(
      check_key(first, "split.count", first.split.count, name->count, "the file's name"));
  MARLIN_RETURN_IF_ERROR(
      check_key(first, "split.no", first.split.number, name->number - 1, "the file's name"));
  if (number == 1) return *name;
  const std::string open = gguf_part_name(name->stem, 1, count);
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "%s: byte 0: this is part %" PRIu64 " of %" PRIu64
                       " of a split model: open its first part, '%s'",
                       file_label(first.name), number, count, file_label(open));
}

/// A part other than the first. `tensors` is the split.tensors.count of the first.
Result<GgufHeader> open_part(Folder& folder, const GgufPartName& name, uint64_t number,
                             uint64_t tensors) {
  const std::string file = gguf_part_name(name.stem, number, name.count);
  const auto bytes = folder.open(file);
  if (!bytes.ok()) {
    const Status why = bytes.status();
    return Status::error(why.code(), "%s: part %" PRIu64 " of %" PRIu64 " of a split model: %s",
                         file_label(file), number, name.count, why.message())
        .with_native(why.native_code());
  }
  ValueTable values;  // those of the model are in the first part
  MARLIN_ASSIGN(GgufHeader part, read_gguf_header(file, bytes.value(), values));
  const GgufSplit& split = part.split;
  MARLIN_RETURN_IF_ERROR(check_key(part, "split.count", split.count, name.count, "part 1"));
  MARLIN_RETURN_IF_ERROR(check_key(part, "split.no", split.number, number - 1, "the file's name"));
  MARLIN_RETURN_IF_ERROR(check_key(part, "split.tensors.count", split.tensors, tensors, "part 1"));
  return part;
}

/// Adds the headers of the other parts to that of the first.
Status add_other_parts(Folder& folder, std::deque<GgufHeader>& parts) {
  const GgufHeader& first = parts.front();  // a deque that grows moves no element
  const uint64_t count = first.split.count.value_or(0);
  if (count < 2) return {};
  MARLIN_ASSIGN(const GgufPartName name, check_first(first, count));
  if (!first.split.tensors) {
    return Status::error(MARLIN_E_FORMAT,
                         "%s: byte 0: key 'split.tensors.count': expected in a part of a split "
                         "model, found none",
                         file_label(first.name));
  }
  const uint64_t expected = *first.split.tensors;
  uint64_t tensors = first.tensor_count;
  for (uint64_t number = 2; number <= count; ++number) {
    MARLIN_ASSIGN(GgufHeader part, open_part(folder, name, number, expected));
    tensors += part.tensor_count;
    parts.push_back(std::move(part));
  }
  if (tensors == expected) return {};
  return Status::error(MARLIN_E_FORMAT,
                       "%s: byte 0: key 'split.tensors.count': expected the %" PRIu64
                       " tensors of all %" PRIu64 " parts, found %" PRIu64,
                       file_label(first.name), tensors, count, expected);
}

}  // namespace

std::optional<GgufPartName> parse_gguf_part_name(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending)) return std::nullopt;
  name.remove_suffix(ending.size());
  const auto count = take_number(name);
  // take_number() has taken the last dash of "-of-".
  if (!count || !name.ends_with(kOf.substr(0, kOf.size() - 1))) return std::nullopt;
  name.remove_suffix(kOf.size() - 1);
  const auto number = take_number(name);
  if (!number || *number == 0 || *number > *count) return std::nullopt;
  return GgufPartName{name, *number, *count};
}

std::string gguf_part_name(std::string_view stem, uint64_t number, uint64_t count,
                           const char* ending) {
  char place[64];
  std::snprintf(place, sizeof place, "-%05" PRIu64 "-of-%05" PRIu64, number, count);
  return std::string(stem) + place + ending;
}

Status read_gguf(const std::string& name, std::span<const std::byte> bytes, Folder& folder,
                 TensorTable& table, ValueTable& values) {
  std::deque<GgufHeader> parts;
  MARLIN_ASSIGN(GgufHeader first, read_gguf_header(name, bytes, values));
  parts.push_back(std::move(first));
  MARLIN_RETURN_IF_ERROR(add_other_parts(folder, parts));
  size_t tensors = 0, pool = 0;
  for (const GgufHeader& part : parts) {
    tensors += part.tensor_count;
    pool += part.pool_bytes;
  }
  table.reserve(tensors, pool);
  for (const GgufHeader& part : parts) MARLIN_RETURN_IF_ERROR(add_gguf_tensors(part, table));
  return {};
}

}  // namespace metal_marlin
