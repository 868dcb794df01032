// How the accesses of a simdgroup's lanes fall together: the n-th execution of one instruction by each lane is one access of
// the simdgroup. The host's compiler splits wide loads; pieces that one lane takes from one aligned 16-byte chunk by different
// instructions in quick succession count as one.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace metal_on_cpu {

class Locality {
 public:
  void access(uint32_t thread, uintptr_t pc, int buffer, uint64_t offset, uint32_t bytes, bool write);
  /// The threadgroup is over: counts what it did.
  void end_group();
  /// 64-byte lines by buffer, once for each access.
  const std::unordered_map<int, uint64_t>& lines() const { return lines_; }

 private:
  struct Access {
    int buffer = 0;
    std::vector<uint64_t> lines;
  };
  struct Instruction {
    std::array<uint32_t, 32> executed{};
    std::vector<Access> accesses;
  };
  struct Recent {  // a 16-byte chunk that a lane has just touched
    uint64_t chunk = ~uint64_t{0};
    int buffer = -1;
    bool write = false;
    uint32_t pieces = 0;
    std::array<uintptr_t, 16> pcs{};
    uint64_t instruction = 0;
    uint32_t nth = 0;
  };
  Access& open(uint32_t thread, uintptr_t pc, int buffer, uint64_t offset, bool write);

  std::unordered_map<uint64_t, Instruction> instructions_;  // by pc and simdgroup
  std::array<std::array<Recent, 8>, 1024> recent_;
  std::array<uint8_t, 1024> turn_{};
  std::unordered_map<int, uint64_t> lines_;
};

}  // namespace metal_on_cpu
