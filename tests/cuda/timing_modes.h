// What the modes of the program share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.hpp"
#include "timing_device.h"
#include "timing_operands.h"
#include "timing_products.h"
#include "timing_report.h"

namespace timing {

struct Options {
  std::string read_floor, json;
  std::vector<const Shape*> shapes;
  std::vector<const Format*> formats;
  std::vector<int64_t> rows;
  std::vector<std::string> cublas;
  marlin_dtype activations = MARLIN_BF16;
  Compute compute;  ///< of single products
  bool decoder = false;
  bool dense = false;  ///< cuBLAS as a decoder, too
  bool experts = false;
  int64_t expert_count = 128, top_k = 4;
  std::vector<double> skews = {0, 1};
  int rounds = 11;
};

struct Bench {
  explicit Bench(const Options& of) : options(of), context(MARLIN_BACKEND_CUDA), read_floor(device, of.read_floor) {}
  Setting setting() const {
    return {device.name(), device.driver_version(), options.activations, options.compute, options.rounds};
  }

  const Options& options;
  const Device device;
  const metal_marlin::context context;
  const ReadFloor read_floor;
};

// The modes return whether all products ran and were right.

/// Products of single weights beside cuBLAS.
bool race_products(const Bench& bench);
/// The products of a decoder's step.
bool time_decoder(const Bench& bench);
/// Mixtures of experts.
bool time_experts(const Bench& bench);

}  // namespace timing
