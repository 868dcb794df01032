// Planted: a call of what macOS 15 introduced, guarded or (with UNGUARDED) not.
#import <Metal/Metal.h>

void make_resident(id<MTLCommandBuffer> commands, id set);
void make_resident(id<MTLCommandBuffer> commands, id set) {
#ifdef UNGUARDED
  [commands useResidencySet:set];
#else
  if (@available(macOS 15.0, *)) [commands useResidencySet:set];
#endif
}
