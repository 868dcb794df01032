// Between NSString and std::string.
#pragma once

#import <Foundation/Foundation.h>

#include <cstdarg>
#include <string>

namespace metal_framework {

NSString* string(const std::string& text);
std::string text(NSString* string);  // empty for nil
std::string format(const char* format, va_list arguments);
NSError* error(NSString* domain, NSInteger code, const std::string& description);

}  // namespace metal_framework
