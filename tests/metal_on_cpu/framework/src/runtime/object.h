// What the rest of the framework may ask of the runtime.
#pragma once

#include <Foundation/NSObject.h>

#include <string>
#include <vector>

namespace metal_framework {

struct LiveCount {
  std::string class_name;
  long count;
};

/// How many objects of each class are alive. Constant strings and objects that live as long as the process are left out.
std::vector<LiveCount> live_objects();

/// Takes an object out of the census: it is meant to live as long as the process.
void make_immortal(id object);

}  // namespace metal_framework
