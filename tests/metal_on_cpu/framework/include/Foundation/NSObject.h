// The root of all objects, and the basic types of Objective-C. Written for the tests of Metal hosts on other systems: names and
// signatures are those that Apple documents.
#pragma once

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define FOUNDATION_EXPORT extern "C"
#else
#define FOUNDATION_EXPORT extern
#endif
#define FOUNDATION_EXTERN FOUNDATION_EXPORT
#define NS_INLINE static inline

#ifndef nil
#ifdef __cplusplus
#define nil nullptr
#define Nil nullptr
#else
#define nil ((void*)0)
#define Nil ((void*)0)
#endif
#endif

// As on Apple silicon.
typedef bool BOOL;
#ifndef YES
#define YES __objc_yes
#define NO __objc_no
#endif

#define NS_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define NS_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")
#define NS_ENUM(type, name) \
  enum name : type name;    \
  enum name : type
#ifdef __cplusplus  // as Apple's: so that options can be combined without a cast
#define NS_OPTIONS(type, name) \
  type name;                   \
  enum : type
#else
#define NS_OPTIONS(type, name) \
  enum name : type name;       \
  enum name : type
#endif
#define NS_DESIGNATED_INITIALIZER __attribute__((objc_designated_initializer))
#define NS_UNAVAILABLE __attribute__((unavailable))
#define NS_RETURNS_RETAINED __attribute__((ns_returns_retained))
#define NS_REQUIRES_NIL_TERMINATION __attribute__((sentinel(0, 1)))
#define NS_SWIFT_NAME(name)
// Only the first platform is read, so it must be macos(VERSION).
#define METAL_HOST_AVAILABLE_macos(version) macos, introduced = version
#define API_AVAILABLE(first, ...) __attribute__((availability(METAL_HOST_AVAILABLE_##first)))
#define API_UNAVAILABLE(...)
#define API_DEPRECATED(...)
#define API_DEPRECATED_WITH_REPLACEMENT(...)

typedef long NSInteger;
typedef unsigned long NSUInteger;
typedef double NSTimeInterval;
typedef double CFTimeInterval;
typedef struct _NSZone NSZone;
#define NSIntegerMax LONG_MAX
#define NSIntegerMin LONG_MIN
#define NSUIntegerMax ULONG_MAX

enum { NSNotFound = NSIntegerMax };
typedef NS_ENUM(NSInteger, NSComparisonResult) { NSOrderedAscending = -1, NSOrderedSame = 0, NSOrderedDescending = 1 };

typedef struct _NSRange {
  NSUInteger location;
  NSUInteger length;
} NSRange;

NS_INLINE NSRange NSMakeRange(NSUInteger location, NSUInteger length) {
  NSRange range = {location, length};
  return range;
}
NS_INLINE NSUInteger NSMaxRange(NSRange range) { return range.location + range.length; }

@class NSString;
@protocol NSObject;
@class Protocol;

@protocol NSObject
- (BOOL)isEqual:(id)object;
@property(readonly) NSUInteger hash;
@property(readonly) Class superclass;
@property(readonly, copy) NSString* description;
@property(readonly, copy) NSString* debugDescription;
- (Class)class;
- (instancetype)self;
- (BOOL)isKindOfClass:(Class)type;
- (BOOL)isMemberOfClass:(Class)type;
- (BOOL)conformsToProtocol:(Protocol*)protocol;
- (BOOL)respondsToSelector:(SEL)selector;
#if !__has_feature(objc_arc)
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
- (NSUInteger)retainCount;
#endif
@end

@protocol NSCopying
- (id)copyWithZone:(NSZone*)zone;
@end

@protocol NSMutableCopying
- (id)mutableCopyWithZone:(NSZone*)zone;
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject> {
  Class isa;
}
+ (void)initialize;
+ (instancetype)alloc NS_RETURNS_RETAINED;
+ (instancetype)allocWithZone:(NSZone*)zone NS_RETURNS_RETAINED;
+ (instancetype)new NS_RETURNS_RETAINED;
- (instancetype)init;
- (void)dealloc;
- (id)copy;
- (id)mutableCopy;
+ (Class)class;
+ (Class)superclass;
+ (NSString*)description;
+ (BOOL)isSubclassOfClass:(Class)type;
+ (BOOL)instancesRespondToSelector:(SEL)selector;
+ (BOOL)conformsToProtocol:(Protocol*)protocol;
@end

#if !__has_feature(objc_arc)
@interface NSAutoreleasePool : NSObject
- (void)drain;
@end
#endif

FOUNDATION_EXPORT NSString* NSStringFromClass(Class type);
FOUNDATION_EXPORT NSString* NSStringFromSelector(SEL selector);
FOUNDATION_EXPORT void NSLog(NSString* format, ...);
