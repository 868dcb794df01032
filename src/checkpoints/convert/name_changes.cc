#include "checkpoints/convert/name_changes.h"

#include "base/files.h"

namespace metal_marlin {

int NameChanges::open_nameless(const char* folder) noexcept { return files::open_nameless(folder); }
int NameChanges::link(const char* from, const char* to) noexcept { return files::link(from, to); }
int NameChanges::rename(const char* from, const char* to) noexcept {
  return files::rename(from, to);
}
int NameChanges::exchange(const char* a, const char* b) noexcept { return files::exchange(a, b); }
int NameChanges::remove(const char* name) noexcept { return files::remove(name); }

}  // namespace metal_marlin
