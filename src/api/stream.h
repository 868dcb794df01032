// Streams. A destroyed stream leaves its shell with the context, so that a call on it is an error
// and not a crash. The oldest shells are reused, so that one stream per frame does not leak memory.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "api/handle.h"
#include "api/operand.h"
#include "core/backend.h"
#include "core/independent.h"
#include "metal_marlin/metal_marlin.h"

struct marlin_stream final : metal_marlin::api::Handle {
  static constexpr auto kKind = metal_marlin::api::HandleKind::stream;

  marlin_stream() : Handle(metal_marlin::api::HandleKind::destroyed) {}

  metal_marlin::api::Ref<marlin_context> context;  ///< null in a shell
  std::unique_ptr<metal_marlin::BackendStream> backend;
  metal_marlin::api::Operand scratch;  ///< the host's, or absent
  std::vector<metal_marlin::PlannedGemm>
      products;  ///< of one call; kept so that prepared calls do not allocate
  metal_marlin::Independence independence;  ///< kept for the same reason
  marlin_stream* next_shell = nullptr;
};

namespace metal_marlin::api {

/// The destroyed streams of a context, oldest first. Several threads may use it at once.
class StreamShells {
 public:
  /// So many later streams must be destroyed before the address of a destroyed stream is reused.
  static constexpr size_t kKept = 256;

  StreamShells() = default;
  StreamShells(const StreamShells&) = delete;
  StreamShells& operator=(const StreamShells&) = delete;
  ~StreamShells();
  /// An empty stream that is marked as destroyed: the oldest shell if there are enough, else a new
  /// one.
  std::unique_ptr<marlin_stream> take();
  /// Never allocates.
  void put(std::unique_ptr<marlin_stream> shell) noexcept;

 private:
  std::mutex mutex_;
  marlin_stream* oldest_ = nullptr;
  marlin_stream* newest_ = nullptr;
  size_t count_ = 0;
};

}  // namespace metal_marlin::api
