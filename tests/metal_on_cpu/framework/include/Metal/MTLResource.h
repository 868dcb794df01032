// Sizes, buffers, fences and residency.
#pragma once

#include <Foundation/Foundation.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

typedef struct {
  NSUInteger width, height, depth;
} MTLSize;
NS_INLINE MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  MTLSize size = {width, height, depth};
  return size;
}

typedef uint64_t MTLGPUAddress;

typedef NS_ENUM(NSUInteger, MTLStorageMode) { MTLStorageModeShared = 0, MTLStorageModePrivate = 2 };
typedef NS_ENUM(NSUInteger, MTLHazardTrackingMode) {
  MTLHazardTrackingModeDefault = 0,
  MTLHazardTrackingModeUntracked = 1,
  MTLHazardTrackingModeTracked = 2
};
typedef NS_OPTIONS(NSUInteger, MTLResourceOptions) {
  MTLResourceStorageModeShared = 0 << 4,
  MTLResourceStorageModePrivate = 2 << 4,
  MTLResourceHazardTrackingModeUntracked = 1 << 8
};

API_AVAILABLE(macos(15.0), ios(18.0))
@protocol MTLAllocation <NSObject>
@end

@protocol MTLResource <MTLAllocation>
@property(nullable, copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) MTLStorageMode storageMode;
@property(readonly) MTLHazardTrackingMode hazardTrackingMode;
@end

@protocol MTLBuffer <MTLResource>
@property(readonly) NSUInteger length;
@property(readonly) MTLGPUAddress gpuAddress;
- (void*)contents;
@end

@protocol MTLFence <NSObject>
@property(readonly) id<MTLDevice> device;
@property(nullable, copy, atomic) NSString* label;
@end

API_AVAILABLE(macos(15.0), ios(18.0))
@interface MTLResidencySetDescriptor : NSObject
@property(nullable, copy, nonatomic) NSString* label;
@end

API_AVAILABLE(macos(15.0), ios(18.0))
@protocol MTLResidencySet <NSObject>
@property(nullable, readonly) NSString* label;
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllocation:(id<MTLAllocation>)allocation;
- (void)commit;
- (void)requestResidency;
@end

NS_ASSUME_NONNULL_END
