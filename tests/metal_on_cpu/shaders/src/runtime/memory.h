// The buffers of one dispatch. Each lives in a slot of its own, 32 GiB of addresses, so that an index that runs away is still
// known by the buffer it started from, and touches neither another one nor the host. In fast mode a buffer ends where a page
// ends, and what lies behind faults; a buffer of more than 1 GiB stays where it is, because a copy might not fit. What pointers
// in buffers lead to stays where it is, too: the shader finds its address in memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "history.h"
#include "mapping.h"

namespace metal_on_cpu {

constexpr int kMaxBuffers = 31;

struct BufferBinding {
  std::byte* data = nullptr;
  size_t bytes = 0;
  bool writable = true;
  bool undefined = false;      // its contents may not be read before they are written
  std::vector<std::byte> own;  // of a value given by copy
};

/// Memory that shaders may reach by its address.
struct Resident {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// A range of the caller's memory that one or more buffers lie in.
struct Allocation {
  std::byte* host = nullptr;
  size_t bytes = 0;
  std::byte* base = nullptr;  // where the shader sees it
  bool in_place = false;      // at the host's own address
  int index = -1;             // the first buffer in it; -1: only reached through a pointer
  bool writable = false;
  bool undefined = false;
  History history;                      // when writable
  std::vector<uint64_t> read, written;  // bits, when counted
};

class Memory {
 public:
  /// Copies the buffers into slots. An empty string, or what is wrong.
  std::string prepare(std::map<int, BufferBinding>& bindings, const std::vector<Resident>& resident, bool checked,
                      bool counted);
  /// Copies back what the shader may have written.
  void finish();

  void* const* pointers() const { return pointers_; }
  /// The allocation whose slot holds this address, or that holds it itself; or nullptr.
  Allocation* find(uintptr_t address) {
    const uintptr_t offset = address - begin_;
    if (offset >= size_) return find_in_place(address);
    const size_t slot = offset / kSlot - 1;  // the first and the last are guards
    return slot < slots_ ? &allocations_[slot] : nullptr;
  }
  std::vector<Allocation>& allocations() { return allocations_; }

 private:
  static constexpr size_t kSlot = size_t{1} << 35, kSlots = 256;
  void merge(const std::map<int, BufferBinding>& bindings, const std::vector<Resident>& resident);
  std::string place(bool counted);
  std::byte* slot_for(size_t slot, const Allocation& allocation) const;
  std::string watch(Allocation& allocation, bool counted) const;
  Allocation* find_in_place(uintptr_t address);
  std::byte* translate(std::byte* host) const;

  std::vector<Allocation> allocations_;  // first those in slots, then those in place by address
  size_t slots_ = 0;
  Mapping arena_;
  uintptr_t begin_ = 0, size_ = 0;
  bool checked_ = false;
  void* pointers_[kMaxBuffers] = {};
};

}  // namespace metal_on_cpu
