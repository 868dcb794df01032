// The weights of bench and explain: a shape with random codes, or a layer of a file.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "library.h"
#include "quantize_options.h"
#include "workload.h"

namespace metal_marlin::tools {

inline CLI::Validator compute_names() {
  return names_of(parse_compute, "{default, int8, fp8, w16}");
}
inline CLI::Validator dtype_names() { return names_of(parse_activation_dtype, "{f32, f16, bf16}"); }

/// Weights to measure.
struct Subject {
  WeightType type;  ///< of a layer of a file: to which floats are quantized, or NONE
  std::shared_ptr<marlin_checkpoint> file = {};  ///< or null: random weights
  marlin_layer_info layer = {};                  ///< of the file; the first of its kind
  /// Products of its kind that a token takes: of each layer of the file, and of as many experts of
  /// a stack as the file says. 0: only this layer is meant.
  uint64_t times = 0;
};

class ShapeOptions {
 public:
  /// With `several`, --format takes a list, and the default is all formats.
  void add_to(CLI::App& app, bool several);
  /// What is requested: a shape in each of some formats; a layer of a file; or, with `several` and
  /// without --layer, each kind of layers of the file.
  std::vector<Subject> subjects() const;
  /// A function that packs one more copy of the weights at each call. Borrows from *this and the
  /// context.
  std::function<Weights()> make(marlin_context* context, const Subject& subject, bool sparse) const;
  /// Whether the weights are 2:4 sparse: the requested kinds that this format has.
  std::vector<bool> sparsities(const WeightType& type) const;
  /// 0 if no mixture of experts is requested.
  int64_t experts() const { return experts_; }

 private:
  std::vector<Subject> subjects_of_file() const;

  bool several_ = false;
  std::string file_, layer_, zeros_ = "none", sparse_ = "none";
  std::vector<std::string> formats_;
  int64_t n_ = 11776, k_ = 4096, experts_ = 0;
  uint32_t group_ = 0, expert_ = 0;
};

}  // namespace metal_marlin::tools
