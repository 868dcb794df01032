/* The layout of every struct and the value of every constant, pinned in pins.txt: a compiler that reads this file without
 * complaint sees the ABI that all others see. Each field starts where the one before it ends, so there is no padding. Compiled
 * as C99 and C++ by every compiler there is, and run once to see that a program in plain C links and works. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "metal_marlin/metal_marlin.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
/* C99 has no static assertion; an array of -1 elements is refused everywhere. */
#define HOLDS(condition) typedef char PASTE(holds_, __LINE__)[(condition) ? 1 : -1]
#define FIELD(type, field, offset, bytes) HOLDS(offsetof(type, field) == (offset) && sizeof(((type*)0)->field) == (bytes))
#define END(type, bytes) HOLDS(sizeof(type) == (bytes))
#define VALUE(type, constant, value) HOLDS((constant) == (type)(value))
#define TYPE(type) HOLDS(sizeof(type) == 4 && (type) - 1 < 0)

#include <pinned.inc>

int main(void) {
  const marlin_api* api = marlin_get_api(MARLIN_ABI_MAJOR);
  marlin_error err = {sizeof err, 0, 0, 0, ""};
  marlin_context_desc desc;
  marlin_context* context = NULL;
  if (api == NULL || api->struct_size < sizeof(marlin_api)) return 1;
  if (marlin_version() != (MARLIN_VERSION_MAJOR << 16 | MARLIN_VERSION_MINOR << 8 | MARLIN_VERSION_PATCH)) return 2;
  memset(&desc, 0, sizeof desc);
  if (marlin_context_create(&desc, &context, &err) != MARLIN_E_STRUCT_SIZE || context != NULL) return 3;
  desc.struct_size = sizeof desc;
  if (api->context_create(&desc, &context, &err) != MARLIN_OK || context == NULL) {
    printf("%s: %s\n", marlin_status_name(err.status), err.message);
    return 4;
  }
  marlin_context_destroy(context);
  return 0;
}
