// Products of 16-bit weights by NVIDIA's cuBLAS, found at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.h"
#include "timing_device.h"

namespace timing {

/// C[M, N] = A[M, K] W[N, K]^T, all of one 16-bit type.
struct DenseProduct {
  marlin_dtype dtype;
  int64_t m, n, k;
  DevicePtr a, w, c;
};

class Cublas {
 public:
  /// Looks in these folders, and then where the loader looks.
  Cublas(const Device& device, const std::vector<std::string>& folders);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  bool is_there() const { return handle_ != nullptr; }
  const std::string& about() const { return about_; }  ///< its version, or why it is not there
  /// On the device's stream.
  void multiply(const DenseProduct& product) const;

 private:
  using Handle = struct CublasHandle*;
  using Gemm = int(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                   void*, int, int, int, int);

  /// Empty, or what failed.
  std::string open(const Device& device, void* library);

  Handle handle_ = nullptr;
  Gemm* gemm_ = nullptr;
  int (*destroy_)(Handle) = nullptr;
  std::unique_ptr<Memory> workspace_;
  std::string about_ = "not found";
};

}  // namespace timing
