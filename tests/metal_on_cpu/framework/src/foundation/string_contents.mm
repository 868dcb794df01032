// Looking into strings, and paths. Indices count bytes of UTF-8, which are characters in ASCII.
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "foundation/text.h"

using metal_framework::string;
using metal_framework::text;

namespace {

std::string mapped(NSString* self, int (*change)(int)) {
  std::string all = text(self);
  std::transform(all.begin(), all.end(), all.begin(), [&](unsigned char c) { return static_cast<char>(change(c)); });
  return all;
}

}  // namespace

@implementation NSString (Contents)
- (const char*)UTF8String {
  return "";
}
- (const char*)cStringUsingEncoding:(NSStringEncoding)encoding {
  return self.UTF8String;
}
- (NSUInteger)lengthOfBytesUsingEncoding:(NSStringEncoding)encoding {
  return text(self).size();
}
- (NSData*)dataUsingEncoding:(NSStringEncoding)encoding {
  const std::string all = text(self);
  return [NSData dataWithBytes:all.data() length:all.size()];
}
- (BOOL)isEqualToString:(NSString*)other {
  return other != nil && text(self) == text(other);
}
- (NSComparisonResult)compare:(NSString*)other {
  const int order = text(self).compare(text(other));
  return order < 0 ? NSOrderedAscending : order > 0 ? NSOrderedDescending : NSOrderedSame;
}
- (BOOL)hasPrefix:(NSString*)other {
  return text(self).starts_with(text(other));
}
- (BOOL)hasSuffix:(NSString*)other {
  return text(self).ends_with(text(other));
}
- (BOOL)containsString:(NSString*)other {
  return text(self).find(text(other)) != std::string::npos;
}
- (NSRange)rangeOfString:(NSString*)other {
  const size_t at = text(self).find(text(other));
  return at == std::string::npos ? NSMakeRange(NSNotFound, 0) : NSMakeRange(at, text(other).size());
}
- (NSString*)substringFromIndex:(NSUInteger)index {
  const std::string all = text(self);
  return string(index < all.size() ? all.substr(index) : std::string());
}
- (NSString*)substringToIndex:(NSUInteger)index {
  return string(text(self).substr(0, index));
}
- (NSString*)stringByAppendingString:(NSString*)other {
  return string(text(self) + text(other));
}
- (NSString*)stringByAppendingFormat:(NSString*)pattern, ... {
  va_list arguments;
  va_start(arguments, pattern);
  NSString* made = string(text(self) + metal_framework::format(pattern.UTF8String, arguments));
  va_end(arguments);
  return made;
}
- (NSString*)stringByReplacingOccurrencesOfString:(NSString*)from withString:(NSString*)to {
  std::string all = text(self);
  const std::string before = text(from), after = text(to);
  if (before.empty()) return self;
  for (size_t at = 0; (at = all.find(before, at)) != std::string::npos; at += after.size()) {
    all.replace(at, before.size(), after);
  }
  return string(all);
}
- (NSArray<NSString*>*)componentsSeparatedByString:(NSString*)separator {
  NSMutableArray<NSString*>* parts = [NSMutableArray array];
  const std::string all = text(self), between = text(separator);
  size_t from = 0;
  for (size_t at; !between.empty() && (at = all.find(between, from)) != std::string::npos; from = at + between.size()) {
    [parts addObject:string(all.substr(from, at - from))];
  }
  [parts addObject:string(all.substr(from))];
  return parts;
}
- (NSString*)lowercaseString {
  return string(mapped(self, std::tolower));
}
- (NSString*)uppercaseString {
  return string(mapped(self, std::toupper));
}
- (int)intValue {
  return std::atoi(self.UTF8String);
}
- (NSInteger)integerValue {
  return std::atol(self.UTF8String);
}
- (long long)longLongValue {
  return std::atoll(self.UTF8String);
}
- (float)floatValue {
  return std::strtof(self.UTF8String, nullptr);
}
- (double)doubleValue {
  return std::strtod(self.UTF8String, nullptr);
}
- (BOOL)boolValue {
  const std::string all = text(self);
  return !all.empty() && std::string("YyTt123456789").find(all[0]) != std::string::npos;
}
- (NSString*)lastPathComponent {
  const std::string all = text(self);
  const size_t slash = all.rfind('/');
  return string(slash == std::string::npos ? all : all.substr(slash + 1));
}
- (NSString*)pathExtension {
  const std::string name = text(self.lastPathComponent);
  const size_t dot = name.rfind('.');
  return string(dot == std::string::npos ? std::string() : name.substr(dot + 1));
}
- (NSString*)stringByAppendingPathComponent:(NSString*)name {
  const std::string all = text(self);
  return string(all.empty() || all.back() == '/' ? all + text(name) : all + "/" + text(name));
}
- (NSString*)stringByDeletingLastPathComponent {
  const std::string all = text(self);
  const size_t slash = all.rfind('/');
  return string(slash == std::string::npos ? std::string() : all.substr(0, std::max<size_t>(slash, 1)));
}
@end

@implementation NSConstantString
- (const char*)UTF8String {
  return bytes;
}
- (id)copyWithZone:(NSZone*)zone {
  return self;
}
@end
