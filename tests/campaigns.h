// How long campaigns run: suites run a short form of them, and `./dev test whole` the long one.
#pragma once

#include <cstdlib>

/// Whether METAL_MARLIN_WHOLE asks for the long forms.
inline bool whole_campaigns() { return std::getenv("METAL_MARLIN_WHOLE") != nullptr; }
/// Whether METAL_MARLIN_EMULATED says that an emulator runs the tests, which then take a third of their cases, by chance. Each
/// step costs an emulator ten times as much.
inline bool is_emulated() { return std::getenv("METAL_MARLIN_EMULATED") != nullptr && !whole_campaigns(); }
