#include "timing_cublas.h"

#include <stdexcept>

namespace timing {
namespace {

// Of cublas_api.h and library_types.h, which all versions share.
constexpr int kAsIs = 0, kTransposed = 1;     // cublasOperation_t
constexpr int kFloat16 = 2, kBfloat16 = 14;   // cudaDataType_t
constexpr int kSumsInFloat32 = 68;            // CUBLAS_COMPUTE_32F
constexpr int kDefaultAlgorithm = -1;         // CUBLAS_GEMM_DEFAULT
constexpr size_t kWorkspaceBytes = 64 << 20;  // twice what NVIDIA recommends for Hopper

}  // namespace

Cublas::Cublas(const Device& device, const std::vector<std::string>& folders) {
  std::vector<std::string> places;
  for (const std::string& folder : folders) places.push_back(folder + "/");
  places.emplace_back();
  for (const std::string& place : places)
    for (const char* const version : {".13", ".12", ""}) {
      // It needs this one, which the loader would not look for in a folder of the caller's.
      if (!place.empty()) dlopen((place + "libcublasLt.so" + version).c_str(), RTLD_NOW | RTLD_GLOBAL);
      const std::string file = place + "libcublas.so" + version;
      void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) continue;
      const std::string why = open(device, library);
      if (why.empty()) return;
      about_ = file + ": " + why;
    }
}

std::string Cublas::open(const Device& device, void* library) {
  auto* const create = find_function<int(Handle*)>(library, "cublasCreate_v2");
  auto* const set_stream = find_function<int(Handle, void*)>(library, "cublasSetStream_v2");
  auto* const set_workspace = find_function<int(Handle, void*, size_t)>(library, "cublasSetWorkspace_v2");
  auto* const version_of = find_function<int(Handle, int*)>(library, "cublasGetVersion_v2");
  destroy_ = find_function<int(Handle)>(library, "cublasDestroy_v2");
  gemm_ = find_function<Gemm>(library, "cublasGemmEx");
  if (create == nullptr || set_stream == nullptr || set_workspace == nullptr || version_of == nullptr || destroy_ == nullptr ||
      gemm_ == nullptr)
    return "lacks a function";
  Handle handle = nullptr;
  if (const int status = create(&handle); status != 0) return "cublasCreate gives status " + std::to_string(status);
  // Memory of ours, because a graph that is being captured can have none of cuBLAS's own.
  workspace_ = std::make_unique<Memory>(device, kWorkspaceBytes);
  int version = 0;
  if (set_stream(handle, device.stream()) != 0 ||
      set_workspace(handle, reinterpret_cast<void*>(workspace_->at()), kWorkspaceBytes) != 0 ||
      version_of(handle, &version) != 0) {
    destroy_(handle);
    return "takes no stream or no workspace";
  }
  handle_ = handle;
  about_ = std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
  return {};
}

Cublas::~Cublas() {
  if (handle_ != nullptr) destroy_(handle_);
}

/// cuBLAS counts by columns: to it C is [N, M] and W is [K, N].
void Cublas::multiply(const DenseProduct& p) const {
  const float one = 1, zero = 0;
  const int type = p.dtype == MARLIN_F16 ? kFloat16 : kBfloat16;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  const int status = gemm_(handle_, kTransposed, kAsIs, n, m, k, &one, reinterpret_cast<const void*>(p.w), type, k,
                           reinterpret_cast<const void*>(p.a), type, k, &zero, reinterpret_cast<void*>(p.c), type, n,
                           kSumsInFloat32, kDefaultAlgorithm);
  if (status != 0) throw std::runtime_error("cublasGemmEx gives status " + std::to_string(status));
}

}  // namespace timing
