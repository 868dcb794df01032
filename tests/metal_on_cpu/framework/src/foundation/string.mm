#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "foundation/text.h"

using metal_framework::format;
using metal_framework::string;
using metal_framework::text;

// A string that is not a literal.
@interface MOCString : NSString {
 @public
  std::string utf8;
}
@end

@interface NSMutableString () {
 @public
  std::string utf8;
}
@end

namespace metal_framework {

NSString* string(const std::string& text) {
  MOCString* made = [[MOCString alloc] init];
  made->utf8 = text;
  return made;
}

std::string text(NSString* string) { return string == nil ? std::string() : std::string(string.UTF8String); }

NSError* error(NSString* domain, NSInteger code, const std::string& description) {
  return [NSError errorWithDomain:domain code:code userInfo:@{NSLocalizedDescriptionKey : string(description)}];
}

namespace {

template <class T>
std::string print(const std::string& specification, T value) {
  char small[128];
  const int length = std::snprintf(small, sizeof small, specification.c_str(), value);
  if (length < static_cast<int>(sizeof small)) return small;
  std::string large(static_cast<size_t>(length) + 1, '\0');
  std::snprintf(large.data(), large.size(), specification.c_str(), value);
  large.pop_back();
  return large;
}

// Prints the argument of one conversion such as "%08lx"; `arguments` moves on by what the conversion takes.
std::string convert(const std::string& specification, va_list& arguments) {
  const char kind = specification.back();
  const bool wide = specification.find_first_of("lzjtq") != std::string::npos;
  switch (kind) {
    case '@': {
      id object = va_arg(arguments, id);
      return object == nil ? "(null)" : text([object description]);
    }
    case 'd':
    case 'i':
      return wide ? print(specification, va_arg(arguments, long)) : print(specification, va_arg(arguments, int));
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      return wide ? print(specification, va_arg(arguments, unsigned long)) : print(specification, va_arg(arguments, unsigned));
    case 'c':
      return print(specification, va_arg(arguments, int));
    case 's': {
      const char* const value = va_arg(arguments, const char*);
      return print(specification, value == nullptr ? "(null)" : value);
    }
    case 'p':
      return print(specification, va_arg(arguments, void*));
    case '%':
      return "%";
    default:
      return print(specification, va_arg(arguments, double));
  }
}

}  // namespace

std::string format(const char* format, va_list given) {
  va_list arguments;
  va_copy(arguments, given);
  std::string out;
  for (const char* at = format; *at != '\0'; ++at) {
    if (*at != '%') {
      out += *at;
      continue;
    }
    std::string specification = "%";
    for (++at; *at != '\0'; ++at) {
      if (*at == '*') {
        specification += std::to_string(va_arg(arguments, int));
        continue;
      }
      if (*at != 'q')
        specification += *at;  // %qd is another way to write %lld
      else
        specification += "ll";
      if (std::isalpha(static_cast<unsigned char>(*at)) && std::string("lhzjtqL").find(*at) == std::string::npos) break;
      if (*at == '@' || *at == '%') break;
    }
    if (*at == '\0') break;
    out += convert(specification, arguments);
  }
  va_end(arguments);
  return out;
}

}  // namespace metal_framework

void NSLog(NSString* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  std::fprintf(stderr, "%s\n", format(pattern.UTF8String, arguments).c_str());
  va_end(arguments);
}

@implementation NSString
+ (instancetype)alloc {
  return self == [NSString class] ? (id)[MOCString alloc] : [super alloc];
}
- (NSUInteger)length {
  // One UTF-16 unit a character, two for those that need four bytes of UTF-8.
  NSUInteger units = 0;
  for (const char* c = self.UTF8String; *c != '\0'; ++c) {
    const auto byte = static_cast<unsigned char>(*c);
    if ((byte & 0xC0) != 0x80) units += byte >= 0xF0 ? 2 : 1;
  }
  return units;
}
- (unichar)characterAtIndex:(NSUInteger)index {
  const std::string all = text(self);
  return index < all.size() ? static_cast<unsigned char>(all[index]) : 0;
}
- (id)copyWithZone:(NSZone*)zone {
  return string(text(self));
}
- (id)mutableCopyWithZone:(NSZone*)zone {
  return [[NSMutableString alloc] initWithString:self];
}
- (BOOL)isEqual:(id)object {
  return self == object || ([object isKindOfClass:[NSString class]] && text(self) == text(object));
}
- (NSUInteger)hash {
  return std::hash<std::string>()(text(self));
}
- (NSString*)description {
  return self;
}
@end

