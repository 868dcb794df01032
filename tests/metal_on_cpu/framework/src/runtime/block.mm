// Makes blocks objects: hosts write [block copy]. The Blocks runtime gives its three classes as room without contents, meant
// for a class to be copied there. Compiled without ARC.
#include <cstring>
#include <initializer_list>

#include <Block.h>
#import <Foundation/NSObject.h>

extern "C" {
extern void* _NSConcreteStackBlock[32];
extern void* _NSConcreteGlobalBlock[32];
extern void* _NSConcreteMallocBlock[32];
id objc_retain(id object);
void objc_release(id object);
id objc_autorelease(id object);
}

@interface MOCBlock : NSObject
@end

@implementation MOCBlock
+ (void)load {
  // The message makes libobjc fill in the table of methods. What follows its own members in clang's structure it never reads.
  const void* const type = (void*)[self class];
  constexpr size_t kClassSize = 13 * sizeof(void*);
  for (void** room : {_NSConcreteStackBlock, _NSConcreteGlobalBlock, _NSConcreteMallocBlock})
    std::memcpy(room, type, kClassSize);
}
- (id)copy {
  return (id)_Block_copy((void*)self);
}
- (instancetype)retain {
  return objc_retain(self);
}
- (oneway void)release {
  objc_release(self);
}
- (instancetype)autorelease {
  return objc_autorelease(self);
}
@end
