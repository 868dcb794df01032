#include "checkpoints/config_values.h"

#include <charconv>
#include <cinttypes>
#include <optional>
#include <string>
#include <vector>

#include "base/bits.h"
#include "checkpoints/config_section.h"
#include "checkpoints/folder.h"
#include "checkpoints/json.h"

namespace metal_marlin {
namespace {

using Kind = JsonEvent::Kind;
using gguf::ValueType;

constexpr size_t kFree = 64u << 10;        // bytes for a text of any length
constexpr size_t kIndexBytes = 3 * 8 + 4;  // of a value in a ValueTable whose index grows
constexpr size_t kArrayHeader = 4 + 8;     // the type of the elements, and their count
constexpr size_t kNumber = 8;

bool is_number(ValueType type) {
  return type == gguf::kI64 || type == gguf::kU64 || type == gguf::kF64;
}

std::optional<int64_t> negative_of(const JsonEvent& e) {
  int64_t value = 0;
  const auto end = std::from_chars(e.text.data(), e.text.data() + e.text.size(), value);
  return end.ec == std::errc() ? std::optional(value) : std::nullopt;
}

ValueType type_of(const JsonEvent& e) {
  switch (e.kind) {
    case Kind::string:
      return gguf::kString;
    case Kind::boolean:
      return gguf::kBool;
    case Kind::integer:
      return e.integer <= INT64_MAX ? gguf::kI64 : gguf::kU64;
    case Kind::negative:
      return negative_of(e) ? gguf::kI64 : gguf::kF64;
    default:
      return gguf::kF64;
  }
}

class Flattener {
 public:
  explicit Flattener(size_t text_bytes) : most_(2 * text_bytes + kFree) { out_.reserve(most_); }

  Status visit(const JsonEvent& e) {
    if (array_depth_ != 0) {
      visit_in_array(e);
    } else {
      visit_in_object(e);
    }
    return is_full_ ? too_large(e.offset) : Status();
  }
  void add(std::string_view key, std::string_view text) {
    path_ = key;
    begin_value(gguf::kString);
    put_text(text);
  }
  ValueTable table() {
    begins_.push_back(out_.size());
    begins_.shrink_to_fit();
    if (out_.size() < most_ / 2) out_.shrink_to_fit();
    return {std::move(out_), std::move(begins_)};
  }

 private:
  Status too_large(uint64_t offset) const {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "config.json: byte %" PRIu64
                         ": the members with their paths take more than %zu bytes",
                         offset, most_);
  }

  void visit_in_object(const JsonEvent& e) {
    switch (e.kind) {
      case Kind::object:
        bases_.push_back(path_.size());
        break;
      case Kind::end_object:
        bases_.pop_back();
        break;
      case Kind::key:
        path_.resize(bases_.back());
        if (bases_.size() > 1) path_ += '.';
        path_ += e.text;
        break;
      case Kind::array:
        begin_array(e);
        break;
      case Kind::null:
      case Kind::end_array:
        break;
      default:
        if (bases_.empty()) break;  // the whole text is one value and no object
        begin_value(type_of(e));
        put_element(e, type_of(e));
    }
  }

  void begin_array(const JsonEvent& e) {
    array_depth_ = e.depth;
    count_ = 0;
    element_ = gguf::kString;
    is_listed_ = !bases_.empty();
    if (!is_listed_) return;
    begin_value(gguf::kArray);
    elements_ = out_.size() + kArrayHeader;
    put(int32_t{gguf::kString});
    put(uint64_t{0});
  }

  void visit_in_array(const JsonEvent& e) {
    if (e.kind == Kind::end_array && e.depth == array_depth_) {
      array_depth_ = 0;
      if (is_listed_ && !is_full_) {
        store(out_.data() + elements_ - kArrayHeader, int32_t{element_});
        store(out_.data() + elements_ - sizeof count_, count_);
      }
      return;
    }
    if (!is_listed_) return;
    if (e.kind == Kind::object || e.kind == Kind::array || e.kind == Kind::null || !unify(e)) {
      is_listed_ = false;
      out_.resize(begins_.back());
      begins_.pop_back();
      return;
    }
    ++count_;
    put_element(e, element_);
  }

  /// Finds a type for this element and those before it. False if there is none.
  bool unify(const JsonEvent& e) {
    const ValueType type = type_of(e);
    if (count_ == 0) element_ = type;
    if (type == element_) return true;
    if (!is_number(type) || !is_number(element_)) return false;
    const bool needs_real =
        type == gguf::kF64 || element_ == gguf::kF64 || e.kind == Kind::negative || has_negative();
    change_elements(needs_real ? gguf::kF64 : gguf::kU64);
    return true;
  }
  bool has_negative() const {
    if (element_ != gguf::kI64) return false;
    for (uint64_t i = 0; i < count_; ++i) {
      if (load<int64_t>(out_.data() + elements_ + i * kNumber) < 0) return true;
    }
    return false;
  }
  void change_elements(ValueType type) {
    const ValueType old = element_;
    element_ = type;
    if (type != gguf::kF64 || old == gguf::kF64) return;  // no integer of I64 is negative
    for (uint64_t i = 0; i < count_; ++i) {
      std::byte* const at = out_.data() + elements_ + i * kNumber;
      const double real = old == gguf::kI64 ? static_cast<double>(load<int64_t>(at))
                                            : static_cast<double>(load<uint64_t>(at));
      store(at, real);
    }
  }

  void begin_value(ValueType type) {
    begins_.push_back(out_.size());
    put_text(path_);
    put(int32_t{type});
  }
  void put_element(const JsonEvent& e, ValueType type) {
    switch (type) {
      case gguf::kString:
        return put_text(e.text);
      case gguf::kBool:
        return put(static_cast<uint8_t>(e.integer));
      case gguf::kI64:
        return put(e.kind == Kind::negative ? negative_of(e).value_or(0)
                                            : static_cast<int64_t>(e.integer));
      case gguf::kU64:
        return put(e.integer);
      default:
        return put(e.number);
    }
  }
  void put_text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    put_bytes(text.data(), text.size());
  }
  template <class T>
  void put(T value) {
    char bytes[sizeof value];
    store(bytes, value);
    put_bytes(bytes, sizeof value);
  }
  /// Writes nothing more once the table would be too large.
  void put_bytes(const char* bytes, size_t count) {
    const size_t taken = out_.size() + 2 * path_.size() + kIndexBytes * begins_.size();
    is_full_ = is_full_ || taken > most_ || count > most_ - taken;
    if (is_full_) return;
    const auto* const from = reinterpret_cast<const std::byte*>(bytes);
    out_.insert(out_.end(), from, from + count);
  }

  const size_t most_;
  bool is_full_ = false;
  std::string path_;
  std::vector<size_t> bases_;  // how much of the path each open object has
  std::vector<std::byte> out_;
  std::vector<uint64_t> begins_;
  // The array that is being read.
  int array_depth_ = 0;  // 0: none
  bool is_listed_ = false;
  ValueType element_ = gguf::kString;
  uint64_t count_ = 0;
  size_t elements_ = 0;  // where they begin in out_
};

}  // namespace

ValueTable config_values(std::string_view text, std::string_view note) {
  if (text.empty() && note.empty()) return {};
  Flattener flattener(text.size() + note.size());
  if (text.empty()) text = "{}";
  const Status status =
      walk_config(text, "config.json", [&](const JsonEvent& e) { return flattener.visit(e); });
  if (!status.ok()) return ValueTable(status);
  if (!note.empty()) flattener.add(kNoteKey, note);
  return flattener.table();
}

}  // namespace metal_marlin
