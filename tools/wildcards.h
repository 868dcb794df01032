// Names by pattern, as a shell has them.
#pragma once

namespace metal_marlin::tools {

/// Whether a name fits a pattern: * is any text, ? any letter, [a-z] and [!a-z] one of a set or
/// none of it, and \ takes the next letter as it is.
bool fits(const char* pattern, const char* name);

}  // namespace metal_marlin::tools
