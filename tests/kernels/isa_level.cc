// The instruction sets that METAL_MARLIN_ISA asks for, and that this processor has.
#include <cstdlib>
#include <string>

#include "campaigns.h"
#include "metal_marlin/metal_marlin.h"
#include "trial.h"

namespace trial {

std::string isa() {
  marlin_device_info info{};
  info.struct_size = sizeof info;
  for (uint32_t i = 0; marlin_device_get(i, &info, nullptr) == MARLIN_OK; ++i) {
    if (info.backend == MARLIN_BACKEND_CPU) return info.isa_or_arch;
  }
  return "";
}

/// What isa() is without METAL_MARLIN_ISA.
static std::string own_isa() {
  const std::string asked = std::getenv("METAL_MARLIN_ISA");
  unsetenv("METAL_MARLIN_ISA");
  const std::string own = isa();
  setenv("METAL_MARLIN_ISA", asked.c_str(), 1);
  return own;
}

std::string unreachable_isa() {
  const char* asked = std::getenv("METAL_MARLIN_ISA");
  const std::string have = isa();
  if (asked == nullptr) return "";
  if (!have.starts_with(asked)) return std::string("METAL_MARLIN_ISA=") + asked + ", but this processor offers " + have;
  if (have == own_isa()) return have + " is all that this processor has, and the tests run so without METAL_MARLIN_ISA, too";
  return "";
}

std::string left_to_own_level() {
  if (const std::string why = unreachable_isa(); !why.empty()) return why;
  if (std::getenv("METAL_MARLIN_ISA") == nullptr || whole_campaigns()) return "";
  return "the short form divides such products at the processor's own level alone: how, does not depend on the level";
}

}  // namespace trial
