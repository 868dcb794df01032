#include <metal_marlin/metal_marlin.h>
#include <stdio.h>

int main(void) {
  const unsigned version = marlin_version();
  printf("metal-marlin %u.%u.%u\n", version >> 16, version >> 8 & 255, version & 255);
  return marlin_get_api(MARLIN_ABI_MAJOR) ? 0 : 1;
}
