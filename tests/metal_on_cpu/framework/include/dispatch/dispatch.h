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

/// The bytes are borrowed until the destructor runs.
FOUNDATION_EXPORT dispatch_data_t dispatch_data_create(const void* bytes, size_t size, dispatch_queue_t queue,
                                                       dispatch_block_t destructor) NS_RETURNS_RETAINED;
