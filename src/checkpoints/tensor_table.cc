#include "checkpoints/tensor_table.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <numeric>
#include <tuple>

#include "base/bits.h"
#include "base/checked.h"

namespace metal_marlin {
namespace {

constexpr std::string_view kUnknown = "type ";

}  // namespace

const char* file_label(const std::string& name) noexcept {
  constexpr size_t kMost = 60;
  if (name.size() <= kMost) return name.c_str();
  const char* label = name.c_str() + (name.size() - kMost);
  while ((static_cast<uint8_t>(*label) & 0xc0) == 0x80)
    ++label;  // a character of UTF-8 stays whole
  return label;
}

Status TensorTable::not_found(std::string_view name, const std::string& place) {
  constexpr size_t kMost = 160;
  return Status::error(MARLIN_E_NOT_FOUND, "tensor '%.*s' is %s",
                       static_cast<int>(std::min(name.size(), kMost)), name.data(), place.c_str());
}

uint32_t TensorTable::add_file(std::string name, std::span<const std::byte> bytes) {
  files_.push_back({std::move(name), bytes});
  return static_cast<uint32_t>(files_.size() - 1);
}

void TensorTable::reserve(size_t tensors, size_t pool_bytes) {
  if (!records_.empty()) return;
  records_.reserve(tensors);
  pool_.reserve(pool_bytes);
}

size_t TensorTable::pool_bytes(std::string_view name, std::span<const int64_t> dims) {
  size_t bytes = name.size() + 1;
  for (const int64_t d : dims) {
    const auto bits = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(d) | 1));
    bytes += static_cast<size_t>(ceil_div(bits, 7));
  }
  return bytes;
}

const ElementType& TensorTable::unknown_type(std::string_view name) {
  constexpr size_t kMostTypes = 64, kMostName = 24;  // a hostile header has one for each tensor
  static constexpr ElementType kAnother{"type of another kind", 1, 1, 0};
  const std::string own = std::string(kUnknown) + std::string(name.substr(0, kMostName));
  for (const auto& known : unknown_types_)
    if (known->name == own) return known->type;
  if (unknown_types_.size() == kMostTypes) return kAnother;
  auto made = std::make_unique<UnknownType>(UnknownType{own, {}});
  made->type = {made->name.c_str(), 1, 1, 0};
  unknown_types_.push_back(std::move(made));
  return unknown_types_.back()->type;
}

void TensorTable::add_text(uint32_t file, bool is_config, std::string_view text) {
  size_t room = size_t{1} << 20;
  for (const Text& other : texts_) {
    if (other.text == text) return;
    room -= std::min(room, other.text.size());
  }
  if (text.size() <= room) texts_.push_back({file, is_config, std::string(text)});
}

bool is_unknown_type(std::string_view name) noexcept { return name.starts_with(kUnknown); }

void TensorTable::add(uint32_t file, std::string_view name, const ElementType& type,
                      std::span<const int64_t> dims, uint64_t offset, uint64_t bytes) {
  records_.push_back(
      {&type, offset, bytes, pool_.size(), static_cast<uint32_t>(name.size()), file});
  name_bytes_ += name.size();
  pool_.insert(pool_.end(), name.begin(), name.end());
  pool_.push_back(static_cast<char>(dims.size()));
  for (const int64_t d : dims) {
    auto rest = static_cast<uint64_t>(d);
    for (; rest > 0x7f; rest >>= 7) pool_.push_back(static_cast<char>(rest | 0x80));
    pool_.push_back(static_cast<char>(rest));
  }
}

void TensorTable::sort_by_offset(size_t first) {
  // Tensors without elements share an offset; the pool has the order of the header.
  std::sort(records_.begin() + static_cast<ptrdiff_t>(first), records_.end(),
            [](const Record& a, const Record& b) {
              return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
            });
}

Status TensorTable::finish() {
  by_name_.resize(records_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  const auto twice = std::adjacent_find(by_name_.begin(), by_name_.end(),
                                        [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
  if (twice == by_name_.end()) return {};
  const Record& record = records_[std::max(twice[0], twice[1])];
  return Status::error(MARLIN_E_FORMAT, "%s: byte %" PRIu64 ": tensor '%.*s' occurs twice",
                       file_label(files_[record.file].name), record.offset,
                       static_cast<int>(std::min<size_t>(record.name_size, 80)),
                       pool_.data() + record.name);
}

std::string_view TensorTable::name(size_t index) const noexcept {
  return {pool_.data() + records_[index].name, records_[index].name_size};
}

TensorView TensorTable::view(size_t index) const {
  const Record& record = records_[index];
  TensorView view;
  view.name = name(index);
  view.file = files_[record.file].name;
  view.file_offset = record.offset;
  view.dtype = record.type->dtype;
  view.type_name = record.type->name;
  const char* at = pool_.data() + record.name + record.name_size;
  view.dims.resize(static_cast<uint8_t>(*at++));
  for (int64_t& d : view.dims) {
    uint64_t value = 0;
    int shift = 0;
    do {
      value |= uint64_t{static_cast<uint8_t>(*at) & 0x7fu} << shift;
      shift += 7;
    } while ((*at++ & 0x80) != 0);
    d = static_cast<int64_t>(value);
  }
  view.row_stride = view.dims.empty() ? 1 : view.dims.back();
  view.data = files_[record.file].bytes.data() + record.offset;
  view.bytes = record.bytes;
  return view;
}

std::vector<uint32_t>::const_iterator TensorTable::first_from(std::string_view wanted) const {
  return std::lower_bound(
      by_name_.begin(), by_name_.end(), wanted,
      [&](uint32_t index, std::string_view text) { return name(index) < text; });
}

std::optional<size_t> TensorTable::find(std::string_view wanted) const {
  const auto at = first_from(wanted);
  if (at == by_name_.end() || name(*at) != wanted) return std::nullopt;
  return *at;
}

TensorView TensorTable::view(std::string_view wanted) const {
  const auto index = find(wanted);
  return index ? view(*index) : TensorView{};
}

std::optional<uint64_t> tensor_bytes(const ElementType& type,
                                     std::span<const int64_t> dims) noexcept {
  Checked elements = 1;
  for (const int64_t d : dims) elements = elements * Checked(d);
  const auto count = elements.get();
  if (!count || *count % type.block != 0) return std::nullopt;
  return (Checked(*count / type.block) * Checked(type.bytes)).get();
}

}  // namespace metal_marlin
