// One .safetensors file, with the config of a model in GPTQ beside it, for which more names of tensors mean something.
#include "fuzz/files.h"

MARLIN_FUZZ_TARGET(safetensors) {
  using namespace metal_marlin::fuzz;
  const std::string file = with_zeros(input);
  auto folder = std::make_unique<metal_marlin::testing::MemoryFolder>();
  folder->add("m.safetensors", file);
  folder->add("config.json", R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":16}})");
  open_and_read(std::move(folder), "m.safetensors", input.size(), file.size());
}
