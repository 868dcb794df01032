// A dispatch that is repeated in every way of running it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support.h"

namespace metal_on_cpu {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes b(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(b.data(), values.data(), b.size());
  return b;
}
template <class T>
std::vector<T> values_of(const Bytes& b) {
  std::vector<T> values(b.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), b.data(), b.size());
  return values;
}

// A dispatch with all that it needs, so that it can be repeated.
struct Trial {
  Kernel kernel;
  Size3 groups, threads;
  std::vector<Bytes> buffers;  // [[buffer(0)]], ...

  void run(std::vector<Bytes>& memory, bool checked, uint64_t seed, Report& report) const {
    Dispatch d = kernel.dispatch();
    for (size_t i = 0; i < memory.size(); ++i) d.buffer(static_cast<int>(i), memory[i]);
    d.groups(groups.x, groups.y, groups.z).threads(threads.x, threads.y, threads.z);
    report = must(d.check(checked).seed(seed).run());
  }

  // The buffers afterwards; every way of running must leave the same.
  std::vector<Bytes> everywhere() const {
    std::vector<Bytes> first = buffers;
    Report report;
    run(first, false, 0, report);
    struct Way {
      bool checked;
      uint64_t seed;
    };
    for (const Way& way : {Way{true, 0}, Way{true, 1}, Way{true, 20261121}, Way{false, 7}}) {
      std::vector<Bytes> memory = buffers;
      run(memory, way.checked, way.seed, report);
      EXPECT_EQ(report.text(), "") << "seed " << way.seed;
      EXPECT_EQ(memory, first) << (way.checked ? "checked" : "fast") << ", seed " << way.seed;
    }
    return first;
  }
};

inline Kernel kernel_of(const std::string& file, const std::string& name) { return library_of("correct/" + file).kernel(name); }

}  // namespace metal_on_cpu
