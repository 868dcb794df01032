// What is left of metal_marlin.hpp under -fno-exceptions: owners, filled by C functions.
#include "metal_marlin/metal_marlin.hpp"

marlin_status under_fno_exceptions() {
  metal_marlin::context context;
  metal_marlin::stream stream;
  auto desc = metal_marlin::make<marlin_context_desc>();
  marlin_status status = marlin_context_create(&desc, context.out(), nullptr);
  if (status == MARLIN_OK) status = marlin_stream_create(context.get(), nullptr, stream.out(), nullptr);
  return status;
}
