// Rules about the source tree. Each takes the root of a tree and returns one line for each breach: "file:line: what is wrong".
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace structure {

using Breaches = std::vector<std::string>;

/// Folders include only what lies below them (the arrows of CONTRIBUTING.md); every quoted include names an existing file.
Breaches include_arrows(const std::filesystem::path& root);
/// No file has more than 500 lines, but kernels that say why in a line "Longer than 500 lines: ...", and what a script
/// writes for a binding.
Breaches file_lengths(const std::filesystem::path& root);
/// No function has more than 60 lines, from the first line of its head to its closing brace. Kernels (shaders, and the folders
/// of processors in src/backends/cpu) may be longer. Of functions that were longer before there was this rule, each is listed
/// with its number of lines, which may only shrink: a shorter one breaks the rule, too, until the list says so.
Breaches function_lengths(const std::filesystem::path& root);
/// No line of src and shaders has more than 100 characters.
Breaches line_widths(const std::filesystem::path& root);
/// No operand of a conditional operator in src and shaders is a conditional itself.
Breaches nested_conditionals(const std::filesystem::path& root);
/// No notes of things left undone and no paths of somebody's machine.
Breaches words(const std::filesystem::path& root);
/// No word that has been replaced by one of the glossary, no British spelling, and of each word that once named several types
/// no second type.
Breaches renamed_words(const std::filesystem::path& root);
/// src/ neither prints nor ends the process, and sets no instruction set for a whole file. The library's build does not name
/// the test-bed.
Breaches library_manners(const std::filesystem::path& root);
/// Every source is named by a CMakeLists.txt of its folder or of one above; every header guards itself.
Breaches sources_listed(const std::filesystem::path& root);
/// No folder has more lines of text than tests/structure/budgets.txt allows, nor 3 % fewer: then the budget shrinks.
Breaches weights(const std::filesystem::path& root);
/// Every checkpoint of tests/data is described in its index.json, and has its true values beside it.
Breaches data_described(const std::filesystem::path& root);

}  // namespace structure
