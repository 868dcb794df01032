// What products took, step by step, as a file for Perfetto or Chrome (Trace Event Format).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.h"
#include "output_file.h"

namespace metal_marlin::tools {

/// Hears of the steps of contexts, which it outlives. It keeps the first of very many.
class Trace {
 public:
  /// Throws a Failure if there is such a file already, and no `force`.
  Trace(const std::string& path, bool force) : file_(path, force) {}
  /// The members of a descriptor that make a context tell.
  void attach(marlin_context_desc& desc);
  void write();

 private:
  static constexpr size_t kMost = 1 << 18;
  struct Step {
    marlin_trace_event event;
    std::string kernel, step;
  };
  void hear(const marlin_trace_event& event);

  OutputFile file_;
  std::mutex mutex_;
  std::vector<Step> steps_;
  std::map<const marlin_stream*, uint64_t> streams_{{nullptr, 0}};  // with their numbers
};

}  // namespace metal_marlin::tools
