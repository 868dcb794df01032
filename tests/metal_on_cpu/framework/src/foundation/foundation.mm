// Strings in UTF-8, arrays as vectors, errors, URLs and the process.
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "foundation/text.h"
#include "metal/checks.h"
#include "runtime/object.h"

using metal_framework::string;
using metal_framework::text;

// A string that is not a literal.
@interface MOCString : NSString {
 @public
  std::string utf8;
}
@end

@implementation NSString
+ (instancetype)alloc {
  return self == [NSString class] ? (id)[MOCString alloc] : [super alloc];
}
- (instancetype)initWithBytes:(const void*)bytes length:(NSUInteger)length encoding:(NSStringEncoding)encoding {
  return self;  // the class of literals has nothing to set
}
- (const char*)UTF8String {
  return "";
}
- (NSUInteger)lengthOfBytesUsingEncoding:(NSStringEncoding)encoding {
  return text(self).size();
}
- (BOOL)isEqualToString:(NSString*)other {
  return other != nil && text(self) == text(other);
}
- (BOOL)isEqual:(id)object {
  return [object isKindOfClass:[NSString class]] && [self isEqualToString:object];
}
- (NSUInteger)hash {
  return std::hash<std::string>()(text(self));
}
- (id)copyWithZone:(NSZone*)zone {
  return self;
}
@end

@implementation MOCString
- (instancetype)initWithBytes:(const void*)bytes length:(NSUInteger)length encoding:(NSStringEncoding)encoding {
  if (length != 0) utf8.assign(static_cast<const char*>(bytes), length);
  return self;
}
- (const char*)UTF8String {
  return utf8.c_str();
}
@end

@implementation NSConstantString
- (const char*)UTF8String {
  return bytes;
}
@end

@interface NSArray () {
 @public
  std::vector<__strong id> items;
}
@end

@implementation NSArray
+ (instancetype)array {
  return [[self alloc] init];
}
+ (instancetype)arrayWithObjects:(const id[])objects count:(NSUInteger)count {
  NSArray* made = [[self alloc] init];
  made->items.assign(objects, objects + count);
  return made;
}
- (NSUInteger)count {
  return items.size();
}
- (id)objectAtIndexedSubscript:(NSUInteger)index {
  if (index < items.size()) return items[index];
  metal_framework::find("index-out-of-range", "an array has no element " + std::to_string(index));
  return nil;
}
- (BOOL)containsObject:(id)object {
  return std::any_of(items.begin(), items.end(), [&](id item) { return [item isEqual:object]; });
}
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState*)state
                                  objects:(id __unsafe_unretained*)buffer
                                    count:(NSUInteger)count {
  static unsigned long unchanged = 0;
  if (state->state != 0) return 0;
  state->state = 1;
  state->mutationsPtr = &unchanged;
  state->itemsPtr = (id __unsafe_unretained*)(void*)items.data();
  return items.size();
}
- (id)copyWithZone:(NSZone*)zone {
  return self;
}
@end

@interface NSError () {
 @public
  NSErrorDomain given_domain;
  NSInteger given_code;
  NSString* about;
}
@end

@implementation NSError
- (NSErrorDomain)domain {
  return given_domain;
}
- (NSInteger)code {
  return given_code;
}
- (NSString*)localizedDescription {
  return about;
}
@end

namespace metal_framework {

NSString* string(const std::string& text) {
  return [[NSString alloc] initWithBytes:text.data() length:text.size() encoding:NSUTF8StringEncoding];
}

std::string text(NSString* string) { return string == nil ? std::string() : std::string(string.UTF8String); }

NSArray* array(const std::vector<std::string>& texts) {
  NSArray* made = [NSArray array];
  for (const std::string& each : texts) made->items.push_back(string(each));
  return made;
}

NSError* error(NSErrorDomain domain, NSInteger code, const std::string& description) {
  NSError* made = [[NSError alloc] init];
  made->given_domain = domain;
  made->given_code = code;
  made->about = string(description);
  return made;
}

}  // namespace metal_framework

@implementation NSURL {
  std::string path;
}
+ (NSURL*)fileURLWithPath:(NSString*)path {
  NSURL* made = [[NSURL alloc] init];
  made->path = text(path);
  return made;
}
- (const char*)fileSystemRepresentation {
  return path.c_str();
}
- (id)copyWithZone:(NSZone*)zone {
  return self;
}
@end

@implementation NSProcessInfo
+ (NSProcessInfo*)processInfo {
  static NSProcessInfo* info;
  static std::once_flag once;
  std::call_once(once, [] {
    info = [[NSProcessInfo alloc] init];
    metal_framework::make_immortal(info);
  });
  return info;
}
- (unsigned long long)physicalMemory {
  return static_cast<unsigned long long>(sysconf(_SC_PHYS_PAGES)) * static_cast<unsigned long long>(sysconf(_SC_PAGESIZE));
}
- (NSString*)operatingSystemVersionString {
  return string(metal_test::settings()->os_version);
}
@end
