#include "norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "command.h"
#include "input_files.h"
#include "names.h"

namespace metal_marlin::tools {
namespace {

/// The library protects the files that it reads, but it takes the norms from memory. This function
/// protects the files of the norms from names of output files.
void keep_norms(const std::string& path, const std::string& output) {
  namespace fs = std::filesystem;
  InputFiles norms;
  norms.add_checkpoint(path);
  std::error_code none;
  const bool is_folder = fs::is_directory(output, none);
  const fs::path target = output, folder = is_folder ? target : target.parent_path();
  const std::string stem = is_folder ? "model" : target.stem().string();
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, none), end;
       !none && entry != end; entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    const bool may_get =
        name.starts_with(stem) || name == "config.json" || name == "quantize_config.json";
    if (!may_get || !norms.has(entry->path().string())) continue;
    throw Failure(fmt::format("cannot write {}: {} is part of the norms; write to another name",
                              output, entry->path().string()));
  }
}

}  // namespace

Norms::Norms(std::string path) : path_(std::move(path)) {
  // Nothing else is opened here: a pipe would wait for a writer.
  std::error_code none;
  const bool is_file = std::filesystem::is_regular_file(path_, none);
  char magic[4] = {};
  if (is_file) std::ifstream(path_, std::ios::binary).read(magic, sizeof magic);
  if (std::memcmp(magic, "GGUF", sizeof magic) == 0) {
    kind_ = Kind::gguf;
  } else if (is_file && !path_.ends_with(".safetensors") && !path_.ends_with(".json")) {
    kind_ = Kind::imatrix;
  }
  if (kind_ == Kind::imatrix) {
    sums_ = read_imatrix(path_);
  } else {
    checkpoint_ = open_checkpoint(path_);
  }
}

std::vector<float> Norms::tensor(const std::string& name, int64_t rows, int64_t k) const {
  auto error = make<marlin_error>();
  marlin_matrix matrix{};
  const marlin_status status =
      marlin_checkpoint_tensor(checkpoint_.get(), name.c_str(), &matrix, &error);
  if (status == MARLIN_E_NOT_FOUND && kind_ == Kind::gguf) return {};
  check(status, error, fmt::format("cannot take the norms of '{}' from {}", name, path_));
  if (matrix.dtype != MARLIN_F32 || matrix.rows != rows || matrix.cols != k) {
    throw Failure(fmt::format("{}: the norms of '{}': expected f32 [{}, {}], found {} [{}, {}]",
                              path_, name, rows, k, dtype_name(matrix.dtype), matrix.rows,
                              matrix.cols));
  }
  std::vector<float> values(static_cast<size_t>(rows * k));
  std::memcpy(values.data(), static_cast<const std::byte*>(matrix.data) + matrix.offset_bytes,
              values.size() * sizeof(float));
  return values;  // a copy: a file's floats may lie at any address
}

std::vector<float> Norms::importance(const marlin_layer_info& layer) const {
  const auto k = static_cast<size_t>(layer.k), size = k * layer.experts;
  for (const std::string& name : {std::string(layer.name), layer.name + std::string(".weight")}) {
    std::vector<float> sums;
    if (kind_ == Kind::gguf) {
      sums = tensor(name + ".in_sum2", layer.experts, layer.k);
    } else if (const auto at = sums_.find(name); at != sums_.end()) {
      sums = at->second;
    }
    if (sums.empty()) continue;
    if (sums.size() != size) {
      throw Failure(
          fmt::format("{}: '{}': expected {} values, found {}", path_, name, size, sums.size()));
    }
    std::vector<float> norms(k);
    for (size_t i = 0; i < k; ++i) {
      double sum = 0;
      for (size_t expert = 0; expert < layer.experts; ++expert)
        sum += static_cast<double>(sums[expert * k + i]);
      norms[i] = static_cast<float>(std::sqrt(sum));
    }
    return norms;
  }
  return {};
}

std::vector<float> Norms::of(const marlin_layer_info& layer) const {
  return kind_ == Kind::norms ? tensor(layer.name, 1, layer.k) : importance(layer);
}

LayerNorms::LayerNorms(const std::string& path, const std::string& output,
                       const marlin_checkpoint* model, const std::vector<const char*>& layers) {
  if (path.empty()) return;
  keep_norms(path, output);
  const Norms file(path);
  values_.reserve(layers.size());
  for (const char* name : layers) {
    const marlin_layer_info layer = find_layer(model, name);
    std::vector<float>& values = values_.emplace_back(file.of(layer));
    marlin_matrix& norms = matrices_.emplace_back();
    if (values.empty()) continue;
    norms.data = values.data();
    norms.rows = 1;
    norms.cols = layer.k;
    norms.dtype = MARLIN_F32;
  }
  if (std::all_of(values_.begin(), values_.end(), [](const auto& v) { return v.empty(); })) {
    throw Failure(fmt::format("{}: has no importance of any of the layers, such as '{}'", path,
                              layers.empty() ? "" : layers[0]));
  }
}

}  // namespace metal_marlin::tools
