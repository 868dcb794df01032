// Literals lie in constant memory without a header, so nothing may be counted for them. Compiled without ARC.
#import <Foundation/Foundation.h>

@interface NSConstantString (Counting)
@end

@implementation NSConstantString (Counting)
- (instancetype)retain {
  return self;
}
- (oneway void)release {
}
- (instancetype)autorelease {
  return self;
}
@end
