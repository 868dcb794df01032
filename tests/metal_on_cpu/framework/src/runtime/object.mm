// NSObject and the census of live objects. Compiled without ARC.
//
// In front of each object lies a header with its count of references; the pointer that everybody sees points behind it.
#include "runtime/object.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "runtime/protocols.h"

#import <Foundation/Foundation.h>

extern "C" {
const char* class_getName(Class type);
Class class_getSuperclass(Class type);
size_t class_getInstanceSize(Class type);
void* class_getInstanceMethod(Class type, SEL selector);
void (*method_getImplementation(void* method))(id, SEL);
SEL sel_registerName(const char* name);
id objc_autorelease(id object);
}

namespace metal_framework {
namespace {

struct Census {
  std::atomic<long> alive{0};
};

struct alignas(16) Header {
  std::atomic<long> references;  // beyond the first; negative once it is being destroyed
  Census* census;
};

// So low that -dealloc may retain and release the object without destroying it again.
constexpr long kDestroying = LONG_MIN / 2;

Header& header(id object) { return *(reinterpret_cast<Header*>((void*)object) - 1); }

std::mutex& census_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}
std::map<std::string, Census>& censuses() {
  static auto* const all = new std::map<std::string, Census>;
  return *all;
}

Class class_of(id object) { return *reinterpret_cast<Class*>((void*)object); }

// Calls .cxx_construct or .cxx_destruct of each class that has its own. The compiler writes them where instance variables need
// them; nobody calls them but the root class.
void call_own(id object, Class type, SEL selector, bool base_first) {
  if (type == Nil) return;
  const Class super = class_getSuperclass(type);
  if (base_first) call_own(object, super, selector, true);
  void* const method = class_getInstanceMethod(type, selector);
  const bool inherited = method != nullptr && super != Nil && class_getInstanceMethod(super, selector) == method;
  if (method != nullptr && !inherited) method_getImplementation(method)(object, selector);
  if (!base_first) call_own(object, super, selector, false);
}

id create(Class type) {
  static const SEL construct = sel_registerName(".cxx_construct");
  void* const memory = std::calloc(1, sizeof(Header) + class_getInstanceSize(type));
  if (memory == nullptr) return nil;
  Header* const head = new (memory) Header;
  {
    const std::lock_guard<std::mutex> lock(census_mutex());
    head->census = &censuses()[class_getName(type)];
  }
  ++head->census->alive;
  id const object = (id)(void*)(head + 1);
  *reinterpret_cast<Class*>((void*)object) = type;
  call_own(object, type, construct, true);
  return object;
}

void destroy(id object) {
  static const SEL destruct = sel_registerName(".cxx_destruct");
  call_own(object, class_of(object), destruct, false);
  Header& head = header(object);
  if (head.census != nullptr) --head.census->alive;
  std::free(&head);
}

}  // namespace

std::vector<LiveCount> live_objects() {
  const std::lock_guard<std::mutex> lock(census_mutex());
  std::vector<LiveCount> live;
  for (const auto& [name, census] : censuses()) {
    if (census.alive != 0) live.push_back({name, census.alive});
  }
  return live;
}

void make_immortal(id object) {
  Header& head = header(object);
  if (head.census != nullptr) --head.census->alive;
  head.census = nullptr;
}

}  // namespace metal_framework

using metal_framework::header;

@implementation NSObject
+ (void)initialize {
}
+ (instancetype)alloc {
  return metal_framework::create(self);
}
- (instancetype)init {
  return self;
}
- (void)dealloc {
  metal_framework::destroy(self);
}
- (instancetype)retain {
  ++header(self).references;
  return self;
}
- (oneway void)release {
  if (header(self).references-- != 0) return;
  header(self).references = metal_framework::kDestroying;
  [self dealloc];
}
- (instancetype)autorelease {
  return objc_autorelease(self);
}
- (id)copy {
  return [(id<NSCopying>)self copyWithZone:nullptr];
}
- (instancetype)self {
  return self;
}
- (Class)class {
  return metal_framework::class_of(self);
}
+ (Class)class {
  return self;
}
+ (Class)superclass {
  return class_getSuperclass(self);
}
- (BOOL)isEqual:(id)object {
  return self == object;
}
- (NSUInteger)hash {
  return (NSUInteger)(void*)self >> 4;
}
- (BOOL)isKindOfClass:(Class)type {
  for (Class c = metal_framework::class_of(self); c != Nil; c = class_getSuperclass(c)) {
    if (c == type) return YES;
  }
  return NO;
}
- (BOOL)conformsToProtocol:(Protocol*)protocol {
  for (Class c = metal_framework::class_of(self); c != Nil; c = class_getSuperclass(c)) {
    if (metal_framework::class_conforms((void*)c, (void*)protocol)) return YES;
  }
  return NO;
}
@end
