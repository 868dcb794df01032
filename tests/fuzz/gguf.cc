// One .gguf file.
#include "fuzz/files.h"

MARLIN_FUZZ_TARGET(gguf) {
  using namespace metal_marlin::fuzz;
  const std::string file = with_zeros(input);
  auto folder = std::make_unique<metal_marlin::testing::MemoryFolder>();
  folder->add("m-00001-of-00001.gguf", file);
  open_and_read(std::move(folder), "m-00001-of-00001.gguf", input.size(), file.size());
}
