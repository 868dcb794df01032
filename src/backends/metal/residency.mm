#include "backends/metal/residency.h"

namespace metal_marlin::metal {
namespace {

// macOS 26 takes memory back that no command has used for a second, and making many gigabytes
// resident anew takes seconds. A request every half second keeps them, and costs next to nothing. A
// user may think for minutes, and then other programs should have the memory.
constexpr int64_t kBeatMilliseconds = 500;
constexpr int kBeats = 360;

}  // namespace

Residency::Residency(id<MTLDevice> device) {
  // With API validation Metal ends a program that asks an older family for a set.
  if (![device supportsFamily:MTLGPUFamilyApple6]) return;
  if (@available(macOS 15.0, iOS 18.0, *)) {
    MTLResidencySetDescriptor* descriptor = [[MTLResidencySetDescriptor alloc] init];
    descriptor.label = @"metal-marlin";
    // Without a set, everything works as on older systems.
    set_ = [device newResidencySetWithDescriptor:descriptor error:nil];
  }
}

void Residency::add(id<MTLBuffer> buffer) {
  if (@available(macOS 15.0, iOS 18.0, *)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    [static_cast<id<MTLResidencySet>>(set_) addAllocation:buffer];
    changed_ = true;
  }
}

void Residency::remove(id<MTLBuffer> buffer) {
  if (@available(macOS 15.0, iOS 18.0, *)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    id<MTLResidencySet> set = set_;
    [set removeAllocation:buffer];
    [set commit];  // until then it holds the buffer
  }
}

void Residency::use(id<MTLCommandBuffer> commands) {
  if (@available(macOS 15.0, iOS 18.0, *)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    id<MTLResidencySet> set = set_;
    if (set == nil) return;
    if (changed_) [set commit];
    if (changed_ || beats_left_ == 0) [set requestResidency];
    if (beats_left_ == 0) request_later();
    changed_ = false;
    beats_left_ = kBeats;
    if (commands != nil) [commands useResidencySet:set];
  }
}

// A queue of the system calls back, which needs no thread and does not keep this object.
void Residency::request_later() {
  const std::weak_ptr<Residency> self = weak_from_this();
  dispatch_after(
      dispatch_time(DISPATCH_TIME_NOW, kBeatMilliseconds * static_cast<int64_t>(NSEC_PER_MSEC)),
      dispatch_get_global_queue(QOS_CLASS_UTILITY, 0), ^{
        const std::shared_ptr<Residency> living = self.lock();
        if (living != nullptr) living->request_again();
      });
}

void Residency::request_again() {
  if (@available(macOS 15.0, iOS 18.0, *)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--beats_left_ == 0) return;
    [static_cast<id<MTLResidencySet>>(set_) requestResidency];
    request_later();
  }
}

}  // namespace metal_marlin::metal
