// Which experts of a mixture a token has, and how much of each.
#pragma once

#include <cstdint>
#include <span>

namespace llm {

/// The experts of the largest logits, those first, and of equal ones the first. shares: their
/// probabilities among all experts, divided by the sum of those that are chosen. ids and shares
/// have the same size, which is at most that of logits. Not-a-number is less than any number.
void choose_experts(std::span<const float> logits, std::span<int32_t> ids, std::span<float> shares);

}  // namespace llm
