// The functions that clang calls for ARC, properties and @autoreleasepool. Compiled without ARC.
#include <cstddef>
#include <mutex>
#include <vector>

#include <Block.h>
#import <Foundation/NSObject.h>

extern "C" {
extern void* _NSConcreteStackBlock[];
extern void* _NSConcreteGlobalBlock[];
extern void* _NSConcreteMallocBlock[];
void objc_release(id object);
}

namespace {

bool is(id object, void** type) { return *reinterpret_cast<void**>((void*)object) == type; }
bool is_block(id object) {
  return is(object, _NSConcreteStackBlock) || is(object, _NSConcreteGlobalBlock) || is(object, _NSConcreteMallocBlock);
}
// Blocks on the heap are counted by the Blocks runtime; it marks them in their flags, and does not always change their class.
bool is_heap_block(id block) {
  constexpr int kNeedsFree = 1 << 24;
  return (reinterpret_cast<const int*>((void*)block)[2] & kNeedsFree) != 0;
}

// Objects that wait for their pool to be drained. What is left at the end of a thread goes with it.
struct Pool {
  std::vector<id> objects;
  void drain(size_t down_to) {
    while (objects.size() > down_to) {
      id const object = objects.back();
      objects.pop_back();
      objc_release(object);  // may add further objects
    }
  }
  ~Pool() { drain(0); }
};
thread_local Pool pool;

std::mutex& property_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

id* variable(id self, ptrdiff_t offset) { return reinterpret_cast<id*>(reinterpret_cast<char*>((void*)self) + offset); }

// What @protocol() gives: where a class should be it has the number of the ABI, until something adopts it. It lives for ever.
bool is_protocol(id object) {
  constexpr size_t kLargestNumber = 15;
  return *reinterpret_cast<const size_t*>((void*)object) <= kLargestNumber;
}

}  // namespace

extern "C" {

id objc_retain(id object) {
  if (object == nil || is_protocol(object)) return object;
  if (is_block(object)) return is_heap_block(object) ? (id)_Block_copy((void*)object) : object;
  return [object retain];
}

void objc_release(id object) {
  if (object == nil || is_protocol(object)) return;
  if (!is_block(object)) return [object release];
  if (is_heap_block(object)) _Block_release((void*)object);
}

id objc_retainBlock(id block) { return block == nil ? nil : (id)_Block_copy((void*)block); }

void objc_storeStrong(id* location, id object) {
  id const old = *location;
  objc_retain(object);
  *location = object;
  objc_release(old);
}

id objc_autorelease(id object) {
  if (object != nil) pool.objects.push_back(object);
  return object;
}
id objc_retainAutorelease(id object) { return objc_autorelease(objc_retain(object)); }
id objc_autoreleaseReturnValue(id object) { return objc_autorelease(object); }
id objc_retainAutoreleaseReturnValue(id object) { return objc_retainAutorelease(object); }
id objc_retainAutoreleasedReturnValue(id object) { return objc_retain(object); }
id objc_unsafeClaimAutoreleasedReturnValue(id object) { return object; }
void* objc_autoreleasePoolPush(void) { return reinterpret_cast<void*>(pool.objects.size()); }
void objc_autoreleasePoolPop(void* mark) { pool.drain(reinterpret_cast<size_t>(mark)); }

void objc_setProperty(id self, SEL, ptrdiff_t offset, id value, BOOL, signed char copy) {
  id const held = copy == 0 || value == nil ? objc_retain(value) : is_block(value) ? objc_retainBlock(value) : [value copy];
  id old = nil;
  {
    const std::lock_guard<std::mutex> lock(property_mutex());
    old = *variable(self, offset);
    *variable(self, offset) = held;
  }
  objc_release(old);
}

id objc_getProperty(id self, SEL, ptrdiff_t offset, BOOL) {
  const std::lock_guard<std::mutex> lock(property_mutex());
  return objc_retainAutorelease(*variable(self, offset));
}

void objc_enumerationMutation(id) {}

}  // extern "C"
