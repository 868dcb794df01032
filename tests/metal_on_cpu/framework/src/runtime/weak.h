#pragma once

#include <Foundation/NSObject.h>

namespace metal_framework {

/// Sets every __weak variable that refers to the object to nil. Called once nobody holds it any more.
void clear_weak_references(id object);

/// Adds a reference unless the object is already being destroyed.
bool retain_if_alive(id object);

}  // namespace metal_framework
