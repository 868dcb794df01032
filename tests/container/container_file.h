// What the tests of containers share: small checkpoints, packed, and their files.
#pragma once

#include <unistd.h>

#include "metal_marlin/metal_marlin.hpp"
#include "test.h"

namespace container_test {

namespace mm = metal_marlin;

inline std::string data(const std::string& name) { return std::string(MARLIN_TEST_DATA) + "/" + name; }

/// A folder that is gone with its owner.
class Folder {
 public:
  Folder() {
    static int number = 0;
    // Thousands of small files: in memory, where the system has such a folder.
    const std::filesystem::path memory = "/dev/shm";
    path_ = (access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path()) /
            ("metal-marlin-container-" + std::to_string(getpid()) + "-" + std::to_string(number++));
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Packs the smallest layer of a checkpoint, of at most two experts. Returns its name.
inline std::string pack_smallest(const mm::context& context, const std::string& name, const std::string& path,
                                 marlin_backend backend = MARLIN_BACKEND_AUTO) {
  const mm::checkpoint source(data(name));
  auto layers = source.layers();
  const auto size = [](const marlin_layer_info& layer) {
    return layer.format == MARLIN_FORMAT_NONE ? INT64_MAX : layer.n * layer.k * layer.experts;
  };
  const auto least = std::min_element(layers.begin(), layers.end(), [&](auto& a, auto& b) { return size(a) < size(b); });
  const char* const layer = least->name;
  const marlin_shard shard = {{0, 0, 0}, {0, 0, std::min<int64_t>(2, least->experts)}};
  auto load = mm::make<marlin_load_desc>();
  load.layers = &layer;
  load.layer_count = 1;
  load.shards = &shard;
  const marlin_load_desc* const loads[] = {&load};
  auto desc = mm::make<marlin_save_desc>();
  desc.loads = loads;
  desc.load_count = 1;
  desc.backend = backend;
  mm::save(context, source, path, desc);
  return layer;
}

/// All rows of all experts as float32.
inline std::vector<float> values(const mm::weights& weights) {
  const marlin_layer_info info = mm::info(weights);
  std::vector<float> all(static_cast<size_t>(info.n * info.k * info.experts));
  for (int64_t e = 0; e < info.experts; ++e)
    mm::unpack(weights, mm::matrix_view(all.data() + e * info.n * info.k, info.n, info.k), e * info.n);
  return all;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The products of three rows with every expert, as bits.
inline std::vector<float> product(const mm::weights& weights) {
  const marlin_layer_info info = mm::info(weights);
  std::vector<float> a(static_cast<size_t>(3 * info.k));
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(static_cast<int>(i * 37 % 64) - 31) / 32.0f;
  std::vector<float> c(static_cast<size_t>(3 * info.experts * info.n));
  std::vector<int32_t> ids;
  for (int t = 0; t < 3; ++t)
    for (uint32_t e = 0; e < info.experts; ++e) ids.push_back(static_cast<int32_t>(e));
  auto desc = mm::make<marlin_gemm_desc>();
  desc.weights = weights.get();
  desc.a = mm::matrix_view(a.data(), 3, info.k);
  desc.c = mm::matrix_view(c.data(), info.experts == 1 ? 3 : 3 * info.experts, info.n);
  if (info.experts != 1) desc.expert_ids = mm::matrix_view(ids.data(), 3, info.experts);
  mm::gemm(desc);
  return c;
}

/// The status of a call that throws, or MARLIN_OK; *message is what it says.
template <class F>
marlin_status status_of(F&& call, std::string* message = nullptr) {
  try {
    call();
    return MARLIN_OK;
  } catch (const mm::error& e) {
    if (message != nullptr) *message = e.what();
    return e.status();
  }
}

#define EXPECT_ERROR(expected, words, call)                                               \
  do {                                                                                    \
    std::string message_;                                                                 \
    EXPECT_EQ(container_test::status_of([&] { call; }, &message_), expected) << message_; \
    EXPECT_NE(message_.find(words), std::string::npos) << message_;                       \
  } while (0)

}  // namespace container_test
