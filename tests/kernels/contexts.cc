// The contexts that trials run on.
#include <cstdlib>
#include <map>
#include <utility>

#include "trial.h"

namespace trial {

marlin_context* chosen_context = nullptr;
void use_context(marlin_context* context) { chosen_context = context; }
bool on_cpu() { return chosen_context == nullptr; }

marlin_context* context(uint32_t threads) {
  if (chosen_context != nullptr) return chosen_context;
  const char* kernel = std::getenv("METAL_MARLIN_KERNEL");
  struct Destroy {
    void operator()(marlin_context* c) const { marlin_context_destroy(c); }
  };
  static std::map<std::pair<uint32_t, std::string>, std::unique_ptr<marlin_context, Destroy>> contexts;
  auto& found = contexts[{threads, kernel != nullptr ? kernel : ""}];
  if (found == nullptr) {
    marlin_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.backend = MARLIN_BACKEND_CPU;
    desc.threads = threads;
    marlin_error err{};
    err.struct_size = sizeof err;
    marlin_context* made = nullptr;
    EXPECT_EQ(marlin_context_create(&desc, &made, &err), MARLIN_OK) << err.message;
    found.reset(made);
  }
  return found.get();
}

}  // namespace trial
