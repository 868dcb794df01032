// As much of Grand Central Dispatch as the library's Metal host uses. Its objects are Objective-C objects, which ARC keeps.
#pragma once

#include <Foundation/NSObject.h>

@protocol OS_dispatch_queue <NSObject>
@end
typedef NSObject<OS_dispatch_queue>* dispatch_queue_t;
@protocol OS_dispatch_data <NSObject>
@end
typedef NSObject<OS_dispatch_data>* dispatch_data_t;

typedef void (^dispatch_block_t)(void);

typedef unsigned long long dispatch_time_t;
#define DISPATCH_TIME_NOW (0ull)
#define NSEC_PER_MSEC 1000000ull
#define QOS_CLASS_UTILITY 0x11
FOUNDATION_EXPORT dispatch_time_t dispatch_time(dispatch_time_t when, int64_t nanoseconds);
FOUNDATION_EXPORT dispatch_queue_t dispatch_get_global_queue(intptr_t identifier, uintptr_t flags);
/// Time is what metal_test_pass_time makes it.
FOUNDATION_EXPORT void dispatch_after(dispatch_time_t when, dispatch_queue_t queue, dispatch_block_t block);

/// The bytes are borrowed until the destructor runs.
FOUNDATION_EXPORT dispatch_data_t dispatch_data_create(const void* bytes, size_t size, dispatch_queue_t queue,
                                                       dispatch_block_t destructor) NS_RETURNS_RETAINED;
