#include "memory.h"

#include <algorithm>
#include <cstring>

namespace metal_on_cpu {

std::byte* Memory::translate(std::byte* host) const {
  const auto inside = [&](const Allocation& a) { return host >= a.host && host < a.host + a.bytes; };
  // An empty range lies nowhere, and may begin where an allocation ends.
  const auto touches = [&](const Allocation& a) { return host >= a.host && host <= a.host + a.bytes; };
  auto found = std::find_if(allocations_.begin(), allocations_.end(), inside);
  if (found == allocations_.end()) found = std::find_if(allocations_.begin(), allocations_.end(), touches);
  return found == allocations_.end() ? nullptr : found->base + (host - found->host);
}

// Overlapping ranges become one allocation; they are few, so every pair is looked at.
std::string Memory::merge(const std::map<int, BufferBinding>& bindings) {
  const auto add = [&](std::byte* data, size_t bytes, const BufferBinding& b, int index) {
    Allocation a;
    a.host = data, a.bytes = bytes, a.index = index, a.writable = b.writable, a.undefined = b.undefined;
    for (size_t i = 0; i < allocations_.size();) {
      Allocation& other = allocations_[i];
      if (data + bytes <= other.host || other.host + other.bytes <= data) {
        ++i;
        continue;
      }
      std::byte* end = std::max(a.host + a.bytes, other.host + other.bytes);
      a.host = std::min(a.host, other.host);
      a.bytes = static_cast<size_t>(end - a.host);
      if (other.index >= 0) a.index = other.index;
      a.writable = a.writable || other.writable;
      a.undefined = a.undefined && other.undefined;
      allocations_.erase(allocations_.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
    }
    allocations_.push_back(std::move(a));
  };
  for (const auto& [index, b] : bindings) {
    add(b.data, b.bytes, b, index);
    for (const auto& [data, bytes] : b.pointers) add(data, bytes, BufferBinding{}, -1);
  }
  return allocations_.size() > kSlots ? "more than 48 separate buffers in one dispatch" : std::string();
}

std::string Memory::place(bool counted) {
  arena_ = Mapping(kSlot * kSlots, true);
  if (!arena_) return "cannot reserve addresses for the buffers of checked mode";
  begin_ = reinterpret_cast<uintptr_t>(arena_.data()), size_ = arena_.size();
  for (size_t i = 0; i < allocations_.size(); ++i) {
    Allocation& a = allocations_[i];
    const size_t offset = i * kSlot + kSlot / 2;
    if (a.bytes >= kSlot / 4 || !arena_.allow(offset, std::max<size_t>(a.bytes, 1)))
      return "a buffer is too large for checked mode";
    a.base = arena_.data() + offset;
    std::memcpy(a.base, a.host, a.bytes);
    if (a.writable) {
      a.cells = Mapping(a.bytes * sizeof(Cell) + 1);
      if (!a.cells) return "cannot get memory to watch a buffer";
    }
    if (counted) a.read.resize(a.bytes / 64 + 1), a.written.resize(a.bytes / 64 + 1);
  }
  return {};
}

std::string Memory::prepare(std::map<int, BufferBinding>& bindings, bool checked, bool counted) {
  checked_ = checked;
  for (auto& [index, b] : bindings) {
    if (!b.pointers.empty()) b.own.resize(b.pointers.size() * sizeof(void*));
    if (!b.own.empty()) b.data = b.own.data(), b.bytes = b.own.size();
  }
  if (std::string wrong = merge(bindings); !wrong.empty()) return wrong;
  if (checked) {
    if (std::string wrong = place(counted); !wrong.empty()) return wrong;
  } else {
    for (Allocation& a : allocations_) a.base = a.host;
  }
  for (auto& [index, b] : bindings) {
    std::byte* base = translate(b.data);
    for (size_t i = 0; i < b.pointers.size(); ++i) {
      std::byte* address = translate(b.pointers[i].first);
      std::memcpy(base + i * sizeof address, &address, sizeof address);
    }
    pointers_[index] = base;
  }
  return {};
}

void Memory::finish() {
  if (!checked_) return;
  for (const Allocation& a : allocations_) {
    if (a.writable) std::memcpy(a.host, a.base, a.bytes);
  }
}

}  // namespace metal_on_cpu
