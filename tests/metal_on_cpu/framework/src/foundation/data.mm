#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "foundation/text.h"

using metal_framework::text;

@interface NSData () {
 @public
  std::vector<char> own;
  const void* borrowed;  // instead of own
  size_t borrowed_size;
  BOOL frees;
}
@end

@implementation NSData
+ (instancetype)data {
  return [[self alloc] init];
}
+ (instancetype)dataWithBytes:(const void*)bytes length:(NSUInteger)length {
  return [[self alloc] initWithBytes:bytes length:length];
}
+ (instancetype)dataWithBytesNoCopy:(void*)bytes length:(NSUInteger)length freeWhenDone:(BOOL)frees {
  NSData* made = [[self alloc] init];
  made->borrowed = bytes;
  made->borrowed_size = length;
  made->frees = frees;
  return made;
}
+ (instancetype)dataWithContentsOfFile:(NSString*)path {
  std::ifstream file(text(path), std::ios::binary);
  if (!file) return nil;
  NSData* made = [[self alloc] init];
  made->own.assign(std::istreambuf_iterator<char>(file), {});
  return made;
}
+ (instancetype)dataWithContentsOfURL:(NSURL*)url {
  return [self dataWithContentsOfFile:url.path];
}
- (instancetype)initWithBytes:(const void*)bytes length:(NSUInteger)length {
  const auto* first = static_cast<const char*>(bytes);
  own.assign(first, first + length);
  return self;
}
- (instancetype)initWithData:(NSData*)data {
  return [self initWithBytes:data.bytes length:data.length];
}
- (void)dealloc {
  if (frees) std::free(const_cast<void*>(borrowed));
}
- (NSUInteger)length {
  return borrowed != nullptr ? borrowed_size : own.size();
}
- (const void*)bytes {
  return borrowed != nullptr ? borrowed : own.data();
}
- (BOOL)isEqualToData:(NSData*)other {
  const size_t size = self.length;
  return other.length == size && (size == 0 || std::memcmp(self.bytes, other.bytes, size) == 0);
}
- (BOOL)isEqual:(id)object {
  return [object isKindOfClass:[NSData class]] && [self isEqualToData:object];
}
- (NSUInteger)hash {
  return self.length;
}
- (void)getBytes:(void*)buffer length:(NSUInteger)length {
  [self getBytes:buffer range:NSMakeRange(0, length < self.length ? length : self.length)];
}
- (void)getBytes:(void*)buffer range:(NSRange)range {
  if (NSMaxRange(range) > self.length || range.length == 0) return;
  std::memcpy(buffer, static_cast<const char*>(self.bytes) + range.location, range.length);
}
- (NSData*)subdataWithRange:(NSRange)range {
  if (NSMaxRange(range) > self.length) return [NSData data];
  return [NSData dataWithBytes:static_cast<const char*>(self.bytes) + range.location length:range.length];
}
- (BOOL)writeToFile:(NSString*)path atomically:(BOOL)atomically {
  std::ofstream file(text(path), std::ios::binary);
  file.write(static_cast<const char*>(self.bytes), static_cast<std::streamsize>(self.length));
  return static_cast<bool>(file.flush());
}
- (BOOL)writeToURL:(NSURL*)url atomically:(BOOL)atomically {
  return [self writeToFile:url.path atomically:atomically];
}
- (id)copyWithZone:(NSZone*)zone {
  return [[NSData alloc] initWithData:self];
}
- (id)mutableCopyWithZone:(NSZone*)zone {
  return [[NSMutableData alloc] initWithData:self];
}
@end

@implementation NSMutableData
@dynamic length;
+ (instancetype)dataWithLength:(NSUInteger)length {
  NSMutableData* made = [[self alloc] init];
  made->own.resize(length);
  return made;
}
+ (instancetype)dataWithCapacity:(NSUInteger)capacity {
  return [[self alloc] init];
}
- (NSUInteger)length {
  return own.size();
}
- (void)setLength:(NSUInteger)length {
  own.resize(length);
}
- (void*)mutableBytes {
  return own.data();
}
- (void)appendBytes:(const void*)bytes length:(NSUInteger)length {
  const auto* first = static_cast<const char*>(bytes);
  own.insert(own.end(), first, first + length);
}
- (void)appendData:(NSData*)data {
  [self appendBytes:data.bytes length:data.length];
}
@end
