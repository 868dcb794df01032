// How the accesses of a simdgroup's lanes fall together: the n-th execution of one instruction by each lane is one access of
// the simdgroup. The host's compiler splits wide loads; pieces that one lane takes from one aligned 16-byte chunk by different
// instructions in quick succession count as one.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace metal_on_cpu {

struct LocalityCounts {
  uint64_t accesses = 0;   // of simdgroups
  uint64_t lines = 0;      // 64-byte lines, once for each access
  uint64_t conflicts = 0;  // threadgroup memory: cycles beyond the first with 32 banks of 4 bytes
};

constexpr int kThreadgroupSpace = -1;

class Locality {
 public:
  /// `space`: a buffer's index, or kThreadgroupSpace.
  void access(uint32_t thread, uintptr_t pc, int space, uint64_t offset, uint32_t bytes, bool write);
  /// The threadgroup is over: counts what it did.
  void end_group();
  const std::unordered_map<int, LocalityCounts>& counts() const { return counts_; }

 private:
  struct Access {
    int space = 0;
    std::vector<uint64_t> units;  // distinct lines, or words of threadgroup memory
  };
  struct Instruction {
    std::array<uint32_t, 32> executed{};
    std::vector<Access> accesses;
  };
  struct Recent {  // a 16-byte chunk that a lane has just touched
    uint64_t chunk = ~uint64_t{0};
    int space = -2;
    bool write = false;
    uint32_t pieces = 0;
    std::array<uintptr_t, 16> pcs{};
    uint64_t instruction = 0;
    uint32_t nth = 0;
  };
  Access& open(uint32_t thread, uintptr_t pc, int space, uint64_t offset, bool write);

  std::unordered_map<uint64_t, Instruction> instructions_;  // by pc and simdgroup
  std::array<std::array<Recent, 8>, 1024> recent_;
  std::array<uint8_t, 1024> turn_{};
  std::unordered_map<int, LocalityCounts> counts_;
};

}  // namespace metal_on_cpu
