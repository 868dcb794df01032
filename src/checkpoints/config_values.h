// The members of config.json as key-values.
#pragma once

#include <string_view>

#include "checkpoints/value_table.h"

namespace metal_marlin {

/// Texts, numbers, bools, and arrays of one of these, in the order of the text. The key of a member
/// of an inner object is its path with dots. Nulls, objects inside of arrays and arrays of mixed
/// kinds have no value. The table takes at most twice the bytes of the text and 64 KB: paths may
/// repeat long names, and a text that needs more gives a table with the status
/// MARLIN_E_UNSUPPORTED.
/// A note, if there is one, is the last value, with the key kNoteKey.
ValueTable config_values(std::string_view text, std::string_view note = {});

}  // namespace metal_marlin
