#import <Foundation/Foundation.h>

#include <type_traits>

#include "foundation/text.h"

@interface NSNumber () {
 @public
  const char* type;  // as @encode has it
  long long integer;
  double real;  // of "f" and "d"
}
@end

namespace {

template <class T>
NSNumber* number(T value) {
  NSNumber* made = [[NSNumber alloc] init];
  made->type = @encode(T);
  if constexpr (std::is_floating_point_v<T>) {
    made->real = value;
  } else {
    made->integer = static_cast<long long>(value);
  }
  return made;
}

bool is_real(NSNumber* number) { return number->type[0] == 'f' || number->type[0] == 'd'; }

template <class T>
T value(NSNumber* number) {
  return is_real(number) ? static_cast<T>(number->real) : static_cast<T>(number->integer);
}

double as_double(NSNumber* number) {
  if (is_real(number)) return number->real;
  // 'Q' and 'L': unsigned 64-bit integers, kept in the same bits
  const bool is_unsigned = number->type[0] == 'Q' || number->type[0] == 'L';
  return is_unsigned ? static_cast<double>(static_cast<unsigned long long>(number->integer))
                     : static_cast<double>(number->integer);
}

}  // namespace

@implementation NSNumber
+ (NSNumber*)numberWithBool:(BOOL)v {
  return number(v);
}
+ (NSNumber*)numberWithChar:(char)v {
  return number(v);
}
+ (NSNumber*)numberWithUnsignedChar:(unsigned char)v {
  return number(v);
}
+ (NSNumber*)numberWithShort:(short)v {
  return number(v);
}
+ (NSNumber*)numberWithUnsignedShort:(unsigned short)v {
  return number(v);
}
+ (NSNumber*)numberWithInt:(int)v {
  return number(v);
}
+ (NSNumber*)numberWithUnsignedInt:(unsigned int)v {
  return number(v);
}
+ (NSNumber*)numberWithLong:(long)v {
  return number(v);
}
+ (NSNumber*)numberWithUnsignedLong:(unsigned long)v {
  return number(v);
}
+ (NSNumber*)numberWithLongLong:(long long)v {
  return number(v);
}
+ (NSNumber*)numberWithUnsignedLongLong:(unsigned long long)v {
  return number(v);
}
+ (NSNumber*)numberWithInteger:(NSInteger)v {
  return number(v);
}
+ (NSNumber*)numberWithUnsignedInteger:(NSUInteger)v {
  return number(v);
}
+ (NSNumber*)numberWithFloat:(float)v {
  return number(v);
}
+ (NSNumber*)numberWithDouble:(double)v {
  return number(v);
}
- (instancetype)init {
  type = @encode(int);
  return self;
}
- (BOOL)boolValue {
  return as_double(self) != 0;
}
- (char)charValue {
  return value<char>(self);
}
- (int)intValue {
  return value<int>(self);
}
- (unsigned int)unsignedIntValue {
  return value<unsigned int>(self);
}
- (long)longValue {
  return value<long>(self);
}
- (unsigned long)unsignedLongValue {
  return value<unsigned long>(self);
}
- (long long)longLongValue {
  return value<long long>(self);
}
- (unsigned long long)unsignedLongLongValue {
  return value<unsigned long long>(self);
}
- (NSInteger)integerValue {
  return value<NSInteger>(self);
}
- (NSUInteger)unsignedIntegerValue {
  return value<NSUInteger>(self);
}
- (float)floatValue {
  return static_cast<float>(as_double(self));
}
- (double)doubleValue {
  return as_double(self);
}
- (const char*)objCType {
  return type;
}
- (NSString*)stringValue {
  if (is_real(self)) return [NSString stringWithFormat:@"%.17g", real];
  if (type[0] == 'Q' || type[0] == 'L') return [NSString stringWithFormat:@"%llu", self.unsignedLongLongValue];
  return [NSString stringWithFormat:@"%lld", integer];
}
- (NSString*)description {
  return self.stringValue;
}
- (BOOL)isEqualToNumber:(NSNumber*)other {
  return other != nil && [self compare:other] == NSOrderedSame;
}
- (BOOL)isEqual:(id)object {
  return [object isKindOfClass:[NSNumber class]] && [self isEqualToNumber:object];
}
- (NSUInteger)hash {
  return static_cast<NSUInteger>(value<long long>(self));
}
- (NSComparisonResult)compare:(NSNumber*)other {
  if (!is_real(self) && !is_real(other) && integer == other->integer) return NSOrderedSame;
  const double a = as_double(self), b = as_double(other);
  if (a == b && !is_real(self) && !is_real(other)) return integer < other->integer ? NSOrderedAscending : NSOrderedDescending;
  return a < b ? NSOrderedAscending : a > b ? NSOrderedDescending : NSOrderedSame;
}
- (id)copyWithZone:(NSZone*)zone {
  return self;
}
@end
