#pragma once

#include <Foundation/NSObject.h>

@class NSData;
@class NSError;
@class NSURL;
@class NSArray<ObjectType>;

typedef NSUInteger NSStringEncoding;
enum : NSStringEncoding { NSASCIIStringEncoding = 1, NSUTF8StringEncoding = 4 };
typedef unsigned short unichar;

NS_ASSUME_NONNULL_BEGIN

/// Text, kept in UTF-8. -length counts UTF-16 units, as everywhere.
@interface NSString : NSObject <NSCopying, NSMutableCopying>
@property(readonly) NSUInteger length;
- (unichar)characterAtIndex:(NSUInteger)index;
@end

@interface NSString (Creation)
+ (instancetype)string;
+ (instancetype)stringWithString:(NSString*)string;
+ (nullable instancetype)stringWithUTF8String:(const char*)text;
+ (nullable instancetype)stringWithCString:(const char*)text encoding:(NSStringEncoding)encoding;
+ (instancetype)stringWithFormat:(NSString*)format, ... __attribute__((format(__NSString__, 1, 2)));
+ (nullable instancetype)stringWithContentsOfFile:(NSString*)path
                                         encoding:(NSStringEncoding)encoding
                                            error:(NSError* _Nullable __autoreleasing* _Nullable)error;
+ (nullable instancetype)stringWithContentsOfURL:(NSURL*)url
                                        encoding:(NSStringEncoding)encoding
                                           error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (instancetype)initWithString:(NSString*)string;
- (nullable instancetype)initWithUTF8String:(const char*)text;
- (nullable instancetype)initWithCString:(const char*)text encoding:(NSStringEncoding)encoding;
- (nullable instancetype)initWithBytes:(const void*)bytes length:(NSUInteger)length encoding:(NSStringEncoding)encoding;
- (nullable instancetype)initWithData:(NSData*)data encoding:(NSStringEncoding)encoding;
- (instancetype)initWithFormat:(NSString*)format, ... __attribute__((format(__NSString__, 1, 2)));
- (instancetype)initWithFormat:(NSString*)format arguments:(va_list)arguments __attribute__((format(__NSString__, 1, 0)));
@end

@interface NSString (Contents)
@property(readonly, nullable) const char* UTF8String;
- (nullable const char*)cStringUsingEncoding:(NSStringEncoding)encoding;
- (NSUInteger)lengthOfBytesUsingEncoding:(NSStringEncoding)encoding;
- (nullable NSData*)dataUsingEncoding:(NSStringEncoding)encoding;
- (BOOL)isEqualToString:(NSString*)other;
- (NSComparisonResult)compare:(NSString*)other;
- (BOOL)hasPrefix:(NSString*)text;
- (BOOL)hasSuffix:(NSString*)text;
- (BOOL)containsString:(NSString*)text;
- (NSRange)rangeOfString:(NSString*)text;
- (NSString*)substringFromIndex:(NSUInteger)index;
- (NSString*)substringToIndex:(NSUInteger)index;
- (NSString*)stringByAppendingString:(NSString*)text;
- (NSString*)stringByAppendingFormat:(NSString*)format, ... __attribute__((format(__NSString__, 1, 2)));
- (NSString*)stringByReplacingOccurrencesOfString:(NSString*)from withString:(NSString*)to;
- (NSArray<NSString*>*)componentsSeparatedByString:(NSString*)separator;
@property(readonly, copy) NSString* lowercaseString;
@property(readonly, copy) NSString* uppercaseString;
@property(readonly) int intValue;
@property(readonly) NSInteger integerValue;
@property(readonly) long long longLongValue;
@property(readonly) float floatValue;
@property(readonly) double doubleValue;
@property(readonly) BOOL boolValue;
@property(readonly, copy) NSString* lastPathComponent;
@property(readonly, copy) NSString* pathExtension;
- (NSString*)stringByAppendingPathComponent:(NSString*)name;
- (NSString*)stringByDeletingLastPathComponent;
@end

@interface NSMutableString : NSString
- (void)appendString:(NSString*)text;
- (void)appendFormat:(NSString*)format, ... __attribute__((format(__NSString__, 1, 2)));
- (void)setString:(NSString*)text;
@end

/// What @"text" is: its layout is the compiler's.
@interface NSConstantString : NSString {
  const char* bytes;
  unsigned int count;
}
@end

NS_ASSUME_NONNULL_END
