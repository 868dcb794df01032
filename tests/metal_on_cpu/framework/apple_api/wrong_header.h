// Planted: each declaration is unlike Apple's, and check_headers.py must say so of each.
#pragma once

#include <Foundation/Foundation.h>

@protocol MTLNowhere
- (void)vanish;
@end

@protocol MTLFence
@property(readonly) NSUInteger turns;
@property(nullable, copy, atomic) NSString* label API_AVAILABLE(macos(15.0));
@end

@protocol MTLResidencySet
- (void)commit;
@end

@protocol MTLComputePipelineState
@property(readonly) int threadExecutionWidth;
@end

typedef NS_ENUM(NSUInteger, MTLDispatchType) { MTLDispatchTypeConcurrent = 2 };
FOUNDATION_EXPORT NSString* const MTLLostErrorDomain;
typedef struct {
  NSUInteger height, width, depth;
} MTLSize;
