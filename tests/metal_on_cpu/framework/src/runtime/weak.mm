// __weak variables: one table of all of them, by the object that they refer to. Compiled without ARC.
#include "runtime/weak.h"

#include <map>
#include <mutex>
#include <set>

@interface NSObject (Weak)
- (BOOL)_retainIfAlive;
@end

namespace {

// Recursive: retaining an object may run its own -retain.
std::recursive_mutex& weak_mutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}
using Locations = std::set<id*>;
std::map<void*, Locations>& weak_table() {
  static auto* const table = new std::map<void*, Locations>;
  return *table;
}

void forget(id* location) {
  if (*location == nil) return;
  const auto entry = weak_table().find((void*)*location);
  if (entry == weak_table().end()) return;
  entry->second.erase(location);
  if (entry->second.empty()) weak_table().erase(entry);
}

}  // namespace

namespace metal_framework {

void clear_weak_references(id object) {
  const std::lock_guard<std::recursive_mutex> lock(weak_mutex());
  const auto entry = weak_table().find((void*)object);
  if (entry == weak_table().end()) return;
  for (id* location : entry->second) *location = nil;
  weak_table().erase(entry);
}

}  // namespace metal_framework

extern "C" {

id objc_autorelease(id object);
void objc_release(id object);

id objc_storeWeak(id* location, id object) {
  const std::lock_guard<std::recursive_mutex> lock(weak_mutex());
  forget(location);
  // An object that is being destroyed must not get a new weak reference: nobody would clear it.
  const bool alive = object != nil && [object _retainIfAlive];
  *location = alive ? object : nil;
  if (!alive) return nil;
  weak_table()[(void*)object].insert(location);
  objc_release(object);
  return object;
}

id objc_initWeak(id* location, id object) {
  *location = nil;
  return objc_storeWeak(location, object);
}

id objc_loadWeakRetained(id* location) {
  const std::lock_guard<std::recursive_mutex> lock(weak_mutex());
  id const object = *location;
  return object != nil && [object _retainIfAlive] ? object : nil;
}

id objc_loadWeak(id* location) { return objc_autorelease(objc_loadWeakRetained(location)); }

void objc_destroyWeak(id* location) {
  const std::lock_guard<std::recursive_mutex> lock(weak_mutex());
  forget(location);
  *location = nil;
}

void objc_copyWeak(id* to, id* from) {
  id const object = objc_loadWeakRetained(from);
  objc_initWeak(to, object);
  objc_release(object);
}

void objc_moveWeak(id* to, id* from) {
  objc_copyWeak(to, from);
  objc_destroyWeak(from);
}

}  // extern "C"
