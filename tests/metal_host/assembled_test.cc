// What the assembler embedded (src/backends/metal/assembled_shaders.cc) beside what CMake's script did.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/metal/metal_device.h"

namespace metal_marlin::metal {

Shaders assembled_shaders();
Shaders every_shader();

namespace {

TEST(AssembledShaders, AreThoseThatCMakeEmbeds) {
  const Shaders assembled = assembled_shaders(), embedded = every_shader();
  EXPECT_EQ(assembled.library.size(), 0u);
  EXPECT_EQ(assembled.tensor_library.size(), 0u);
  ASSERT_GE(embedded.sources.size(), 5u);
  EXPECT_THAT(assembled.sources, ::testing::ElementsAreArray(embedded.sources));
  EXPECT_THAT(assembled.tensor_sources, ::testing::ElementsAreArray(embedded.tensor_sources));
}

}  // namespace
}  // namespace metal_marlin::metal
