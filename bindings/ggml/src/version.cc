#include "version.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "ggml_interface.h"
#include "host.h"
#include "log.h"
#include "packed_buffer.h"

namespace marlin_ggml {
namespace {

struct Version {
  int major, minor;
  auto operator<=>(const Version&) const = default;
};
/// Versions whose source shows the structs of ggml_interface.h. All of them have version 2 of the
/// interface. None differs from the others in what is used here.
constexpr struct {
  Version first{0, 10}, last{0, 25};
} kKnown;

bool version_fits() {
  Version found{-1, -1};
  // Absent numbers stay -1. NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion)
  std::sscanf(ggml_version(), "%d.%d", &found.major, &found.minor);
  if (found >= kKnown.first && found <= kKnown.last) return true;
  // The number of the interface, which ggml raises when a struct changes, decides.
  const int interface =
      cpu_device() == nullptr ? -1 : ggml_backend_dev_backend_reg(cpu_device())->api_version;
  if (found > kKnown.last && interface == kGgmlApiVersion) {
    log(GGML_LOG_LEVEL_INFO,
        "ggml %s is newer than %d.%d, the last known version; its interface fits", ggml_version(),
        kKnown.last.major, kKnown.last.minor);
    return true;
  }
  log(GGML_LOG_LEVEL_WARN,
      "expected ggml %d.%d to %d.%d, or a newer one with version %d of the interface, found ggml "
      "%s with version %d: not used",
      kKnown.first.major, kKnown.first.minor, kKnown.last.major, kKnown.last.minor, kGgmlApiVersion,
      ggml_version(), interface);
  return false;
}

bool types_fit() {
  for (const BlockType& block : kBlockTypes) {
    if (ggml_blck_size(block.type) == block.elements && ggml_type_size(block.type) == block.bytes)
      continue;
    log(GGML_LOG_LEVEL_WARN,
        "expected blocks of %d elements in %d bytes for type %d, found %d in %d: not used",
        static_cast<int>(block.elements), static_cast<int>(block.bytes),
        static_cast<int>(block.type), static_cast<int>(ggml_blck_size(block.type)),
        static_cast<int>(ggml_type_size(block.type)));
    return false;
  }
  return true;
}

bool tensors_fit() {
  // ggml adds a header of 32 bytes to each.
  constexpr std::pair<ggml_op, const char*> kUsed[] = {{GGML_OP_NONE, "NONE"},
                                                       {GGML_OP_MUL_MAT, "MUL_MAT"},
                                                       {GGML_OP_MUL_MAT_ID, "MUL_MAT_ID"},
                                                       {GGML_OP_GET_ROWS, "GET_ROWS"},
                                                       {GGML_OP_ROPE, "ROPE"},
                                                       {GGML_OP_FLASH_ATTN_EXT, "FLASH_ATTN_EXT"},
                                                       {GGML_OP_RESHAPE, "RESHAPE"},
                                                       {GGML_OP_VIEW, "VIEW"},
                                                       {GGML_OP_PERMUTE, "PERMUTE"},
                                                       {GGML_OP_TRANSPOSE, "TRANSPOSE"}};
  if (ggml_tensor_overhead() == sizeof(ggml_tensor) + 32 &&
      std::ranges::all_of(kUsed, [](const auto& each) {
        return std::strcmp(ggml_op_name(each.first), each.second) == 0;
      }))
    return true;
  log(GGML_LOG_LEVEL_WARN, "ggml's tensors or operations are not those of its headers: not used");
  return false;
}

}  // namespace

bool fits_this_ggml() { return version_fits() && tensors_fit() && types_fit(); }

}  // namespace marlin_ggml
