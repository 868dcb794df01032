// An engine without a compiler: it reads the signatures of a shader, and computes with a function of this program that has the
// kernel's name. So the framework is tested without the shader test-bed, and each thing that an engine can say can be planted.
#pragma once

#include <functional>
#include <string>

#include "engine.h"

namespace metal_framework::fake {

/// One thread of a kernel.
struct Thread {
  const Dispatch& dispatch;
  const Constants& constants;
  Size3 position;  // in the grid

  template <class T>
  T* buffer(uint32_t index) const {
    return reinterpret_cast<T*>(dispatch.buffers.at(index).data);
  }
  template <class T>
  const T& value(uint32_t index) const {
    return *buffer<const T>(index);
  }
};

/// Sets what a kernel of this name does; without, nothing.
void define(const std::string& kernel, std::function<void(const Thread&)> body);
/// What the next dispatch comes to besides its work.
void set_next_outcome(Outcome outcome);

}  // namespace metal_framework::fake
