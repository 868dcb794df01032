// The root of all objects, and the basic types of Objective-C.
#pragma once

#include <limits.h>
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
#define NS_INLINE static inline
#define NS_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define NS_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")
#define NS_RETURNS_RETAINED __attribute__((ns_returns_retained))
#define NS_ENUM(type, name) \
  enum name : type name;    \
  enum name : type
#define NS_OPTIONS(type, name) \
  type name;                   \
  enum : type

#ifndef METAL_HOST_ON_APPLE
#ifndef nil
#define nil nullptr
#define Nil nullptr
#endif
// As on Apple silicon.
typedef bool BOOL;
#ifndef YES
#define YES __objc_yes
#define NO __objc_no
#endif
// Only the first platform is read, so it must be macos(VERSION).
#define METAL_HOST_AVAILABLE_macos(version) macos, introduced = version
#define API_AVAILABLE(first, ...) __attribute__((availability(METAL_HOST_AVAILABLE_##first)))

typedef long NSInteger;
typedef unsigned long NSUInteger;
#endif
#ifndef __APPLE__
// To clang, @available is true on a system that is not Apple's. Here the test says which macOS it is (metal_test::Settings):
// the @ in front becomes that of a string, which is true.
#define available(...) encode(int) && metal_framework_has(#__VA_ARGS__)
FOUNDATION_EXPORT bool metal_framework_has(const char* platforms);
#endif
typedef double CFTimeInterval;
typedef struct _NSZone NSZone;

typedef struct _NSRange {
  NSUInteger location;
  NSUInteger length;
} NSRange;

NS_INLINE NSRange NSMakeRange(NSUInteger location, NSUInteger length) {
  NSRange range = {location, length};
  return range;
}

@class NSString;
@class Protocol;

#ifndef METAL_HOST_ON_APPLE
@protocol NSObject
- (BOOL)isEqual:(id)object;
@property(readonly) NSUInteger hash;
- (Class)class;
- (instancetype)self;
- (BOOL)isKindOfClass:(Class)type;
- (BOOL)conformsToProtocol:(Protocol*)protocol;
#if !__has_feature(objc_arc)
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
#endif
@end
#endif

@protocol NSCopying
- (id)copyWithZone:(NSZone*)zone;
@end

#ifndef METAL_HOST_ON_APPLE
__attribute__((objc_root_class))
@interface NSObject<NSObject> {
  Class isa;
}
+ (void)initialize;
+ (instancetype)alloc NS_RETURNS_RETAINED;
- (instancetype)init;
- (void)dealloc;
- (id)copy;
+ (Class)class;
+ (Class)superclass;
@end
#endif
