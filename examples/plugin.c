/* plugin LIBRARY CHECKPOINT: a host that is built without the library and finds it at run time. One
 * symbol gives all functions.
 */
#include <metal_marlin/metal_marlin.h>
#include <stdio.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

/* The one symbol, or NULL with the reason printed. */
static marlin_get_api_function find_symbol(const char* path) {
  marlin_get_api_function get_api = NULL;
#ifdef _WIN32
  HMODULE library = LoadLibraryA(path);
  if (library) get_api = (marlin_get_api_function)(void*)GetProcAddress(library, "marlin_get_api");
  if (!get_api) fprintf(stderr, "%s: error %lu of Windows\n", path, GetLastError());
#else
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  /* As POSIX shows it: ISO C has no conversion of an object's pointer to a function's. */
  if (library) *(void**)&get_api = dlsym(library, "marlin_get_api");
  if (!get_api) fprintf(stderr, "%s\n", dlerror());
#endif
  return get_api;
}

/* The table, or NULL with the reason printed. The library must stay loaded as long as anything of
 * it is in use. */
static const marlin_api* find_api(const char* path) {
  marlin_get_api_function get_api = find_symbol(path);
  if (!get_api) return NULL;
  const marlin_api* api = get_api(MARLIN_ABI_MAJOR);
  if (!api) return fprintf(stderr, "%s does not serve ABI %d\n", path, MARLIN_ABI_MAJOR), NULL;
  /* An older library has a shorter table: what this host calls must be inside. */
  if (api->abi_minor < MARLIN_ABI_MINOR) return fprintf(stderr, "%s is too old\n", path), NULL;
  return api;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: plugin LIBRARY CHECKPOINT\n"), 2;
  const marlin_api* api = find_api(argv[1]);
  if (!api) return 1;
  marlin_error error = {.struct_size = sizeof error};
  marlin_layer_info layer = {.struct_size = sizeof layer};
  marlin_checkpoint* file = NULL;
  marlin_status status = api->checkpoint_open(argv[2], NULL, &file, &error);
  for (uint64_t i = 0; !status; ++i) {
    status = api->checkpoint_layer(file, i, &layer, &error);
    if (!status) printf("%s: %d x %d\n", layer.name, (int)layer.n, (int)layer.k);
  }
  api->checkpoint_destroy(file);
  if (status == MARLIN_E_NOT_FOUND) return 0; /* past the last layer */
  fprintf(stderr, "%s: %s\n", api->status_name(status), error.message);
  return 1;
}
