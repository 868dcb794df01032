#pragma once

namespace metal_framework {

/// Whether a class itself, without its superclasses, declares a protocol or one that includes it. Both are objects.
bool class_conforms(const void* type, const void* protocol);

}  // namespace metal_framework
