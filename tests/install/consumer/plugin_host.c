/* Loads the library at run time and knows one symbol of it; several times, because a plugin comes and goes. */
#include <dlfcn.h>

#include "multiply.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  for (int round = 0; round < 20; ++round) {
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    marlin_get_api_function get_api = NULL;
    *(void**)&get_api = dlsym(library, "marlin_get_api");
    if (get_api == NULL) return 1;
    const marlin_api* api = get_api(MARLIN_ABI_MAJOR);
    if (api == NULL || get_api(MARLIN_ABI_MAJOR + 1) != NULL) return 1;
    if (multiply(api) != 0) return 1;
    if (dlclose(library) != 0) return 1;
  }
  return 0;
}
