#pragma once

#include <dispatch/dispatch.h>

@interface MOCDispatchData : NSObject <OS_dispatch_data> {
 @public
  const void* bytes;
  size_t size;
  dispatch_block_t destructor;
}
@end
