// What hosts take from Foundation and from ARC itself.
#import <Foundation/Foundation.h>

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "metal_test_hooks.h"

static int destroyed = 0;

// No class adopts it, so that the runtime never sees it.
@protocol Lonely
@end
static Protocol* kept_protocol = nil;
__attribute__((noinline)) static void keep_protocol(Protocol* protocol) { kept_protocol = protocol; }

@interface Owner : NSObject
@property(copy, nonatomic) NSString* name;
@property(strong) NSArray* parts;
@property NSRange range;
@end
@implementation Owner {
  std::string text;
}
- (instancetype)init {
  if ((self = [super init])) text = "a string of C++ that is too long to be kept in place";
  return self;
}
- (NSUInteger)size {
  return text.size();
}
- (void)dealloc {
  ++destroyed;
}
@end

namespace {

TEST(Arc, DestroysInstanceVariablesWithTheLastReference) {
  destroyed = 0;
  __weak Owner* weak = nil;
  @autoreleasepool {
    Owner* owner = [[Owner alloc] init];
    owner.parts = @[ [[Owner alloc] init], [[Owner alloc] init] ];
    owner.range = NSMakeRange(3, 4);
    EXPECT_EQ(owner.range.length, 4u);
    EXPECT_EQ([owner size], 52u);
    weak = owner;
    EXPECT_TRUE(weak != nil);
  }
  EXPECT_EQ(destroyed, 3);
  EXPECT_TRUE(weak == nil);
  EXPECT_EQ(metal_test_live_objects("Owner"), 0);
}

TEST(Arc, BlocksKeepWhatTheyUseUntilTheyGo) {
  destroyed = 0;
  @autoreleasepool {
    void (^block)(void) = nil;
    @autoreleasepool {
      Owner* owner = [[Owner alloc] init];
      block = ^{
        owner.name = @"used";
      };
    }
    EXPECT_EQ(destroyed, 0);
    block();
    void (^again)(void) = [block copy];
    block = nil;
    again();
    EXPECT_EQ(destroyed, 0);
  }
  EXPECT_EQ(destroyed, 1);
}

TEST(Arc, ProtocolsCanBeKept) {
  keep_protocol(@protocol(Lonely));
  EXPECT_FALSE([@"text" conformsToProtocol:kept_protocol]);
  keep_protocol(@protocol(NSCopying));
  EXPECT_TRUE([@"text" conformsToProtocol:kept_protocol]);
  keep_protocol(nil);
}

TEST(Arc, SurvivesExceptionsOfCpp) {
  destroyed = 0;
  std::string caught;
  try {
    @autoreleasepool {
      throw std::runtime_error("thrown");
    }
  } catch (const std::exception& error) {
    caught = error.what();
  }
  EXPECT_EQ(caught, "thrown");
}

TEST(Arc, WeakReferencesAreSafeAmongThreads) {
  for (int i = 0; i < 200; ++i) {
    __block Owner* owner = [[Owner alloc] init];
    __weak Owner* weak = owner;
    std::thread reader([&] {
      @autoreleasepool {
        Owner* strong = weak;
        if (strong != nil) EXPECT_EQ([strong size], 52u);
      }
    });
    owner = nil;
    reader.join();
  }
  EXPECT_EQ(metal_test_live_objects("Owner"), 0);
}

TEST(Strings, FormatWhatFormatSays) {
  @autoreleasepool {
    NSString* made =
        [NSString stringWithFormat:@"%@ %5.2f|%-4d|%04x|%lu|%s|%c|%%|%*d", @"text", 1.5, 7, 255u, 9ul, "c", 'x', 3, 5];
    EXPECT_STREQ(made.UTF8String, "text  1.50|7   |00ff|9|c|x|%|  5");
    EXPECT_TRUE([made hasPrefix:@"text"]);
    EXPECT_TRUE([made containsString:@"00ff"]);
    EXPECT_STREQ([@"a.b.c" componentsSeparatedByString:@"."][1].UTF8String, "b");
    EXPECT_EQ(@"größe".length, 5u);
    EXPECT_EQ([@"größe" lengthOfBytesUsingEncoding:NSUTF8StringEncoding], 7u);
    EXPECT_STREQ([@"/a/b.metal" lastPathComponent].UTF8String, "b.metal");
    NSMutableString* changing = [NSMutableString stringWithString:@"a"];
    [changing appendFormat:@"%d", 1];
    EXPECT_TRUE([changing isEqualToString:@"a1"]);
  }
}

TEST(Collections, HoldAndFind) {
  @autoreleasepool {
    NSDictionary<NSString*, NSNumber*>* table = @{@"one" : @1, @"two" : @2.5};
    EXPECT_EQ(table[@"one"].intValue, 1);
    EXPECT_EQ(table[@"two"].doubleValue, 2.5);
    EXPECT_TRUE(table[@"three"] == nil);
    NSMutableArray<NSNumber*>* list = [NSMutableArray arrayWithArray:@[ @3, @4 ]];
    [list addObject:@5];
    [list removeObjectAtIndex:0];
    list[0] = @6;
    int sum = 0;
    for (NSNumber* number in list) sum += number.intValue;
    EXPECT_EQ(sum, 11);
    EXPECT_EQ([list indexOfObject:@5], 1u);
    EXPECT_EQ(@(18446744073709551615ull).unsignedLongLongValue, 18446744073709551615ull);
    EXPECT_TRUE([@1 isEqual:@1.0]);
    EXPECT_TRUE([@YES boolValue]);
  }
}

TEST(Data, IsWrittenAndRead) {
  @autoreleasepool {
    NSURL* url = [NSURL fileURLWithPath:[NSTemporaryDirectory() stringByAppendingPathComponent:@"framework-data"]];
    EXPECT_TRUE([[@"bytes" dataUsingEncoding:NSUTF8StringEncoding] writeToURL:url atomically:YES]);
    NSData* data = [NSData dataWithContentsOfURL:url];
    EXPECT_EQ(data.length, 5u);
    EXPECT_TRUE([[NSFileManager defaultManager] removeItemAtURL:url error:nullptr]);
    NSError* error = nil;
    EXPECT_TRUE([NSString stringWithContentsOfURL:url encoding:NSUTF8StringEncoding error:&error] == nil);
    EXPECT_TRUE(error.localizedDescription != nil);
  }
}

TEST(Dispatch, QueuesSemaphoresAndGroups) {
  __block int count = 0;
  @autoreleasepool {
    dispatch_queue_t queue = dispatch_queue_create("q", DISPATCH_QUEUE_SERIAL);
    dispatch_group_t group = dispatch_group_create();
    for (int i = 0; i < 10; ++i) {
      dispatch_group_enter(group);
      dispatch_async(queue, ^{
        ++count;
        dispatch_group_leave(group);
      });
    }
    EXPECT_EQ(dispatch_group_wait(group, DISPATCH_TIME_FOREVER), 0);
    EXPECT_EQ(count, 10);
    dispatch_semaphore_t semaphore = dispatch_semaphore_create(0);
    EXPECT_NE(dispatch_semaphore_wait(semaphore, dispatch_time(DISPATCH_TIME_NOW, 1000000)), 0);
    dispatch_once_t once = 0;
    for (int i = 0; i < 2; ++i) {
      dispatch_once(&once, ^{
        ++count;
      });
    }
    EXPECT_EQ(count, 11);
  }
}

}  // namespace
