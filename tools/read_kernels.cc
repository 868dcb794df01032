#include "read_kernels.h"

#include <fmt/core.h>

#include <algorithm>

#include "machine_limits.h"

namespace metal_marlin::tools {
namespace {

/// With builtins that every compiler has. They become paired 16-byte loads and prefetches on arm64.
template <size_t kStreams, size_t kAhead>
uint64_t portable_read(const std::byte* p, size_t bytes) {
  constexpr size_t kLine = 64;
  const size_t stream = bytes / kStreams;
  uint64_t sums[kStreams][4] = {};
  for (size_t i = 0; i < stream; i += kLine) {
    for (size_t s = 0; s < kStreams; ++s) {
      const auto* q = reinterpret_cast<const uint64_t*>(p + s * stream + i);
      if constexpr (kAhead != 0) __builtin_prefetch(reinterpret_cast<const std::byte*>(q) + kAhead);
      for (size_t j = 0; j < 4; ++j) sums[s][j] ^= q[j] ^ q[j + 4];
    }
  }
  uint64_t all = 0;
  for (const auto& sum : sums) all ^= sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return all;
}

template <size_t kStreams, size_t kAhead>
ReadKernel portable() {
  return {read_kernel_name(16, kStreams, kAhead, false), portable_read<kStreams, kAhead>};
}

}  // namespace

std::string read_kernel_name(size_t width, size_t streams, size_t ahead, bool once) {
  std::string name =
      fmt::format("{}-byte loads, {} stream{}", width, streams, streams == 1 ? "" : "s");
  if (ahead == 0) return name + ", not prefetched";
  name += fmt::format(", prefetched {} KB ahead", static_cast<double>(ahead) / 1024);
  return once ? name + " for one use" : name;
}

const std::vector<ReadKernel>& read_kernels() {
  static const std::vector<ReadKernel> kernels = [] {
    std::vector<ReadKernel> all = arch_read_kernels();
    if (all.empty())
      all = {portable<4, 2048>(), portable<1, 2048>(), portable<2, 2048>(), portable<8, 2048>(),
             portable<4, 8192>(), portable<4, 512>(),  portable<4, 0>(),    portable<1, 0>()};
    return all;
  }();
  return kernels;
}

size_t fastest(size_t count, int rounds, const std::function<double(size_t)>& rate,
               const std::function<bool()>& finished) {
  // Reading at less than this part of the best rate is far behind. What other processes do in one
  // round moves most rates by less.
  constexpr double kFarBehind = 0.8;
  std::vector<std::vector<double>> rates(count);
  std::vector<double> medians(count);
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const double least = kFarBehind * best;
    for (size_t i = 0; i < count; ++i) {
      if (medians[i] < least) continue;
      rates[i].push_back(rate(i));
      medians[i] = median(rates[i]);
    }
    best = *std::max_element(medians.begin(), medians.end());
    if (finished()) break;
  }
  return static_cast<size_t>(std::max_element(medians.begin(), medians.end()) - medians.begin());
}

}  // namespace metal_marlin::tools
