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

Storage::~Storage() {
  if (deallocator != nil) deallocator(data, size);
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
- (NSUInteger)allocatedSize {
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
- (MTLCPUCacheMode)cpuCacheMode {
  return (MTLCPUCacheMode)(options & 15);
}
- (MTLStorageMode)storageMode {
  return storage->mode;
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  const auto mode = (MTLHazardTrackingMode)(options >> 8 & 3);
  return mode == MTLHazardTrackingModeDefault ? MTLHazardTrackingModeTracked : mode;
}
- (MTLResourceOptions)resourceOptions {
  return options;
}
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state {
  return MTLPurgeableStateNonVolatile;
}
- (void)didModifyRange:(NSRange)range {
  if (storage->mode != MTLStorageModeManaged)
    find("wrong-storage", "didModifyRange of " + storage->describe() + ", not managed");
  if (NSMaxRange(range) > storage->size) find("out-of-range", "didModifyRange past the end of " + storage->describe());
}
- (void)addDebugMarker:(NSString*)marker range:(NSRange)range {
  if (NSMaxRange(range) > storage->size) find("out-of-range", "debug marker past the end of " + storage->describe());
}
- (void)removeAllDebugMarkers {
}
@end

@implementation MOCFence
@synthesize label;
- (id<MTLDevice>)device {
  return metal_framework::device();
}
@end

@implementation MTLResidencySetDescriptor
- (id)copyWithZone:(NSZone*)zone {
  MTLResidencySetDescriptor* made = [[MTLResidencySetDescriptor alloc] init];
  made.label = self.label;
  made.initialCapacity = self.initialCapacity;
  return made;
}
@end

@implementation MOCResidencySet {
  std::mutex mutex;
  NSMutableArray<id<MTLAllocation>>* pending;
  NSArray<id<MTLAllocation>>* current;  // what the last commit made of it
  NSString* given_label;
}
- (instancetype)initWithLabel:(NSString*)label {
  given_label = [label copy];
  pending = [NSMutableArray array];
  current = [NSArray array];
  return self;
}
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (NSString*)label {
  return given_label;
}
- (uint64_t)allocatedSize {
  const std::lock_guard<std::mutex> lock(mutex);
  uint64_t sum = 0;
  for (id<MTLAllocation> allocation in current) sum += allocation.allocatedSize;
  return sum;
}
- (NSArray*)allAllocations {
  const std::lock_guard<std::mutex> lock(mutex);
  return [pending copy];
}
- (NSUInteger)allocationCount {
  const std::lock_guard<std::mutex> lock(mutex);
  return pending.count;
}
- (void)addAllocation:(id<MTLAllocation>)allocation {
  const std::lock_guard<std::mutex> lock(mutex);
  if (allocation == nil) return find("nil-argument", "addAllocation: nil");
  if (![pending containsObject:allocation]) [pending addObject:allocation];
}
- (void)addAllocations:(const id<MTLAllocation>[])allocations count:(NSUInteger)count {
  for (NSUInteger i = 0; i < count; ++i) [self addAllocation:allocations[i]];
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
  const std::lock_guard<std::mutex> lock(mutex);
  [pending removeObject:allocation];
}
- (void)removeAllocations:(const id<MTLAllocation>[])allocations count:(NSUInteger)count {
  for (NSUInteger i = 0; i < count; ++i) [self removeAllocation:allocations[i]];
}
- (void)removeAllAllocations {
  const std::lock_guard<std::mutex> lock(mutex);
  [pending removeAllObjects];
}
- (BOOL)containsAllocation:(id<MTLAllocation>)allocation {
  const std::lock_guard<std::mutex> lock(mutex);
  return [pending containsObject:allocation];
}
- (void)commit {
  const std::lock_guard<std::mutex> lock(mutex);
  current = [pending copy];
}
- (void)request:(bool)residency {
  const std::lock_guard<std::mutex> lock(mutex);
  for (id<MTLAllocation> allocation in current) ((MOCBuffer*)allocation)->storage->requested = residency;
}
- (void)requestResidency {
  [self request:true];
}
- (void)endResidency {
  [self request:false];
}
- (std::vector<std::shared_ptr<Storage>>)committed {
  const std::lock_guard<std::mutex> lock(mutex);
  if (![current isEqualToArray:pending]) {
    find("residency-not-committed", "residency set '" + text(given_label) + "' has changes that were not committed");
  }
  std::vector<std::shared_ptr<Storage>> all;
  for (id<MTLAllocation> allocation in current) all.push_back(((MOCBuffer*)allocation)->storage);
  return all;
}
@end
