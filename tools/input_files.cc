#include "input_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <vector>

#include "json.h"
#include "platform.h"

namespace metal_marlin::tools {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& folder) {
  std::error_code ignored;  // the library has opened the checkpoint or will report the error
  std::vector<fs::path> all;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    all.push_back(entry->path());
  }
  return all;
}

/// The name of a part of a split GGUF without its number; "" for any other name.
std::string part_of(const fs::path& file) {
  static const std::regex pattern("(.*-)[0-9]{5,}(-of-[0-9]{5,}\\.gguf)");
  const std::string name = file.filename().string();
  std::smatch found;
  return std::regex_match(name, found, pattern) ? found.str(1) + found.str(2) : "";
}

/// The file that marlin_checkpoint_open() takes from a folder: model.* first, else a name that
/// AutoGPTQ gives, else the only file with such an ending. Any part of a split GGUF stands for the
/// first.
fs::path main_file(const fs::path& folder) {
  constexpr const char* kEndings[] = {".safetensors.index.json", ".safetensors", ".gguf"};
  std::error_code ignored;
  for (const char* ending : kEndings) {
    if (fs::path named = folder / (std::string("model") + ending); fs::exists(named, ignored))
      return named;
  }
  const std::vector<fs::path> all = files_in(folder);
  for (const fs::path& file : all) {
    if (part_of(file).starts_with("model--of-")) return file;
  }
  for (const char* ending : kEndings) {
    for (const fs::path& file : all) {  // the names that AutoGPTQ gives
      const std::string name = file.filename().string();
      if (name.starts_with("gptq_model-") && name.ends_with(ending)) return file;
    }
  }
  for (const char* ending : kEndings) {
    const auto fits = [&](const fs::path& path) {
      return path.filename().string().ends_with(ending);
    };
    if (const auto found = std::find_if(all.begin(), all.end(), fits); found != all.end())
      return *found;
  }
  return {};
}

std::set<std::string> shards_of(const fs::path& index) {
  std::set<std::string> names;
  if (std::error_code none; !fs::is_regular_file(index, none)) return names;
  std::ifstream file(index);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const Json read = Json::parse(text);
  if (!read.contains("weight_map") || !read.at("weight_map").is_object()) return names;
  for (const auto& [tensor, shard] : read.at("weight_map").members()) {
    if (shard.is_string()) names.insert(shard.text());
  }
  return names;
}

}  // namespace

void InputFiles::add(const std::string& path) {
  if (const auto id = file_id(path)) files_.insert(*id);
}

void InputFiles::add_checkpoint(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path file = is_folder ? main_file(path) : fs::path(path),
                 folder = is_folder ? fs::path(path) : file.parent_path();
  add(file.string());
  for (const std::string& tensors : tensor_files(path)) add(tensors);
  for (const char* config :
       {"config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json"}) {
    add((folder / config).string());
  }
}

std::vector<std::string> tensor_files(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path file = is_folder ? main_file(path) : fs::path(path), folder = file.parent_path();
  std::vector<std::string> files;
  if (file.extension() == ".json") {
    for (const std::string& shard : shards_of(file)) files.push_back((folder / shard).string());
  } else if (const std::string part = part_of(file); !part.empty()) {
    for (const fs::path& other : files_in(folder.empty() ? "." : folder))
      if (part_of(other) == part) files.push_back(other.string());
  } else {
    files.push_back(file.string());
  }
  return files;
}

bool InputFiles::has(const std::string& path) const {
  const auto id = file_id(path);
  return id && files_.contains(*id);
}

}  // namespace metal_marlin::tools
