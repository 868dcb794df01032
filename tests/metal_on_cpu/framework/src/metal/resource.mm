#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "metal/objects.h"

using metal_framework::find;
using metal_framework::Storage;
using metal_framework::string;
using metal_framework::text;

namespace metal_framework {

std::string Storage::describe() {
  const std::lock_guard<std::mutex> lock(label_mutex);
  return "buffer " + (label.empty() ? std::string("without label") : "'" + label + "'") + " (" + std::to_string(size) +
         " bytes)";
}

size_t tick() {
  static std::atomic<size_t> now{0};
  return ++now;
}

void Storage::use(const std::shared_ptr<Pass>& pass) {
  if (!untracked) return;
  const metal_test::Locked lock;
  if (last != nullptr && last != pass) {
    const size_t completed = last->commands->completed;
    const auto fenced = pass->before.find(last);
    if ((completed == 0 || completed > pass->commands->committed) &&
        (fenced == pass->before.end() || fenced->second < last_use))
      find("untracked-hazard", describe() + " is not tracked, and no fence is between two encoders that use it");
  }
  last = pass;
  last_use = ++pass->uses;
}

Storage::~Storage() {
  if (!borrowed) std::free(data);
}

}  // namespace metal_framework

@implementation MOCBuffer
- (void)dealloc {
  storage->owned = false;
}
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (NSUInteger)length {
  return storage->size;
}
- (MTLGPUAddress)gpuAddress {
  return reinterpret_cast<MTLGPUAddress>(storage->data);
}
- (void*)contents {
  if (storage->mode != MTLStorageModePrivate) return storage->data;
  find("private-contents", "contents of " + storage->describe() + ", which is private to the GPU");
  return nullptr;
}
- (NSString*)label {
  const std::lock_guard<std::mutex> lock(storage->label_mutex);
  return storage->label.empty() ? nil : string(storage->label);
}
- (void)setLabel:(NSString*)label {
  const std::string given = text(label);
  const std::lock_guard<std::mutex> lock(storage->label_mutex);
  storage->label = given;
}
- (MTLStorageMode)storageMode {
  return storage->mode;
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  const auto mode = (MTLHazardTrackingMode)(options >> 8 & 3);
  return mode == MTLHazardTrackingModeDefault ? MTLHazardTrackingModeTracked : mode;
}
@end

@implementation MOCFence
@synthesize label;
- (id<MTLDevice>)device {
  return metal_framework::device();
}
@end

@implementation MTLResidencySetDescriptor
@end

@implementation MOCResidencySet {
  std::mutex mutex;
  std::vector<std::shared_ptr<Storage>> pending, current;  // what the last commit made of it
  NSString* given_label;
}
- (instancetype)initWithLabel:(NSString*)label {
  given_label = [label copy];
  presence = std::make_shared<metal_framework::Presence>();
  presence->name = "residency set '" + text(label) + "'";
  return self;
}
- (void)dealloc {
  presence->there = false;
}
- (NSString*)label {
  return given_label;
}
- (void)addAllocation:(id<MTLAllocation>)allocation {
  const std::lock_guard<std::mutex> lock(mutex);
  if (allocation == nil) return find("nil-argument", "addAllocation: nil");
  pending.push_back(((MOCBuffer*)allocation)->storage);
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
  const std::lock_guard<std::mutex> lock(mutex);
  std::erase(pending, ((MOCBuffer*)allocation)->storage);
}
- (void)commit {
  const std::lock_guard<std::mutex> lock(mutex);
  current = pending;
}
- (void)requestResidency {
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& storage : current) storage->requested = metal_test::settings()->wired_since;
}
- (std::vector<std::shared_ptr<Storage>>)committed {
  const std::lock_guard<std::mutex> lock(mutex);
  if (current != pending) find("residency-not-committed", presence->name + " has changes that were not committed");
  return current;
}
@end
