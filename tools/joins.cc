#include "joins.h"

#include <algorithm>
#include <map>
#include <utility>

namespace metal_marlin::tools {

std::string_view role_of(std::string_view layer) {
  constexpr std::string_view kWeight = ".weight";
  if (layer.ends_with(kWeight)) layer.remove_suffix(kWeight.size());
  return layer.substr(layer.rfind('.') + 1);
}

JoinLists join_lists(const std::vector<std::string>& words) {
  JoinLists lists;
  for (const std::string& word : words) {
    std::vector<std::string>& roles = lists.emplace_back();
    size_t begin = 0;
    for (size_t plus = word.find('+'); plus != std::string::npos; plus = word.find('+', begin)) {
      roles.push_back(word.substr(begin, plus - begin));
      begin = plus + 1;
    }
    roles.push_back(word.substr(begin));
  }
  return lists;
}

std::vector<std::vector<size_t>> join(size_t count,
                                      const std::function<std::string_view(size_t)>& name,
                                      const JoinLists& lists,
                                      const std::function<bool(const std::vector<size_t>&)>& fit) {
  using Split = std::pair<std::string_view, std::string_view>;  // what is before the role, the role
  const auto split_of = [&](size_t i) {
    const std::string_view all = name(i), role = role_of(all);
    return Split(all.substr(0, static_cast<size_t>(role.data() - all.data())), role);
  };
  std::map<Split, size_t> places;
  for (size_t i = 0; i < count; ++i) places.try_emplace(split_of(i), i);
  std::vector<bool> taken(count);
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < count; ++i) {
    if (taken[i]) continue;
    std::vector<size_t> members = {i};
    const auto [before, own] = split_of(i);
    for (const std::vector<std::string>& roles : lists) {
      if (std::find(roles.begin(), roles.end(), own) == roles.end()) continue;
      std::vector<size_t> found;
      for (const std::string& role : roles)
        if (const auto at = places.find({before, role}); at != places.end())
          found.push_back(at->second);
      if (found.size() == roles.size() && fit(found)) members = found;
    }
    for (const size_t member : members) taken[member] = true;
    groups.push_back(members);
  }
  return groups;
}

}  // namespace metal_marlin::tools
