// Files of a checkpoint in memory, opened and read as a program would.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "backends/cpu/pack.h"
#include "backends/cuda/policy.h"
#include "backends/gpu/packer.h"
#include "base/memory.h"
#include "checkpoints/container/container.h"
#include "checkpoints/value_table.h"
#include "fuzz/target.h"
#include "unit/checkpoint_files.h"

namespace metal_marlin::fuzz {

inline std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// The input's last two bytes say how many zeros follow the rest, so that a few bytes are a header
/// and the data that it asks for.
inline std::string with_zeros(Bytes input) {
  if (input.size() < 2) return text_of(input);
  const size_t zeros = input[input.size() - 2] + size_t{256} * input[input.size() - 1];
  std::string file = text_of(input.first(input.size() - 2));
  file.resize(file.size() + zeros, '\0');
  return file;
}

inline void expect_typed(const Status& status) { expect_typed(status.code(), status.message()); }

/// Reads some rows of an expert.
inline void read_rows(const Checkpoint& checkpoint, size_t layer, uint32_t expert) {
  const auto source = checkpoint.source(layer, expert, {MARLIN_FORMAT_MXFP4});
  expect_typed(source.status());
  if (!source.ok()) return;
  const int64_t n = source.value()->meta().n;
  Stripe stripe;
  expect_typed(source.value()->read(0, std::min<int64_t>(n, 2), stripe));
  if (n > 2) expect_typed(source.value()->read(n - 1, 1, stripe));
}

/// Takes one packed matrix into use, and reads its last row.
inline void adopt(const Container& container, size_t layer, uint32_t expert) {
  const auto found = container.matrices(layer, expert, 1);
  expect_typed(found.status());
  if (!found.ok()) return;
  PackedMatrix matrix = found.value()[0];
  auto copy = Block::allocate(Allocator::system(), matrix.data.size(), 256);  // a mapped file is aligned
  std::copy(matrix.data.begin(), matrix.data.end(), copy.value().data());
  matrix.data = {copy.value().data(), matrix.data.size()};
  const std::string& device = container.form().device;
  if (device == "metal" || device == "cuda") {
    const gpu::Policy& policy = device == "cuda" ? cuda::policy() : gpu::simdgroup_policy();
    return expect_typed(gpu::make_packer({}, policy).value()->adopt({&matrix, 1}, nullptr).status());
  }
  const auto weights = cpu::adopt_weights(matrix, nullptr);
  expect_typed(weights.status());
  if (!weights.ok()) return;
  const auto source = cpu::packed_source(*weights.value());
  Stripe stripe;
  if (source.ok()) expect_typed(source.value()->read(matrix.meta.n - 1, 1, stripe));
}

inline void read_values(const ValueTable& values) {
  for (size_t i = 0; i < std::min<size_t>(values.size(), 32); ++i) {
    const auto value = values.at(i);
    expect(value.ok(), "a value that was listed can be read");
    const auto found = values.find(values.key(i));
    expect(found && *found <= i, "a key finds its first value");
    if (value.value().element_type != gguf::kString) continue;
    auto rest = value.value().data;
    for (int strings = 0; strings < 32 && take_gguf_string(rest); ++strings) {
    }
  }
}

/// `bytes` are those of the input, and `all` those of its files. Opening takes at most four times
/// the former and reading rows at most 16 times the latter, and a constant.
inline void open_and_read(std::unique_ptr<metal_marlin::testing::MemoryFolder> folder, const std::string& file, size_t bytes,
                          size_t all) {
  const Peak peak;
  const auto opened = open_checkpoint(std::move(folder), file, MARLIN_LAYOUT_AUTO);
  expect(peak.bytes() <= 4 * bytes + (1 << 20), "opening takes four times the headers");
  expect_typed(opened.status());
  if (!opened.ok()) return;
  const Checkpoint& checkpoint = *opened.value();
  const size_t layers = std::min<size_t>(checkpoint.layer_count(), 24);
  for (size_t i = 0; i < layers; ++i) {
    const Layer layer = checkpoint.layer(i);
    expect_typed(layer.status);
    expect(checkpoint.find_layer(layer.name).has_value(), "a layer's name finds a layer", layer.name.c_str());
    for (const TensorView& part : checkpoint.parts(i))
      expect(checkpoint.container() != nullptr || checkpoint.tensor(part.name).ok(), "the parts of a layer are tensors");
    for (uint32_t e = 0; e < std::min<uint32_t>(layer.experts, 2); ++e) {
      read_rows(checkpoint, i, e);
      if (checkpoint.container() != nullptr) adopt(*checkpoint.container(), i, e);
    }
  }
  read_values(checkpoint.values());
  expect(peak.bytes() <= 16 * (bytes + all) + (4 << 20), "reading takes a few times the file");
}

}  // namespace metal_marlin::fuzz
