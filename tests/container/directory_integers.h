// Each integer of a directory, for tests of files that lie.
#pragma once

#include <functional>
#include <vector>

#include "checkpoints/container/directory.h"

namespace container_test {

/// A function for each that sets it.
inline std::vector<std::function<void(uint64_t)>> integers_of(metal_marlin::ContainerDirectory& d) {
  std::vector<std::function<void(uint64_t)>> all;
  const auto add = [&](auto& field) {
    all.push_back([&field](uint64_t value) { field = static_cast<std::decay_t<decltype(field)>>(value); });
  };
  const auto add_block = [&](metal_marlin::ContainerBlock& block) { add(block.offset), add(block.bytes); };
  add(d.form.version), add(d.rank), add(d.ranks), add_block(d.values);
  for (uint64_t& begin : d.value_begins) add(begin);
  for (auto& tensor : d.tensors) {
    for (int64_t& dim : tensor.dims) add(dim);
    add_block(tensor.data);
  }
  for (auto& entry : d.entries) {
    add(entry.layout);
    for (metal_marlin::ContainerMatrix& one : entry.experts) {
      metal_marlin::WeightMeta& meta = one.matrix.meta;
      add(meta.format), add(meta.n), add(meta.k), add(meta.group_size), add(meta.groups), add(meta.factor_groups);
      add(meta.gate_up_interleaved), add(meta.sparse);
      for (auto& scale : meta.tensor_scales) add(scale.first_row);
      add(one.matrix.slots), add(one.matrix.slot_group), add_block(one.data), add_block(one.group_index);
      if (d.version != 1) add(one.matrix.own);
    }
  }
  return all;
}

}  // namespace container_test
