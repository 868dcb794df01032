// The fences of a stream: where they may be given, and that the backend gets them.
#include <gtest/gtest.h>

#include <utility>

#include "fake_backend.h"
#include "support.h"

namespace abi_test {
namespace {

TEST(Fences, AreOfQueuesAndCommandBuffersOfMetal) {
  FakeRecord cuda_record, metal_record;
  const mm::context cpu(MARLIN_BACKEND_CPU);
  const mm::context cuda(fake_context(cuda_record, MARLIN_BACKEND_CUDA)),
      metal(fake_context(metal_record, MARLIN_BACKEND_METAL));
  auto d = mm::make<marlin_stream_desc>();
  mm::stream stream;
  int wait = 0, update = 0;
  for (d.kind = MARLIN_NATIVE_METAL_QUEUE; d.kind <= MARLIN_NATIVE_METAL_COMMAND_BUFFER; ++d.kind) {
    d.wait_fence = &wait, d.update_fence = nullptr;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "without desc->update_fence", marlin_stream_create, metal.get(), &d, stream.out());
    for (void* waited : {static_cast<void*>(nullptr), static_cast<void*>(&wait)}) {
      d.wait_fence = waited, d.update_fence = &update;
      EXPECT_OK(marlin_stream_create, metal.get(), &d, stream.out());
      const metal_marlin::StreamOptions& given = metal_record.stream_options;
      EXPECT_EQ(std::pair(given.wait_fence, given.update_fence), std::pair(waited, static_cast<void*>(&update)));
    }
  }
  const auto refused = [&](const mm::context& by, marlin_native kind) {
    for (const auto& [first, second] : {std::pair<int*, int*>(&wait, &update), {&wait, nullptr}, {nullptr, &update}}) {
      d.kind = kind, d.wait_fence = first, d.update_fence = second;
      EXPECT_FAILS(MARLIN_E_ARGUMENT, "expected 2 or 3", marlin_stream_create, by.get(), &d, stream.out());
    }
  };
  refused(metal, MARLIN_NATIVE_NONE);
  refused(metal, MARLIN_NATIVE_METAL_ENCODER);
  refused(cuda, MARLIN_NATIVE_CUDA_STREAM);
  refused(cpu, MARLIN_NATIVE_NONE);
  d.struct_size = 64;  // of version 1, which has no fences
  EXPECT_OK(marlin_stream_create, cpu.get(), &d, stream.out());
}

}  // namespace
}  // namespace abi_test
