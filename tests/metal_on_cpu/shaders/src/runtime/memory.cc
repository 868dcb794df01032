#include "memory.h"

#include <algorithm>
#include <cstring>

namespace metal_on_cpu {
namespace {

constexpr size_t kMaxAlignment = 256;            // of what hosts bind
constexpr size_t kTypeAlignment = 32;            // of ulong4, the most that code relies on
constexpr size_t kMostCopied = size_t{1} << 30;  // in fast mode; a larger buffer may be more than memory holds

}  // namespace

std::byte* Memory::translate(std::byte* host) const {
  const auto inside = [&](const Allocation& a) { return host >= a.host && host < a.host + a.bytes; };
  // An empty range lies nowhere, and may begin where an allocation ends.
  const auto touches = [&](const Allocation& a) { return host >= a.host && host <= a.host + a.bytes; };
  auto found = std::find_if(allocations_.begin(), allocations_.end(), inside);
  if (found == allocations_.end()) found = std::find_if(allocations_.begin(), allocations_.end(), touches);
  return found == allocations_.end() ? nullptr : found->base + (host - found->host);
}

// Overlapping ranges become one allocation; those of bindings are few, so every pair is looked at.
void Memory::merge(const std::map<int, BufferBinding>& bindings, const std::vector<Resident>& resident) {
  const auto add = [&](Allocation a) {
    for (size_t i = 0; i < allocations_.size();) {
      Allocation& other = allocations_[i];
      if (a.host + a.bytes <= other.host || other.host + other.bytes <= a.host) {
        ++i;
        continue;
      }
      std::byte* end = std::max(a.host + a.bytes, other.host + other.bytes);
      a.host = std::min(a.host, other.host);
      a.bytes = static_cast<size_t>(end - a.host);
      if (other.index >= 0) a.index = other.index;
      a.writable = a.writable || other.writable;
      a.undefined = a.undefined && other.undefined;
      a.in_place = a.in_place || other.in_place;
      allocations_.erase(allocations_.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
    }
    allocations_.push_back(std::move(a));
  };
  const auto range = [](std::byte* data, size_t bytes, bool writable, int index) {
    Allocation a;
    a.host = data, a.bytes = bytes, a.writable = writable, a.index = index;
    return a;
  };
  for (const auto& [index, b] : bindings) {
    Allocation a = range(b.data, b.bytes, b.writable, index);
    a.undefined = b.undefined;
    add(std::move(a));
  }
  for (const Resident& r : resident) {
    Allocation a = range(r.data, r.bytes, true, -1);
    a.in_place = true;
    add(std::move(a));
  }
  if (!checked_) {
    for (Allocation& a : allocations_) a.in_place = a.in_place || a.bytes > kMostCopied;
  }
  const auto in_place =
      std::stable_partition(allocations_.begin(), allocations_.end(), [](const Allocation& a) { return !a.in_place; });
  std::sort(in_place, allocations_.end(), [](const Allocation& a, const Allocation& b) { return a.host < b.host; });
  slots_ = static_cast<size_t>(in_place - allocations_.begin());
}

Allocation* Memory::find_in_place(uintptr_t address) {
  const auto after =
      std::upper_bound(allocations_.begin() + static_cast<std::ptrdiff_t>(slots_), allocations_.end(), address,
                       [](uintptr_t at, const Allocation& a) { return at < reinterpret_cast<uintptr_t>(a.host); });
  if (after == allocations_.begin() + static_cast<std::ptrdiff_t>(slots_)) return nullptr;
  Allocation& a = *std::prev(after);
  return address - reinterpret_cast<uintptr_t>(a.host) < a.bytes ? &a : nullptr;
}

std::string Memory::watch(Allocation& a, bool counted) const {
  if (a.writable) {
    a.history = History(a.bytes);
    if (!a.history) return "cannot get memory to watch a buffer";
  }
  if (counted) a.read.resize(a.bytes / 64 + 1), a.written.resize(a.bytes / 64 + 1);
  return {};
}

// Usable memory for the buffer, as misaligned as the host's; nullptr if there is none. In fast mode its end is the end of a
// page, as far as the alignment allows.
std::byte* Memory::slot_for(size_t slot, const Allocation& a) const {
  const size_t page = slot * kSlot + kSlot / 2, host = reinterpret_cast<uintptr_t>(a.host);
  if (checked_) {
    const size_t skew = host % kMaxAlignment;
    return arena_.allow(page, skew + std::max<size_t>(a.bytes, 1)) ? arena_.data() + page + skew : nullptr;
  }
  const size_t skew = host % kTypeAlignment, pages = to_pages(a.bytes + kTypeAlignment);
  const size_t before = (pages - a.bytes - skew) / kTypeAlignment * kTypeAlignment + skew;
  return arena_.allow(page, pages) ? arena_.data() + page + before : nullptr;
}

std::string Memory::place(bool counted) {
  if (slots_ > kSlots) return "more than 256 separate buffers in one dispatch";
  arena_ = Mapping(kSlot * (slots_ + 2), true);
  if (!arena_) return "cannot reserve addresses for the buffers";
  begin_ = reinterpret_cast<uintptr_t>(arena_.data()), size_ = arena_.size();
  for (size_t i = 0; i < allocations_.size(); ++i) {
    Allocation& a = allocations_[i];
    if (a.in_place) {
      a.base = a.host;
    } else {
      const std::string size = "a buffer has " + std::to_string(a.bytes) + " bytes; ";
      if (a.bytes >= kSlot / 4) return size + "less than " + std::to_string(kSlot / 4) + " are possible";
      a.base = slot_for(i + 1, a);
      if (!a.base) return size + "the system does not give as many";
      std::memcpy(a.base, a.host, a.bytes);
    }
    if (!checked_) continue;
    if (std::string wrong = watch(a, counted); !wrong.empty()) return wrong;
  }
  return {};
}

std::string Memory::prepare(std::map<int, BufferBinding>& bindings, const std::vector<Resident>& resident, bool checked,
                            bool counted) {
  checked_ = checked;
  for (auto& [index, b] : bindings) {
    if (!b.own.empty()) b.data = b.own.data(), b.bytes = b.own.size();
  }
  merge(bindings, resident);
  if (std::string wrong = place(counted); !wrong.empty()) return wrong;
  for (auto& [index, b] : bindings) pointers_[index] = translate(b.data);
  return {};
}

// A buffer that a shader may write, and did not, may be read-only memory of the host.
void Memory::finish() {
  for (const Allocation& a : allocations_) {
    if (a.writable && !a.in_place && std::memcmp(a.host, a.base, a.bytes) != 0) std::memcpy(a.host, a.base, a.bytes);
  }
}

}  // namespace metal_on_cpu
