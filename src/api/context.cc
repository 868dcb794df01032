#include "api/context.h"

#include "api/backends.h"
#include "api/errors.h"

using namespace metal_marlin;

namespace {

Result<BackendOptions> options_from(const marlin_context_desc& desc) {
  if (desc.backend < MARLIN_BACKEND_AUTO || desc.backend > MARLIN_BACKEND_CUDA)
    return Status::error(MARLIN_E_ARGUMENT,
                         "desc->backend is %d, expected 0 (auto), 1 (CPU), 2 (Metal) or 3 (CUDA)",
                         desc.backend);
  if (desc.device_index < 0)
    return Status::error(MARLIN_E_ARGUMENT, "desc->device_index is %d, expected 0 or more",
                         desc.device_index);
  if (desc.backend == MARLIN_BACKEND_AUTO &&
      (desc.device_index != 0 || desc.native_device != nullptr))
    return Status::error(MARLIN_E_ARGUMENT,
                         "desc->%s is given, which needs a desc->backend other than AUTO",
                         desc.device_index != 0 ? "device_index" : "native_device");
  if (desc.backend == MARLIN_BACKEND_CPU && desc.native_device != nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "desc->native_device is given, but the CPU has none");
  if ((desc.alloc == nullptr) != (desc.release == nullptr))
    return Status::error(MARLIN_E_ARGUMENT,
                         "desc->%s is NULL, expected both or neither of alloc and release",
                         desc.alloc == nullptr ? "alloc" : "release");
  BackendOptions options;
  options.device_index = desc.device_index;
  options.threads = desc.threads;
  options.native_device = desc.native_device;
  if (desc.alloc != nullptr) options.allocator = {desc.alloc, desc.release, desc.user};
  options.logger = {desc.log, desc.user};
  if (desc.trace != nullptr) options.tracer = std::make_shared<Tracer>(desc.trace, desc.user);
  options.parallel_for = desc.parallel_for;
  options.parallel_for_user = desc.user;
  return options;
}

}  // namespace

marlin_status marlin_context_create(const marlin_context_desc* desc, marlin_context** out,
                                    marlin_error* err) {
  return api::boundary_create(out, err, [&]() -> Result<marlin_context*> {
    MARLIN_ASSIGN(const marlin_context_desc d, api::read_optional_descriptor(desc, "desc"));
    MARLIN_ASSIGN(BackendOptions options, options_from(d));
    MARLIN_ASSIGN(auto made, api::create_backend(d.backend, options));
    return new marlin_context(made.kind, std::move(made.backend), std::move(options));
  });
}

void marlin_context_destroy(marlin_context* context) {
  if (api::take_for_destroy(context) != nullptr) context->drop_ref();
}
