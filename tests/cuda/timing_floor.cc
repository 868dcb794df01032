#include "timing_floor.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <vector>

namespace timing {

ReadFloor::ReadFloor(const Device& device, const std::string& path) : device_(device), result_(device, sizeof(uint32_t)) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  device_.check(device_.driver().load_module(&module_, image.data()), "cuModuleLoadData");
  device_.check(device_.driver().function(&function_, module_, "read_floor"), "cuModuleGetFunction");
}

void ReadFloor::read(DevicePtr from, size_t bytes) const {
  unsigned long long count = bytes / 16, to = result_.at();
  void* arguments[] = {&from, &count, &to};
  constexpr unsigned kBlocks = 528, kThreads = 512;  // all that an H200 runs at once
  const cuda::LaunchConfig config{{kBlocks, 1, 1}, {kThreads, 1, 1}, 0, device_.stream(), nullptr, 0};
  device_.check(device_.driver().launch(&config, function_, arguments, nullptr), "cuLaunchKernelEx");
}

}  // namespace timing
