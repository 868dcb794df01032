// What was measured on a device: for classes of products, the kernel that was fastest there. A
// profile lives in a small text file of the cache folder, one for each device, driver, system and
// version of the library.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"
#include "core/backend.h"

namespace metal_marlin {

/// The properties of a product by which its kernel is measured and kept.
enum class ClassField : uint8_t {
  format,
  group,        ///< size of scale groups
  scales,       ///< ScaleType
  zeros,        ///< ZeroKind
  zero_scales,  ///< ScaleType of additive zeros; 0 for others
  sparse,
  act_order,
  n,
  k,
  a,  ///< dtype of A
  compute,
  inputs,   ///< of the epilogue: 1 or 2
  experts,  ///< 0: no routing
  top_k,
  summed,  ///< a token's rows are added up
  rows,    ///< the most M (with routing: T) of the class, see top_of_class()
};
inline constexpr size_t kClassFields = 16;
using ProductClass = std::array<int64_t, kClassFields>;

/// The largest M (with routing: T) of the class that M belongs to: M up to 8, and the next power of
/// two above.
int64_t top_of_class(int64_t m);
/// The class of a product of m rows of A (with routing: tokens).
ProductClass class_of(const GemmProblem& problem, int64_t m);

/// A kernel and how it runs.
struct KernelChoice {
  std::string kernel;
  int64_t splits = 0;  ///< of K; 0: as the backend does without a profile
  int64_t team = 0;    ///< log2 of the warps that share a row block; 0: as without a profile
  int64_t ns = 0;      ///< of one product, as measured
  std::string usual;   ///< the kernel that serves without a profile
  int64_t usual_ns = 0;

  bool operator==(const KernelChoice&) const = default;
  /// How many times as long as this choice the usual one takes.
  double gain() const {
    return ns > 0 ? static_cast<double>(usual_ns) / static_cast<double>(ns) : 1;
  }
};

/// What measurements depend on besides the product. Control characters become spaces.
struct ProfileKey {
  std::string backend, device, architecture, driver;
};

/// The choices of one device. Any thread may use it; a choice stays as it is once it is kept.
class Profile {
 public:
  /// An empty `folder` keeps nothing on disk. Reads the file of this key, if there is one. A file
  /// that is damaged or of another key is ignored, which the logger is told.
  Profile(std::string folder, const ProfileKey& key, const Logger& logger);

  /// The choice for a class, or null. It lives as long as the profile. Does not allocate.
  const KernelChoice* find(const ProductClass& products) const;
  /// Keeps a choice unless the class has one.
  void keep(const ProductClass& products, const KernelChoice& choice);
  /// Writes the file if anything was kept since it was read or written. Choices that another
  /// process wrote meanwhile stay in the file; this profile does not take them.
  Status save();
  size_t size() const;
  bool empty() const { return size() == 0; }
  /// Of the file; empty: nothing is kept on disk.
  const std::string& path() const { return path_; }

 private:
  using Choices = std::map<ProductClass, KernelChoice>;
  std::string text(const Choices& choices) const;
  static Status parse(std::string_view text, std::string_view head, Choices& out);
  Status read(Choices& out) const;

  const std::string head_;  // of the file: the key, line by line
  std::string path_;
  const Logger logger_;
  mutable std::shared_mutex mutex_;
  Choices choices_;
  bool changed_ = false;
};

/// "key: value\n" lines of explain: what was measured, and where it is kept. `choice` may be null.
std::string explain_profile(const Profile& profile, const KernelChoice* choice);

}  // namespace metal_marlin
