// Between Foundation and the standard library.
#pragma once

#import <Foundation/Foundation.h>

#include <string>
#include <vector>

namespace metal_framework {

NSString* string(const std::string& text);
std::string text(NSString* string);  // empty for nil
NSArray* array(const std::vector<std::string>& texts);
NSError* error(NSErrorDomain domain, NSInteger code, const std::string& description);

/// Tells a caller who wants to know.
inline void set(NSError* __autoreleasing* out, NSError* made) {
  if (out) *out = made;
}

}  // namespace metal_framework
