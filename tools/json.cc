#include "json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>

#include "printable.h"

namespace metal_marlin::tools {

/// Makes the library's value of ours: nlohmann::json, or ordered_json for output.
struct TreeMaker {
  template <class Tree>
  static Tree tree_of(const Json& json) {
    return std::visit([](const auto& value) { return made<Tree>(value); }, json.value_);
  }

 private:
  template <class Tree, class Scalar>
  static Tree made(const Scalar& value) {
    return value;
  }
  template <class Tree>
  static Tree made(const Json::Items& items) {
    Tree tree = Tree::array();
    for (const Json& item : items) tree.push_back(tree_of<Tree>(item));
    return tree;
  }
  template <class Tree>
  static Tree made(const Json::Members& members) {
    Tree tree = Tree::object();
    for (const auto& [key, value] : members) tree[key] = tree_of<Tree>(value);
    return tree;
  }
};

namespace {

using Ordered = nlohmann::ordered_json;

Json json_of(nlohmann::json& tree) {
  using Type = nlohmann::json::value_t;
  switch (tree.type()) {
    case Type::boolean:
      return tree.get<bool>();
    case Type::number_integer:
      return tree.get<int64_t>();
    case Type::number_unsigned:
      return tree.get<uint64_t>();
    case Type::number_float:
      return tree.get<double>();
    case Type::string:
      return std::move(tree.get_ref<std::string&>());
    case Type::array: {
      Json::Items items;
      for (nlohmann::json& item : tree) items.push_back(json_of(item));
      return items;
    }
    case Type::object: {
      Json::Members members;
      for (auto& [key, value] : tree.items()) members.emplace_back(key, json_of(value));
      return members;
    }
    default:
      return nullptr;
  }
}

bool is_member(const Json& pair) {
  return pair.is_array() && pair.size() == 2 && pair.items()[0].is_string();
}

}  // namespace

Json::Json(std::initializer_list<Json> list) {
  if (!std::all_of(list.begin(), list.end(), is_member)) {
    value_ = Items(list);
    return;
  }
  Members members;
  for (const Json& pair : list) members.emplace_back(pair.items()[0].text(), pair.items()[1]);
  value_ = std::move(members);
}

Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json Json::parse(std::string_view text) {
  nlohmann::json tree = nlohmann::json::parse(text, nullptr, false);
  return json_of(tree);
}

bool Json::for_each_key(std::string_view text, const std::function<void(const std::string&)>& use) {
  const auto see = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& key) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1) use(key.get_ref<std::string&>());
    return depth == 0;
  };
  return !nlohmann::json::parse(text, see, false).is_discarded();
}

double Json::number() const { return TreeMaker::tree_of<Ordered>(*this).get<double>(); }

int64_t Json::integer() const { return TreeMaker::tree_of<Ordered>(*this).get<int64_t>(); }

size_t Json::size() const { return is_object() ? members().size() : items().size(); }

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const auto& all = members();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& m) { return m.first == key; });
  return found == all.end() ? nullptr : &found->second;
}

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) throw std::out_of_range("JSON: no member " + std::string(key));
  return *found;
}

Json& Json::operator[](std::string_view key) {
  if (const Json* found = find(key)) return const_cast<Json&>(*found);
  if (std::holds_alternative<std::nullptr_t>(value_)) value_ = Members();
  return std::get<Members>(value_).emplace_back(key, nullptr).second;
}

void Json::push_back(Json item) {
  if (std::holds_alternative<std::nullptr_t>(value_)) value_ = Items();
  std::get<Items>(value_).push_back(std::move(item));
}

std::string Json::dump() const { return TreeMaker::tree_of<Ordered>(*this).dump(); }

bool operator==(const Json& a, const Json& b) {
  return TreeMaker::tree_of<nlohmann::json>(a) == TreeMaker::tree_of<nlohmann::json>(b);
}

std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.dump(); }

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string json_text(const Json& json, int indent) {
  // The remaining characters to escape are inside strings, where \u202e means the same character.
  // Newlines belong to the indentation.
  return printable(
      TreeMaker::tree_of<Ordered>(json).dump(indent, ' ', false, Ordered::error_handler_t::replace),
      true);
}

}  // namespace metal_marlin::tools
