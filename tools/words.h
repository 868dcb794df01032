// Sentences about numbers of things, and about words that were misspelled.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace metal_marlin::tools {

/// "1 layer", "7 layers". The plural is the noun with an s.
std::string counted(size_t count, const char* noun);

/// The word that is most like a misspelled one; "" if none is like it.
std::string most_like(const std::string& word, const std::vector<std::string>& words);

}  // namespace metal_marlin::tools