@implementation NSString (Creation)
+ (instancetype)string {
  return [[self alloc] initWithUTF8String:""];
}
+ (instancetype)stringWithString:(NSString*)other {
  return [[self alloc] initWithString:other];
}
+ (instancetype)stringWithUTF8String:(const char*)utf8 {
  return [[self alloc] initWithUTF8String:utf8];
}
+ (instancetype)stringWithCString:(const char*)bytes encoding:(NSStringEncoding)encoding {
  return [[self alloc] initWithUTF8String:bytes];
}
+ (instancetype)stringWithFormat:(NSString*)pattern, ... {
  va_list arguments;
  va_start(arguments, pattern);
  NSString* made = [[self alloc] initWithFormat:pattern arguments:arguments];
  va_end(arguments);
  return made;
}
+ (instancetype)stringWithContentsOfFile:(NSString*)path
                                encoding:(NSStringEncoding)encoding
                                   error:(NSError* __autoreleasing*)error {
  std::ifstream file(text(path), std::ios::binary);
  if (!file) {
    if (error) *error = metal_framework::error(NSCocoaErrorDomain, 260, "cannot open " + text(path));
    return nil;
  }
  return [[self alloc] initWithUTF8String:std::string(std::istreambuf_iterator<char>(file), {}).c_str()];
}
+ (instancetype)stringWithContentsOfURL:(NSURL*)url encoding:(NSStringEncoding)encoding error:(NSError* __autoreleasing*)error {
  return [self stringWithContentsOfFile:url.path encoding:encoding error:error];
}
- (instancetype)initWithString:(NSString*)other {
  return [self initWithUTF8String:other.UTF8String];
}
- (instancetype)initWithUTF8String:(const char*)utf8 {
  return [self initWithBytes:utf8
                      length:utf8 == nullptr ? 0 : std::char_traits<char>::length(utf8)
                    encoding:NSUTF8StringEncoding];
}
- (instancetype)initWithCString:(const char*)bytes encoding:(NSStringEncoding)encoding {
  return [self initWithUTF8String:bytes];
}
- (instancetype)initWithBytes:(const void*)bytes length:(NSUInteger)length encoding:(NSStringEncoding)encoding {
  return self;  // the concrete classes keep the bytes
}
- (instancetype)initWithData:(NSData*)data encoding:(NSStringEncoding)encoding {
  return [self initWithBytes:data.bytes length:data.length encoding:encoding];
}
- (instancetype)initWithFormat:(NSString*)pattern, ... {
  va_list arguments;
  va_start(arguments, pattern);
  self = [self initWithFormat:pattern arguments:arguments];
  va_end(arguments);
  return self;
}
- (instancetype)initWithFormat:(NSString*)pattern arguments:(va_list)arguments {
  return [self initWithUTF8String:format(pattern.UTF8String, arguments).c_str()];
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
- (id)copyWithZone:(NSZone*)zone {
  return self;
}
@end

@implementation NSMutableString
- (instancetype)initWithBytes:(const void*)bytes length:(NSUInteger)length encoding:(NSStringEncoding)encoding {
  if (length != 0) utf8.assign(static_cast<const char*>(bytes), length);
  return self;
}
- (const char*)UTF8String {
  return utf8.c_str();
}
- (void)appendString:(NSString*)other {
  utf8 += text(other);
}
- (void)appendFormat:(NSString*)pattern, ... {
  va_list arguments;
  va_start(arguments, pattern);
  utf8 += format(pattern.UTF8String, arguments);
  va_end(arguments);
}
- (void)setString:(NSString*)other {
  utf8 = text(other);
}
@end
