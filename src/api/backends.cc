// The only file that names backends. A backend that is not built has a stub with the same three
// functions (absent.cc).
#include "api/backends.h"

#include <cinttypes>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/policy.h"
#include "backends/gpu/pack.h"
#include "backends/gpu/packer.h"
#include "backends/metal/metal_backend.h"
#include "base/environment.h"
#include "core/thread_pool.h"

namespace metal_marlin::api {
namespace {

struct Entry {
  marlin_backend kind;
  uint32_t (*device_count)();
  void (*describe_device)(uint32_t index, marlin_device_info& out);
  bool (*has_kernel)(std::string_view name);
  Result<std::unique_ptr<Backend>> (*create)(const BackendOptions& options);
  const gpu::Policy& (*policy)();  ///< null: of the CPU
};

constexpr Entry kBackends[] = {
    {MARLIN_BACKEND_CUDA, cuda::device_count, cuda::describe_device, cuda::has_kernel,
     cuda::create_backend, cuda::policy},
    {MARLIN_BACKEND_METAL, metal::device_count, metal::describe_device, metal::has_kernel,
     metal::create_backend, gpu::simdgroup_policy},
    {MARLIN_BACKEND_CPU, cpu::device_count, cpu::describe_device, cpu::has_kernel,
     cpu::create_backend, nullptr},
};

/// The kernel that METAL_MARLIN_KERNEL requests from a backend. A backend ignores a name that only
/// another backend has. It does not ignore a name that no backend has, so that a mistyped name is
/// an error of every product.
std::string kernel_for(const Entry& entry) {
  const char* const name = environment("METAL_MARLIN_KERNEL");
  if (name == nullptr) return {};
  if (!entry.has_kernel(name))
    for (const Entry& other : kBackends)
      if (other.has_kernel(name)) return {};
  return name;
}

}  // namespace

Status describe_device(uint32_t index, marlin_device_info& out) {
  uint32_t first = 0;
  for (const Entry& entry : kBackends) {
    const uint32_t count = entry.device_count();
    if (index - first < count) {
      out.backend = entry.kind;
      out.index = static_cast<int32_t>(index - first);
      entry.describe_device(index - first, out);
      // The other backends run nothing on the threads of a context.
      out.threads = entry.kind == MARLIN_BACKEND_CPU ? default_threads() : 0;
      return {};
    }
    first += count;
  }
  return Status::error(MARLIN_E_NOT_FOUND, "index is %u, expected less than %u devices", index,
                       first);
}

Status check_packed(const PackedForm& form, const PackedMatrix& matrix, uint64_t bytes,
                    bool has_index) {
  for (const Entry& entry : kBackends)
    if (entry.policy != nullptr && form == gpu::packed_form(entry.policy().order))
      return gpu::check_packed(matrix, bytes, has_index, entry.policy());
  return cpu::check_packed(form, matrix, bytes, has_index);
}

Result<std::unique_ptr<Backend>> create_packer(marlin_backend which, BackendOptions options) {
  options.device_index = 0;
  options.native_device = nullptr;
  for (const Entry& entry : kBackends) {
    if (which != entry.kind) continue;
    return entry.policy != nullptr ? gpu::make_packer(options, entry.policy())
                                   : entry.create(options);
  }
  return Status::error(MARLIN_E_ARGUMENT,
                       "backend is %" PRId32 ", expected 1 (CPU), 2 (Metal) or 3 (CUDA)", which);
}

Result<NamedBackend> create_backend(marlin_backend which, BackendOptions options) {
  Status last = Status::error(
      MARLIN_E_ARGUMENT,
      "backend is %" PRId32 ", expected 0 (auto), 1 (CPU), 2 (Metal) or 3 (CUDA)", which);
  for (const Entry& entry : kBackends) {
    if (which != MARLIN_BACKEND_AUTO && which != entry.kind) continue;
    options.kernel = kernel_for(entry);
    auto made = entry.create(options);
    if (made.ok()) return NamedBackend{entry.kind, made.take()};
    last = made.status();
    if (which != MARLIN_BACKEND_AUTO || last.code() != MARLIN_E_NO_DEVICE) break;
  }
  return last;
}

}  // namespace metal_marlin::api
