// From a shader's source to an image: a shared object made by clang, cached on disk by content.
#pragma once

#include <string>
#include <vector>

#include "../../include/metal_on_cpu/metal_on_cpu.h"
#include "rewriter.h"

namespace metal_on_cpu {

/// A source after the preprocessor, checked against the rules of MSL.
struct Preprocessed {
  std::string text;
  std::vector<std::string> kernels;
  std::vector<uint32_t> constants;  // indices of function constants
};

Result<Preprocessed> preprocess(const std::string& name, const std::string& text, const CompileOptions& options);
/// What an image is made for.
struct ImageRequest {
  KernelRange range;  // of a source's kernels
  ConstantLiterals constants;
  bool checked = false;
};
/// The path of the image. Several threads and processes may ask for the same at once.
Result<std::string> compile(const Preprocessed& source, const ImageRequest& request, const CompileOptions& options);
/// Compiles the one kernel of the request for a GPU.
Result<Registers> count_registers(const Preprocessed& source, const ImageRequest& request, const CompileOptions& options);

}  // namespace metal_on_cpu
