// The root of all objects, and the basic types of Objective-C. Written for the tests of Metal hosts on other systems: names and
// signatures are those that Apple documents.
#pragma once

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The C library of Apple's own systems has the root class, the basic types and the words of availability. A compiler that reads
// sources for macOS with the C library of another system has none of them.
#if defined(__APPLE__) && __has_include(<objc/NSObject.h>)
#define METAL_HOST_ON_APPLE 1
#include <TargetConditionals.h>
#include <objc/NSObject.h>
#include <os/availability.h>
// What macOS has always had.
#define METAL_HOST_AVAILABLE_IOS(version) API_AVAILABLE(ios(version))
#else
#define METAL_HOST_AVAILABLE_IOS(version)
#endif

#ifdef __cplusplus
#define FOUNDATION_EXPORT extern "C"
#else
#define FOUNDATION_EXPORT extern
#endif
#define FOUNDATION_EXTERN FOUNDATION_EXPORT
#define NS_INLINE static inline

#ifndef METAL_HOST_ON_APPLE
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
#ifndef NS_DESIGNATED_INITIALIZER
#define NS_DESIGNATED_INITIALIZER __attribute__((objc_designated_initializer))
#endif
#define NS_UNAVAILABLE __attribute__((unavailable))
#define NS_RETURNS_RETAINED __attribute__((ns_returns_retained))
#define NS_REQUIRES_NIL_TERMINATION __attribute__((sentinel(0, 1)))
#define NS_SWIFT_NAME(name)
#ifndef METAL_HOST_ON_APPLE
// Only the first platform is read, so it must be macos(VERSION).
#define METAL_HOST_AVAILABLE_macos(version) macos, introduced = version
#define API_AVAILABLE(first, ...) __attribute__((availability(METAL_HOST_AVAILABLE_##first)))
#define API_UNAVAILABLE(...)
#define API_DEPRECATED(...)
#define API_DEPRECATED_WITH_REPLACEMENT(...)

typedef long NSInteger;
typedef unsigned long NSUInteger;
#define NSIntegerMax LONG_MAX
#define NSIntegerMin LONG_MIN
#define NSUIntegerMax ULONG_MAX
#endif
typedef double NSTimeInterval;
typedef double CFTimeInterval;
typedef struct _NSZone NSZone;

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
@class Protocol;

#ifndef METAL_HOST_ON_APPLE
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
#endif

@protocol NSCopying
- (id)copyWithZone:(NSZone*)zone;
@end

@protocol NSMutableCopying
- (id)mutableCopyWithZone:(NSZone*)zone;
@end

#ifndef METAL_HOST_ON_APPLE
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
#endif

#if !__has_feature(objc_arc)
@interface NSAutoreleasePool : NSObject
- (void)drain;
@end
#endif

FOUNDATION_EXPORT NSString* NSStringFromClass(Class type);
FOUNDATION_EXPORT NSString* NSStringFromSelector(SEL selector);
FOUNDATION_EXPORT void NSLog(NSString* format, ...);
