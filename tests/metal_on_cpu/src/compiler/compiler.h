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
  std::vector<FunctionConstant> constants;
  std::string metallib;  // of a .metallib: its path; there is no text
};

Result<Preprocessed> preprocess(const std::string& name, const std::string& text, const CompileOptions& options);
/// The path of one image for these values of function constants. Several threads and processes may ask for the same at once.
/// `kernel`: the one that a .metallib's image holds; a source's image holds all.
Result<std::string> compile(const Preprocessed& source, const std::string& kernel, const ConstantLiterals& constants,
                            bool checked, const CompileOptions& options);

}  // namespace metal_on_cpu
