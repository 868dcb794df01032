#include "recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>

#include "command.h"
#include "names.h"
#include "wildcards.h"

namespace metal_marlin::tools {
namespace {

/// What a layer is in its model.
enum class Role {
  output,
  embeddings,
  attention_v,
  attention_k,
  attention_qkv,
  attention_out,
  down
};

/// Names as GGUF and as transformers have them.
struct RoleName {
  Role role;
  const char* pattern;
};
constexpr RoleName kRoles[] = {
    {Role::output, "output.weight"},
    {Role::output, "lm_head"},
    {Role::embeddings, "token_embd.weight"},
    {Role::embeddings, "*embed_tokens"},
    {Role::attention_v, "*attn_v.weight"},
    {Role::attention_v, "*.v_proj"},
    {Role::attention_k, "*attn_k.weight"},
    {Role::attention_k, "*.k_proj"},
    {Role::attention_qkv, "*attn_qkv.weight"},
    {Role::attention_qkv, "*.qkv_proj"},
    {Role::attention_out, "*attn_output.weight"},
    {Role::attention_out, "*.o_proj"},
    {Role::down, "*ffn_down*"},
    {Role::down, "*.down_proj"},
};

/// Which layers of a role a rule is for.
enum class Where {
  all,
  more_bits,  ///< the first eighth, the last eighth, and every third between
  first_eighth,
  first_sixteenth,
  first_two,
  first_four,
  grouped_80,     ///< of models of 80 blocks whose heads share keys and values (Llama 70B)
  eight_experts,  ///< of models with eight experts (Mixtral)
};

struct Rule {
  Role role;
  Where where;
  const char* type;
};

/// A later rule replaces an earlier one.
struct Recipe {
  const char* name;
  const char* base;  ///< of layers without a rule
  std::span<const Rule> rules;
};

// The rules of llama.cpp's quantizer (llama-quant.cpp) for files of these names.
constexpr Rule kQ3KM[] = {
    {Role::output, Where::all, "Q6_K"},
    {Role::attention_v, Where::all, "Q4_K"},
    {Role::attention_v, Where::first_two, "Q5_K"},
    {Role::attention_v, Where::grouped_80, "Q5_K"},
    {Role::attention_v, Where::eight_experts, "Q8_0"},
    {Role::attention_k, Where::eight_experts, "Q8_0"},
    {Role::attention_qkv, Where::all, "Q4_K"},
    {Role::attention_out, Where::all, "Q4_K"},
    {Role::attention_out, Where::eight_experts, "Q5_K"},
    {Role::down, Where::all, "Q4_K"},
    {Role::down, Where::first_sixteenth, "Q5_K"},
};
constexpr Rule kQ4KS[] = {
    {Role::output, Where::all, "Q6_K"},
    {Role::attention_v, Where::first_four, "Q5_K"},
    {Role::attention_v, Where::grouped_80, "Q5_K"},
    {Role::attention_v, Where::eight_experts, "Q8_0"},
    {Role::attention_k, Where::eight_experts, "Q8_0"},
    {Role::attention_out, Where::eight_experts, "Q5_K"},
    {Role::down, Where::first_eighth, "Q5_K"},
};
constexpr Rule kQ4KM[] = {
    {Role::output, Where::all, "Q6_K"},
    {Role::attention_v, Where::grouped_80, "Q5_K"},
    {Role::attention_v, Where::more_bits, "Q6_K"},
    {Role::attention_v, Where::eight_experts, "Q8_0"},
    {Role::attention_k, Where::eight_experts, "Q8_0"},
    {Role::attention_qkv, Where::all, "Q5_K"},
    {Role::attention_out, Where::eight_experts, "Q5_K"},
    {Role::down, Where::more_bits, "Q6_K"},
};
constexpr Rule kQ5KS[] = {
    {Role::output, Where::all, "Q6_K"},
    {Role::attention_v, Where::eight_experts, "Q8_0"},
    {Role::attention_k, Where::eight_experts, "Q8_0"},
};
constexpr Rule kQ5KM[] = {
    {Role::output, Where::all, "Q6_K"},
    {Role::attention_v, Where::more_bits, "Q6_K"},
    {Role::attention_v, Where::eight_experts, "Q8_0"},
    {Role::attention_k, Where::eight_experts, "Q8_0"},
    {Role::attention_qkv, Where::all, "Q6_K"},
    {Role::down, Where::more_bits, "Q6_K"},
};
constexpr Rule kQ6K[] = {
    {Role::attention_v, Where::eight_experts, "Q8_0"},
    {Role::attention_k, Where::eight_experts, "Q8_0"},
};
constexpr Recipe kRecipes[] = {
    {"q3_k_m", "Q3_K", kQ3KM}, {"q4_k_s", "Q4_K", kQ4KS}, {"q4_k_m", "Q4_K", kQ4KM},
    {"q5_k_s", "Q5_K", kQ5KS}, {"q5_k_m", "Q5_K", kQ5KM}, {"q6_k", "Q6_K", kQ6K},
    {"q8_0", "Q8_0", {}},
};

/// What takes the place of a type whose blocks of 256 do not fill the rows.
constexpr struct {
  const char *type, *instead;
} kNarrow[] = {{"Q3_K", "IQ4_NL"}, {"Q4_K", "Q5_0"}, {"Q5_K", "Q5_1"}, {"Q6_K", "Q8_0"}};

const Recipe* find_recipe(std::string_view name) {
  const auto at = std::find_if(std::begin(kRecipes), std::end(kRecipes),
                               [&](const Recipe& recipe) { return is_name(name, recipe.name); });
  return at == std::end(kRecipes) ? nullptr : at;
}

/// The number of a layer's block: the first part of its name that is one, else 0.
int64_t block_of(std::string_view name) {
  while (!name.empty()) {
    const size_t dot = std::min(name.find('.'), name.size());
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + dot, number);
    if (error == std::errc() && end == name.data() + dot) return number;
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return 0;
}

/// The layers of one role, in the order of their blocks.
std::vector<size_t> layers_of_role(Role role, const std::vector<marlin_layer_info>& layers) {
  std::vector<size_t> found;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool has = std::any_of(std::begin(kRoles), std::end(kRoles), [&](const RoleName& name) {
      return name.role == role && fits(name.pattern, layers[i].name);
    });
    if (has) found.push_back(i);
  }
  std::stable_sort(found.begin(), found.end(), [&](size_t a, size_t b) {
    return block_of(layers[a].name) < block_of(layers[b].name);
  });
  return found;
}

/// Whether a rule is for layer number i of the n layers of its role.
bool applies(Where where, size_t i, size_t n, const marlin_layer_info& layer, bool eight_experts) {
  switch (where) {
    case Where::more_bits:
      return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case Where::first_eighth:
      return i < n / 8;
    case Where::first_sixteenth:
      return i < n / 16;
    case Where::first_two:
      return i < 2;
    case Where::first_four:
      return i < 4;
    case Where::grouped_80:
      return n == 80 && layer.n < layer.k;
    case Where::eight_experts:
      return eight_experts;
    default:
      return true;
  }
}

const char* type_that_fits(const char* type, int64_t k) {
  if (k % 32 != 0) return nullptr;
  if (k % 256 == 0) return type;
  for (const auto& narrow : kNarrow) {
    if (std::strcmp(type, narrow.type) == 0) return narrow.instead;
  }
  return type;
}

}  // namespace

bool is_recipe(std::string_view name) { return find_recipe(name) != nullptr; }

std::string recipe_names() {
  std::vector<const char*> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<const char*> recipe_types(std::string_view name,
                                      const std::vector<marlin_layer_info>& layers) {
  const Recipe* recipe = find_recipe(name);
  if (recipe == nullptr) throw Failure(fmt::format("no recipe is called '{}'", name));
  std::vector<const char*> types(layers.size(), recipe->base);
  const bool eight_experts = std::any_of(layers.begin(), layers.end(),
                                         [](const auto& layer) { return layer.experts == 8; });
  for (const Rule& rule : recipe->rules) {
    std::vector<size_t> found = layers_of_role(rule.role, layers);
    // A model without an output layer uses its embeddings as one.
    if (rule.role == Role::output && found.empty())
      found = layers_of_role(Role::embeddings, layers);
    for (size_t i = 0; i < found.size(); ++i) {
      if (applies(rule.where, i, found.size(), layers[found[i]], eight_experts))
        types[found[i]] = rule.type;
    }
  }
  for (size_t i = 0; i < layers.size(); ++i) types[i] = type_that_fits(types[i], layers[i].k);
  return types;
}

}  // namespace metal_marlin::tools
