// Which layers `pack --join` packs as one.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace metal_marlin::tools {

/// "q_proj" of "model.layers.0.self_attn.q_proj" and "attn_q" of "blk.0.attn_q.weight".
std::string_view role_of(std::string_view layer);

/// Lists of roles: "q_proj+k_proj,gate_proj+up_proj" has two.
using JoinLists = std::vector<std::vector<std::string>>;
JoinLists join_lists(const std::vector<std::string>& words);

/// The indices of each group of `count` layers. Layers with all roles of a list and the same name
/// before their role become one group if they fit. `name` is asked a few times for each layer.
std::vector<std::vector<size_t>> join(size_t count,
                                      const std::function<std::string_view(size_t)>& name,
                                      const JoinLists& lists,
                                      const std::function<bool(const std::vector<size_t>&)>& fit);

}  // namespace metal_marlin::tools
