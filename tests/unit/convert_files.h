// What the tests of converting share: folders of the disk, models of floats in them, and what is read back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "checkpoint_files.h"
#include "checkpoints/convert/convert.h"
#include "checkpoints/tensor_table.h"
#include "formats/codecs.h"
#include "formats/fit.h"
#include "formats/quantize.h"
#include "temporary_folder.h"

namespace metal_marlin::testing {

/// A folder of its own, removed with all it holds.
class ScratchFolder {
 public:
  ScratchFolder() : path_(folder_.path()) {
    if (path_.empty()) throw std::runtime_error("cannot make a temporary folder");
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string at(const std::string& name) const { return (path_ / name).string(); }
  std::set<std::string> names(const std::string& folder = "") const {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_ / folder)) all.insert(entry.path().filename().string());
    return all;
  }

 private:
  TemporaryFolder folder_;
  std::filesystem::path path_;
};

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// Normal numbers as the bytes of F32, F16 or BF16 ("F32", ...), with a few zeros and a row of zeros.
inline std::string random_floats(int64_t n, int64_t k, const std::string& dtype, uint32_t seed, float deviation = 0.02f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<size_t>(n * k));
  for (float& v : values) v = random() % 16 == 0 ? 0.0f : normal(random);
  if (n > 2) std::fill_n(values.begin() + 2 * k, k, 0.0f);
  const marlin_dtype type = dtype == "F32" ? MARLIN_F32 : dtype == "F16" ? MARLIN_F16 : MARLIN_BF16;
  std::string bytes(values.size() * (type == MARLIN_F32 ? 4 : 2), '\0');
  encode_floats(type, values.data(), n * k, bytes.data());
  return bytes;
}

/// What the host was told.
struct Heard {
  std::vector<marlin_convert_outcome> outcomes;
  std::vector<std::string> names, reasons, log;
  uint64_t done = 0, total = 0;
  int64_t calls = 0, cancel_at = INT64_MAX;  ///< cancel_at: the number of the call of progress that cancels

  ConvertHost host() {
    ConvertHost host;
    host.user = this;
    host.progress = [](void* user, uint64_t done, uint64_t total, const char*) -> int32_t {
      auto& heard = *static_cast<Heard*>(user);
      heard.done = done;
      heard.total = total;
      return heard.calls++ == heard.cancel_at ? 1 : 0;
    };
    host.layer_done = [](void* user, const marlin_convert_outcome* outcome) {
      auto& heard = *static_cast<Heard*>(user);
      heard.outcomes.push_back(*outcome);
      heard.names.emplace_back(outcome->name);
      heard.reasons.emplace_back(outcome->reason);
    };
    host.log = {[](void* user, int32_t, const char* message) { static_cast<Heard*>(user)->log.emplace_back(message); }, this};
    return host;
  }
};

/// Numbers of the layers called so.
inline std::vector<size_t> layers_called(const Checkpoint& checkpoint, const std::set<std::string>& names) {
  std::vector<size_t> all;
  for (size_t i = 0; i < checkpoint.layers().size(); ++i) {
    if (names.contains(checkpoint.layers()[i].name)) all.push_back(i);
  }
  return all;
}

inline std::string tensor_data(const Checkpoint& checkpoint, const std::string& name) {
  const auto view = checkpoint.tensor(name);
  if (!view.ok()) return "no tensor " + name;
  return {reinterpret_cast<const char*>(view.value().data), view.value().bytes};
}

}  // namespace metal_marlin::testing
