// How long campaigns run: suites run a short form of them, and `./dev test whole` the long one.
#pragma once

#include <cstdlib>

/// Whether METAL_MARLIN_WHOLE asks for the long forms.
inline bool whole_campaigns() { return std::getenv("METAL_MARLIN_WHOLE") != nullptr; }
