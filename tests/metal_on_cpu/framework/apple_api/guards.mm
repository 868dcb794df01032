// Planted: a call of what macOS 15 introduced, guarded or (with UNGUARDED) not.
#import <Metal/Metal.h>

void make_resident(id<MTLCommandQueue> queue, id set);
void make_resident(id<MTLCommandQueue> queue, id set) {
#ifdef UNGUARDED
  [queue addResidencySet:set];
#else
  if (@available(macOS 15.0, *)) [queue addResidencySet:set];
#endif
}
