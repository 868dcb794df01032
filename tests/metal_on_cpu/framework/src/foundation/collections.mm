// Arrays and dictionaries: vectors. A dictionary is searched from its beginning; those of Metal hosts are small.
#import <Foundation/Foundation.h>

#include <algorithm>
#include <string>
#include <vector>

#include "foundation/text.h"

namespace {

using Items = std::vector<__strong id>;

NSUInteger enumerate(const Items& items, NSFastEnumerationState* state) {
  static unsigned long unchanged = 0;
  if (state->state != 0) return 0;
  state->state = 1;
  state->mutationsPtr = &unchanged;
  state->itemsPtr = (id __unsafe_unretained*)(void*)const_cast<__strong id*>(items.data());
  return items.size();
}

size_t find(const Items& items, id wanted) {
  const auto equal = [&](id item) { return item == wanted || [item isEqual:wanted]; };
  return static_cast<size_t>(std::find_if(items.begin(), items.end(), equal) - items.begin());
}

std::string listed(const Items& items) {
  std::string all;
  for (id item : items) all += (all.empty() ? "" : ", ") + metal_framework::text([item description]);
  return all;
}

}  // namespace

@interface NSArray () {
 @public
  Items items;
}
@end

@interface NSDictionary () {
 @public
  Items keys, values;
}
@end

@implementation NSArray
+ (instancetype)array {
  return [[self alloc] init];
}
+ (instancetype)arrayWithObject:(id)object {
  return [[self alloc] initWithObjects:&object count:1];
}
+ (instancetype)arrayWithObjects:(const id[])objects count:(NSUInteger)count {
  return [[self alloc] initWithObjects:objects count:count];
}
+ (instancetype)arrayWithObjects:(id)first, ... {
  NSArray* made = [[self alloc] init];
  va_list arguments;
  va_start(arguments, first);
  for (id object = first; object != nil; object = va_arg(arguments, id)) made->items.push_back(object);
  va_end(arguments);
  return made;
}
+ (instancetype)arrayWithArray:(NSArray*)array {
  return [[self alloc] initWithArray:array];
}
- (instancetype)initWithObjects:(const id[])objects count:(NSUInteger)count {
  items.assign(objects, objects + count);
  return self;
}
- (instancetype)initWithArray:(NSArray*)array {
  if (array != nil) items = array->items;
  return self;
}
- (NSUInteger)count {
  return items.size();
}
- (id)objectAtIndex:(NSUInteger)index {
  return index < items.size() ? items[index] : nil;
}
- (id)objectAtIndexedSubscript:(NSUInteger)index {
  return [self objectAtIndex:index];
}
- (id)firstObject {
  return items.empty() ? nil : items.front();
}
- (id)lastObject {
  return items.empty() ? nil : items.back();
}
- (BOOL)containsObject:(id)object {
  return find(items, object) != items.size();
}
- (NSUInteger)indexOfObject:(id)object {
  const size_t at = find(items, object);
  return at == items.size() ? (NSUInteger)NSNotFound : at;
}
- (BOOL)isEqualToArray:(NSArray*)other {
  return other != nil && std::equal(items.begin(), items.end(), other->items.begin(), other->items.end(),
                                    [](id a, id b) { return [a isEqual:b]; });
}
- (BOOL)isEqual:(id)object {
  return [object isKindOfClass:[NSArray class]] && [self isEqualToArray:object];
}
- (NSUInteger)hash {
  return items.size();
}
- (NSArray*)arrayByAddingObject:(id)object {
  NSMutableArray* made = [NSMutableArray arrayWithArray:self];
  [made addObject:object];
  return made;
}
- (void)enumerateObjectsUsingBlock:(void (^)(id, NSUInteger, BOOL*))block {
  BOOL stop = NO;
  for (size_t i = 0; i < items.size() && !stop; ++i) block(items[i], i, &stop);
}
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState*)state
                                  objects:(id __unsafe_unretained*)buffer
                                    count:(NSUInteger)count {
  return enumerate(items, state);
}
- (id)copyWithZone:(NSZone*)zone {
  return [[NSArray alloc] initWithArray:self];
}
- (id)mutableCopyWithZone:(NSZone*)zone {
  return [[NSMutableArray alloc] initWithArray:self];
}
- (NSString*)description {
  return metal_framework::string("(" + listed(items) + ")");
}
@end

