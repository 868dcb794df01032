// Text cut into words, before the pairs of each word are merged.
#pragma once

#include <string_view>
#include <vector>

namespace llm {

/// As GPT-2 cuts; as GPT-2 cuts between the digits, which are words of their own; as Qwen2, Llama 3
/// and GPT-4o cut.
enum class WordRule { gpt2, single_digits, qwen2, llama3, gpt4o };

/// The words of a rule's regular expression. Their concatenation is the text.
std::vector<std::string_view> split_words(std::string_view text, WordRule rule);

}  // namespace llm
