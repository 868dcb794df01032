// A command buffer during recording: its encoder, of which Metal allows one at a time, and the
// objects that the GPU needs until the work is done.
#pragma once

#import <Metal/Metal.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/metal/residency.h"
#include "base/status.h"

namespace metal_marlin::metal {

/// The objects that recorded work uses. A command buffer may hold no references itself
/// (commandBufferWithUnretainedReferences), and memory counts as used as long as it is here. Any
/// thread may use this class; a thread of Metal reports that the work is done.
class Kept {
 public:
  void add(std::shared_ptr<const void> object) {
    const std::lock_guard<std::mutex> lock(mutex_);
    objects_.push_back(std::move(object));
  }
  void let_go() {
    std::vector<std::shared_ptr<const void>> objects;
    const std::lock_guard<std::mutex> lock(mutex_);
    objects.swap(objects_);
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const void>> objects_;
};

/// What orders encoders where Metal does not track memory: what each waits for, and what each
/// updates.
struct Fences {
  std::vector<id<MTLFence>> waits, updates;
};

/// One command buffer, or one encoder of the host. Like these, it is for one thread at a time.
class Commands {
 public:
  /// `hosts` means that the host made the command buffer and commits it.
  Commands(id<MTLCommandBuffer> buffer, bool hosts, Fences fences = {})
      : buffer_(buffer), fences_(std::move(fences)), hosts_(hosts) {}
  explicit Commands(id<MTLComputeCommandEncoder> encoder) : compute_(encoder), hosts_(true) {}
  ~Commands() { end_encoder(); }
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  /// Null for an encoder of the host.
  id<MTLCommandBuffer> buffer() const { return buffer_; }
  /// The open encoder, or nil if there is none of this kind.
  id<MTLComputeCommandEncoder> compute() const { return compute_; }
  id<MTLBlitCommandEncoder> blit() const { return blit_; }
  Status open_compute();
  Status open_blit();
  /// Does nothing on an encoder of the host.
  void end_encoder();
  /// The open encoder and all later ones wait for the first fence and update the second, and so
  /// they wait for each other. Either may be nil.
  void order(id<MTLFence> wait, id<MTLFence> update);
  const Fences& fences() const { return fences_; }
  /// Ends the encoder, and makes the memory of the recorded work resident.
  Status finish(const std::shared_ptr<Residency>& residency);

  /// Keeps an object until the GPU is done with the command buffer or, on an encoder of the host,
  /// until this object is destroyed.
  void keep(std::shared_ptr<const void> object) { kept_->add(std::move(object)); }
  const std::shared_ptr<Kept>& kept() const { return kept_; }

 private:
  Status check_open() const;
  void wait_for(id<MTLFence> fence);

  id<MTLCommandBuffer> buffer_ = nil;
  id<MTLComputeCommandEncoder> compute_ = nil;
  id<MTLBlitCommandEncoder> blit_ = nil;
  Fences fences_;
  const bool hosts_;
  bool unfinished_ = false;  // something was recorded since finish()
  const std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
};

/// MARLIN_E_ARGUMENT if the host has committed this command buffer, because Metal ends a program
/// that adds to such a buffer.
Status check_uncommitted(id<MTLCommandBuffer> buffer);

/// The command buffers of the host that have streams. The streams of one command buffer share its
/// encoder. Any thread may use this class.
class HostCommands {
 public:
  std::shared_ptr<Commands> of(id<MTLCommandBuffer> buffer);

 private:
  std::mutex mutex_;
  std::map<const void*, std::weak_ptr<Commands>>
      all_;  // each holds its command buffer, so that the address is not reused
};

}  // namespace metal_marlin::metal
