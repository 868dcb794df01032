#include <cstring>

#include "metal/objects.h"

using metal_framework::Failure;
using metal_framework::find;

namespace {

// Whether [offset, offset + size) lies inside a buffer.
bool inside(MOCBuffer* buffer, NSUInteger offset, NSUInteger size) {
  return offset <= buffer->storage->size && size <= buffer->storage->size - offset;
}

std::string range(NSUInteger offset, NSUInteger size) {
  return std::to_string(size) + " bytes at byte " + std::to_string(offset);
}

}  // namespace

@implementation MOCBlitCommandEncoder
- (BOOL)check:(MOCBuffer*)buffer offset:(NSUInteger)offset size:(NSUInteger)size for:(const char*)what {
  if (![self accepts:what]) return NO;
  if (buffer == nil) {
    find("nil-argument", std::string(what) + " nil");
    return NO;
  }
  if (size == 0 || !inside(buffer, offset, size)) {
    find("out-of-range", std::string(what) + " " + range(offset, size) + " of " + buffer->storage->describe());
    return NO;
  }
  // macOS copies and fills in units of 4 bytes.
  if (offset % 4 != 0 || size % 4 != 0) {
    find("blit-alignment", std::string(what) + " " + range(offset, size) + ": both must be multiples of 4");
    return NO;
  }
  [owner use:buffer];
  return YES;
}
- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destination
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size {
  MOCBuffer *from = (MOCBuffer*)source, *to = (MOCBuffer*)destination;
  if (![self check:from offset:sourceOffset size:size for:"copyFromBuffer:"]) return;
  if (![self check:to offset:destinationOffset size:size for:"toBuffer:"]) return;
  if (from == to && sourceOffset < destinationOffset + size && destinationOffset < sourceOffset + size) {
    return find("overlap", "copy of " + range(sourceOffset, size) + " to byte " + std::to_string(destinationOffset) +
                               " of the same " + to->storage->describe());
  }
  auto read = from->storage, written = to->storage;
  [self add:[=, by = pass]() -> std::optional<Failure> {
    read->use(by);
    written->use(by);
    std::memcpy(written->data + destinationOffset, read->data + sourceOffset, size);
    return std::nullopt;
  }];
}
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)filled value:(uint8_t)value {
  MOCBuffer* to = (MOCBuffer*)buffer;
  if (![self check:to offset:filled.location size:filled.length for:"fillBuffer:"]) return;
  auto written = to->storage;
  [self add:[=, by = pass]() -> std::optional<Failure> {
    written->use(by);
    std::memset(written->data + filled.location, value, filled.length);
    return std::nullopt;
  }];
}
@end
