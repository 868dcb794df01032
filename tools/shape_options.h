// The weights of bench and explain: a shape with random codes, or a layer of a file.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "input_files.h"
#include "library.h"
#include "quantize_options.h"
#include "workload.h"

namespace metal_marlin::tools {

inline CLI::Validator compute_names() { return names_of(parse_compute, "{default, int8, fp8}"); }
inline CLI::Validator dtype_names() { return names_of(parse_activation_dtype, "{f32, f16, bf16}"); }

class ShapeOptions {
 public:
  /// With `several`, --format takes a list, and the default is all formats.
  void add_to(CLI::App& app, bool several);
  /// The requested formats. For a layer of a file with its own format, one entry, perhaps NONE.
  std::vector<marlin_format> formats() const;
  /// A function that packs one more copy of the weights at each call. Borrows from *this and the
  /// context.
  std::function<Weights()> make(marlin_context* context, marlin_format format, bool sparse) const;
  /// Whether the weights are 2:4 sparse: the requested kinds that this format has.
  std::vector<bool> sparsities(marlin_format format) const;
  /// 0 if no mixture of experts is requested.
  int64_t experts() const { return experts_; }
  /// The files of --file.
  InputFiles inputs() const;

 private:
  std::string file_, layer_, zeros_ = "none", sparse_ = "none";
  std::vector<std::string> formats_;
  int64_t n_ = 11776, k_ = 4096, experts_ = 0;
  uint32_t group_ = 0, expert_ = 0;
};

}  // namespace metal_marlin::tools