@implementation NSMutableArray
+ (instancetype)arrayWithCapacity:(NSUInteger)capacity {
  return [[self alloc] init];
}
- (instancetype)initWithCapacity:(NSUInteger)capacity {
  return [self init];
}
- (void)addObject:(id)object {
  items.push_back(object);
}
- (void)addObjectsFromArray:(NSArray*)array {
  for (id object in array) items.push_back(object);
}
- (void)insertObject:(id)object atIndex:(NSUInteger)index {
  if (index <= items.size()) items.insert(items.begin() + static_cast<long>(index), object);
}
- (void)replaceObjectAtIndex:(NSUInteger)index withObject:(id)object {
  if (index < items.size()) items[index] = object;
}
- (void)setObject:(id)object atIndexedSubscript:(NSUInteger)index {
  if (index == items.size())
    items.push_back(object);
  else
    [self replaceObjectAtIndex:index withObject:object];
}
- (void)removeObject:(id)object {
  std::erase_if(items, [&](id item) { return [item isEqual:object]; });
}
- (void)removeObjectAtIndex:(NSUInteger)index {
  if (index < items.size()) items.erase(items.begin() + static_cast<long>(index));
}
- (void)removeLastObject {
  if (!items.empty()) items.pop_back();
}
- (void)removeAllObjects {
  items.clear();
}
@end

@implementation NSDictionary
+ (instancetype)dictionary {
  return [[self alloc] init];
}
+ (instancetype)dictionaryWithObject:(id)object forKey:(id)key {
  return [self dictionaryWithObjects:&object forKeys:&key count:1];
}
+ (instancetype)dictionaryWithObjects:(const id[])objects forKeys:(const id[])keys count:(NSUInteger)count {
  NSDictionary* made = [[self alloc] init];
  for (NSUInteger i = 0; i < count; ++i) {
    if (find(made->keys, keys[i]) != made->keys.size()) continue;
    made->keys.push_back([keys[i] copy]);
    made->values.push_back(objects[i]);
  }
  return made;
}
+ (instancetype)dictionaryWithDictionary:(NSDictionary*)dictionary {
  return [[self alloc] initWithDictionary:dictionary];
}
- (instancetype)initWithDictionary:(NSDictionary*)dictionary {
  if (dictionary != nil) keys = dictionary->keys, values = dictionary->values;
  return self;
}
- (NSUInteger)count {
  return keys.size();
}
- (id)objectForKey:(id)key {
  const size_t at = find(keys, key);
  return at == keys.size() ? nil : values[at];
}
- (id)objectForKeyedSubscript:(id)key {
  return [self objectForKey:key];
}
- (NSArray*)allKeys {
  NSArray* all = [NSArray array];
  all->items = keys;
  return all;
}
- (NSArray*)allValues {
  NSArray* all = [NSArray array];
  all->items = values;
  return all;
}
- (void)enumerateKeysAndObjectsUsingBlock:(void (^)(id, id, BOOL*))block {
  BOOL stop = NO;
  for (size_t i = 0; i < keys.size() && !stop; ++i) block(keys[i], values[i], &stop);
}
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState*)state
                                  objects:(id __unsafe_unretained*)buffer
                                    count:(NSUInteger)count {
  return enumerate(keys, state);
}
- (id)copyWithZone:(NSZone*)zone {
  return [[NSDictionary alloc] initWithDictionary:self];
}
- (id)mutableCopyWithZone:(NSZone*)zone {
  return [[NSMutableDictionary alloc] initWithDictionary:self];
}
- (NSString*)description {
  return metal_framework::string("{" + listed(keys) + " = " + listed(values) + "}");
}
@end

@implementation NSMutableDictionary
+ (instancetype)dictionaryWithCapacity:(NSUInteger)capacity {
  return [[self alloc] init];
}
- (instancetype)initWithCapacity:(NSUInteger)capacity {
  return [self init];
}
- (void)setObject:(id)object forKey:(id)key {
  const size_t at = find(keys, key);
  if (object == nil) return [self removeObjectForKey:key];
  if (at != keys.size()) {
    values[at] = object;
    return;
  }
  keys.push_back([key copy]);
  values.push_back(object);
}
- (void)setObject:(id)object forKeyedSubscript:(id)key {
  [self setObject:object forKey:key];
}
- (void)removeObjectForKey:(id)key {
  const size_t at = find(keys, key);
  if (at == keys.size()) return;
  keys.erase(keys.begin() + static_cast<long>(at));
  values.erase(values.begin() + static_cast<long>(at));
}
- (void)removeAllObjects {
  keys.clear();
  values.clear();
}
@end
