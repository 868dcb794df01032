// As much of Grand Central Dispatch as hosts of Metal use. Its objects are Objective-C objects, which ARC keeps.
#pragma once

#include <Foundation/NSObject.h>

#define DISPATCH_DECL(name) \
  @protocol OS_             \
  ##name<NSObject> @end     \
  typedef NSObject<OS_##name>* name##_t

DISPATCH_DECL(dispatch_object);
DISPATCH_DECL(dispatch_queue);
DISPATCH_DECL(dispatch_queue_attr);
DISPATCH_DECL(dispatch_semaphore);
DISPATCH_DECL(dispatch_group);
DISPATCH_DECL(dispatch_data);

typedef void (^dispatch_block_t)(void);
typedef uint64_t dispatch_time_t;
typedef intptr_t dispatch_once_t;

#define DISPATCH_TIME_NOW (0ull)
#define DISPATCH_TIME_FOREVER (~0ull)
#define NSEC_PER_SEC 1000000000ull
#define NSEC_PER_MSEC 1000000ull
#define USEC_PER_SEC 1000000ull
#define NSEC_PER_USEC 1000ull
#define DISPATCH_QUEUE_SERIAL ((dispatch_queue_attr_t)nil)
#define DISPATCH_QUEUE_CONCURRENT (dispatch_queue_attr_concurrent())
#define DISPATCH_QUEUE_PRIORITY_HIGH 2
#define DISPATCH_QUEUE_PRIORITY_DEFAULT 0
#define DISPATCH_QUEUE_PRIORITY_LOW (-2)
#define QOS_CLASS_USER_INITIATED 0x19
#define QOS_CLASS_DEFAULT 0x15
#define QOS_CLASS_UTILITY 0x11

FOUNDATION_EXPORT dispatch_time_t dispatch_time(dispatch_time_t when, int64_t nanoseconds);

FOUNDATION_EXPORT dispatch_queue_t dispatch_queue_create(const char* label,
                                                         dispatch_queue_attr_t attributes) NS_RETURNS_RETAINED;
FOUNDATION_EXPORT dispatch_queue_t dispatch_get_global_queue(intptr_t identifier, uintptr_t flags);
FOUNDATION_EXPORT dispatch_queue_attr_t dispatch_queue_attr_concurrent(void);
FOUNDATION_EXPORT const char* dispatch_queue_get_label(dispatch_queue_t queue);
FOUNDATION_EXPORT void dispatch_async(dispatch_queue_t queue, dispatch_block_t block);
FOUNDATION_EXPORT void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block);
FOUNDATION_EXPORT void dispatch_once(dispatch_once_t* once, dispatch_block_t block);

FOUNDATION_EXPORT dispatch_semaphore_t dispatch_semaphore_create(intptr_t value) NS_RETURNS_RETAINED;
FOUNDATION_EXPORT intptr_t dispatch_semaphore_wait(dispatch_semaphore_t semaphore, dispatch_time_t deadline);
FOUNDATION_EXPORT intptr_t dispatch_semaphore_signal(dispatch_semaphore_t semaphore);

FOUNDATION_EXPORT dispatch_group_t dispatch_group_create(void) NS_RETURNS_RETAINED;
FOUNDATION_EXPORT void dispatch_group_enter(dispatch_group_t group);
FOUNDATION_EXPORT void dispatch_group_leave(dispatch_group_t group);
FOUNDATION_EXPORT intptr_t dispatch_group_wait(dispatch_group_t group, dispatch_time_t deadline);

#define DISPATCH_DATA_DESTRUCTOR_DEFAULT ((dispatch_block_t)nil)
#define DISPATCH_DATA_DESTRUCTOR_FREE (dispatch_data_destructor_free())
FOUNDATION_EXPORT dispatch_block_t dispatch_data_destructor_free(void);
/// With the default destructor the bytes are copied; with any other they are borrowed until it runs.
FOUNDATION_EXPORT dispatch_data_t dispatch_data_create(const void* bytes, size_t size, dispatch_queue_t queue,
                                                       dispatch_block_t destructor) NS_RETURNS_RETAINED;
FOUNDATION_EXPORT size_t dispatch_data_get_size(dispatch_data_t data);
FOUNDATION_EXPORT dispatch_data_t dispatch_data_create_map(dispatch_data_t data, const void** bytes,
                                                           size_t* size) NS_RETURNS_RETAINED;
