/* Links the library. */
#include "multiply.h"

int main(void) {
  const uint32_t version = MARLIN_VERSION_MAJOR << 16 | MARLIN_VERSION_MINOR << 8 | MARLIN_VERSION_PATCH;
  if (marlin_version() != version) {
    fprintf(stderr, "header %#x, library %#x\n", version, marlin_version());
    return 1;
  }
  return multiply(marlin_get_api(MARLIN_ABI_MAJOR));
}
