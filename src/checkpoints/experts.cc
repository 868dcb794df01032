#include "checkpoints/experts.h"

#include <algorithm>
#include <cinttypes>
#include <string>
#include <tuple>

#include "base/bits.h"
#include "checkpoints/tensor_table.h"
#include "checkpoints/value_table.h"

namespace metal_marlin {
namespace {

/// "a.experts.12.b": before "a.experts", after "b".
struct ExpertName {
  std::string_view before, after;
  uint32_t number = 0;
};

/// The parts of a name whose last "experts" is followed by a number.
std::optional<ExpertName> parse_expert_name(std::string_view name) {
  constexpr std::string_view kWord = "experts.";
  for (size_t at = name.rfind(kWord); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : name.rfind(kWord, at - 1)) {
    if (at != 0 && name[at - 1] != '.') continue;
    const size_t digits = at + kWord.size();
    size_t end = digits;
    uint32_t number = 0;
    for (; end < name.size() && end < digits + 9 && name[end] >= '0' && name[end] <= '9'; ++end)
      number = number * 10 + static_cast<uint32_t>(name[end] - '0');
    if (end == digits || end + 1 >= name.size() || name[end] != '.') continue;
    return ExpertName{name.substr(0, digits - 1), name.substr(end + 1), number};
  }
  return std::nullopt;
}

/// Experts of one layer must agree in all of this.
auto kind_of(const Layer& layer) {
  return std::tie(layer.n, layer.k, layer.group_size, layer.format, layer.layout, layer.flags,
                  layer.dtype);
}

/// The rows of the router beside "a.experts", which has one for each expert; nothing without one.
std::optional<uint64_t> experts_of_router(const TensorTable& tensors, std::string_view experts) {
  const size_t dot = experts.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  for (const char* router : {"gate.weight", "router.weight"}) {
    const TensorView view = tensors.view(std::string(experts.substr(0, dot + 1)) + router);
    if (view.dims.size() == 2) return static_cast<uint64_t>(view.dims[0]);
  }
  return std::nullopt;
}

/// Says that the files and config.json differ in the number of experts.
class WarnedSource final : public WrappedSource {
 public:
  WarnedSource(std::unique_ptr<WeightSource> source, std::string warning)
      : WrappedSource(std::move(source)) {
    if (warning_.empty()) warning_ = std::move(warning);
  }
};

/// The number of experts that config.json gives, or nothing.
std::optional<uint64_t> experts_of_config(const ValueTable& values) {
  for (const char* inside : {"", "text_config."}) {
    for (const char* name : {"num_experts", "n_routed_experts", "num_local_experts"}) {
      const auto index = values.find(std::string(inside) + name);
      if (!index) continue;
      const auto value = values.at(*index);
      if (!value.ok()) continue;
      if (value.value().type != gguf::kI64 || value.value().data.size() != 8) continue;
      const auto count = load<int64_t>(value.value().data.data());
      if (count >= 0) return static_cast<uint64_t>(count);
    }
  }
  return std::nullopt;
}

/// Its layers are the gathered layers and all others, each at the place of its first tensor. The
/// indices from layer_count() on are the experts alone: find_layer() gives them for their names.
class GatheredCheckpoint final : public Checkpoint {
 public:
  explicit GatheredCheckpoint(std::unique_ptr<Checkpoint> singles) : singles_(std::move(singles)) {
    if (!singles_->origin().is_gguf) expected_ = experts_of_config(singles_->values());
    find_groups();
    if (has_groups()) list_layers();
  }

  bool has_groups() const { return !groups_.empty(); }
  std::unique_ptr<Checkpoint> take_singles() { return std::move(singles_); }

  size_t layer_count() const override { return listed_.size(); }

  Layer layer(size_t index) const override {
    const Group* group = group_of(index);
    if (group == nullptr) return singles_->layer(single_of(index));
    Layer all = singles_->layer(group->common.shown);
    if (group->common.failed != kNone) all.status = singles_->layer(group->common.failed).status;
    if (group->faulty) all.status = check_numbers(*group);
    all.bytes = group->common.bytes;
    all.name = name_of(*group);
    all.experts = group->count;
    return all;
  }

  const char* layer_name(size_t index) const override {
    const Group* group = group_of(index);
    return group != nullptr ? name_of(*group) : singles_->layer_name(single_of(index));
  }

  std::optional<size_t> find_layer(std::string_view name) const override {
    const auto at = std::lower_bound(
        groups_.begin(), groups_.end(), name,
        [&](const Group& g, std::string_view text) { return std::string_view(name_of(g)) < text; });
    if (at != groups_.end() && name_of(*at) == name) return at->place;
    const auto single = singles_->find_layer(name);
    if (!single) return std::nullopt;
    const auto place =
        std::lower_bound(listed_.begin(), listed_.end(), *single,
                         [&](uint32_t entry, size_t s) { return first_of(entry) < s; });
    if (place != listed_.end() && *place == *single)
      return static_cast<size_t>(place - listed_.begin());
    return listed_.size() + *single;
  }

  Result<TensorView> tensor(std::string_view name) const override { return singles_->tensor(name); }
  const TensorTable& tensors() const override { return singles_->tensors(); }
  const Origin& origin() const override { return singles_->origin(); }
  const ValueTable& values() const override { return singles_->values(); }
  bool has_read(const FileId& file) const override { return singles_->has_read(file); }
  void release(std::span<const std::byte> part) const override { singles_->release(part); }
  const Checkpoint& singles() const override { return *singles_; }

  std::vector<size_t> singles_of(size_t index) const override {
    const Group* group = group_of(index);
    if (group == nullptr) return {single_of(index)};
    const std::span<const uint32_t> members = members_of(*group);
    return {members.begin(), members.end()};
  }

  std::vector<TensorView> parts(size_t index) const override {
    std::vector<TensorView> all;
    for (const size_t single : singles_of(index)) {
      const std::vector<TensorView> some = singles_->parts(single);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  Result<std::unique_ptr<WeightSource>> source(size_t index, uint32_t expert,
                                               const SourceOptions& options) const override {
    const Group* group = group_of(index);
    if (group == nullptr) return singles_->source(single_of(index), expert, options);
    if (group->faulty) MARLIN_RETURN_IF_ERROR(check_numbers(*group));
    if (expert < group->count) {
      MARLIN_ASSIGN(auto source, singles_->source(members_of(*group)[expert], 0, options));
      if (expert != 0 || !expected_ || *expected_ == group->count) return source;
      return std::unique_ptr<WeightSource>(std::make_unique<WarnedSource>(
          std::move(source), "config.json says " + std::to_string(*expected_) +
                                 " experts, and the files have " + std::to_string(group->count)));
    }
    return Status::error(MARLIN_E_ARGUMENT, "layer '%.120s': expert: expected 0..%u, found %u",
                         name_of(*group), group->count - 1, expert);
  }

 private:
  static constexpr uint32_t kGroup = 1u << 31;  // a bit of `listed_`: the rest is a group's number
  static constexpr uint32_t kNone = UINT32_MAX;

  /// What the experts of one layer have in common. They are described once: a host may ask for
  /// the layer as often as it has experts.
  struct Common {
    uint64_t bytes = 0;       // of all
    uint32_t shown = kNone;   // the first that can be read, or the first
    uint32_t failed = kNone;  // the first that cannot be read
  };
  /// Experts of one layer; their singles are members_[begin, begin + count), by number.
  struct Group {
    uint32_t begin, count;
    uint32_t first;      // of the members in the order of the file
    uint32_t place = 0;  // among the listed layers
    size_t name;         // among names_
    Common common{};
    uint32_t of_block = 0;  // most members of a group of the same experts
    bool faulty = false;    // the numbers are not 0, 1, ...
  };

  std::span<const uint32_t> members_of(const Group& group) const {
    return std::span(members_).subspan(group.begin, group.count);
  }
  const char* name_of(const Group& group) const { return names_.data() + group.name; }
  const Group* group_of(size_t index) const {
    if (index >= listed_.size() || (listed_[index] & kGroup) == 0) return nullptr;
    return &groups_[listed_[index] & ~kGroup];
  }
  size_t single_of(size_t index) const {
    return index < listed_.size() ? listed_[index] : index - listed_.size();
  }
  ExpertName parts_of_name(size_t single) const {
    return parse_expert_name(singles_->layer_name(single)).value_or(ExpertName{});
  }
  /// The first single of an entry of listed_, in the order of the file.
  size_t first_of(uint32_t entry) const {
    return (entry & kGroup) == 0 ? entry : groups_[entry & ~kGroup].first;
  }

  /// Sorts the singles that are experts, and makes groups of those that belong together.
  void find_groups() {
    size_t count = 0;
    const auto is_expert = [&](size_t i) {
      return parse_expert_name(singles_->layer_name(i)).has_value();
    };
    const size_t all = std::min<size_t>(singles_->layer_count(), kGroup - 1);
    for (size_t i = 0; i < all; ++i) count += is_expert(i) ? 1 : 0;
    members_.reserve(count);
    for (size_t i = 0; i < all; ++i) {
      if (is_expert(i)) members_.push_back(static_cast<uint32_t>(i));
    }
    std::sort(members_.begin(), members_.end(), [&](uint32_t a, uint32_t b) {
      const ExpertName x = parts_of_name(a), y = parts_of_name(b);
      return std::tie(x.before, x.after, x.number, a) < std::tie(y.before, y.after, y.number, b);
    });
    for (size_t begin = 0, end = 0; begin < members_.size(); begin = end) {
      const ExpertName name = parts_of_name(members_[begin]);
      for (end = begin + 1; end < members_.size(); ++end) {
        const ExpertName next = parts_of_name(members_[end]);
        if (next.before != name.before || next.after != name.after) break;
      }
      if (end - begin > 1) add_group(begin, end, name);
    }
    // Groups of the same experts, which stand together, have the same number of them.
    const auto before = [&](const Group& group) {
      return parts_of_name(members_[group.begin]).before;
    };
    for (size_t begin = 0, end = 0; begin < groups_.size(); begin = end) {
      uint32_t most = 0;
      for (end = begin; end < groups_.size() && before(groups_[end]) == before(groups_[begin]);
           ++end)
        most = std::max(most, groups_[end].count);
      for (size_t i = begin; i < end; ++i) {
        groups_[i].of_block = most;
        groups_[i].faulty = !check_numbers(groups_[i]).ok();
      }
    }
  }

  void add_group(size_t begin, size_t end, const ExpertName& name) {
    Group group{.begin = static_cast<uint32_t>(begin),
                .count = static_cast<uint32_t>(end - begin),
                .first = *std::min_element(members_.begin() + static_cast<std::ptrdiff_t>(begin),
                                           members_.begin() + static_cast<std::ptrdiff_t>(end)),
                .name = names_.size()};
    const auto common = describe(members_of(group));
    if (!common) return;
    group.common = *common;
    names_.insert(names_.end(), name.before.begin(), name.before.end());
    names_.push_back('.');
    names_.insert(names_.end(), name.after.begin(), name.after.end());
    names_.push_back('\0');
    groups_.push_back(group);
  }

  /// Nothing if the experts that can be read do not agree. The others are a fault of the whole
  /// layer.
  std::optional<Common> describe(std::span<const uint32_t> members) const {
    Common common{};
    std::optional<Layer> first;
    for (const uint32_t member : members) {
      Layer layer = singles_->layer(member);
      common.bytes += layer.bytes;
      if (!layer.status.ok()) {
        if (common.failed == kNone) common.failed = member;
        continue;
      }
      if (layer.experts != 1) return std::nullopt;
      if (!first) {
        common.shown = member;
        first = std::move(layer);
      } else if (kind_of(*first) != kind_of(layer)) {
        return std::nullopt;
      }
    }
    if (common.shown == kNone) common.shown = members[0];
    return common;
  }

  /// The numbers must be 0, 1, ... up to that of the router and of the other matrices of the
  /// experts. Pruned models have fewer in some layers, so config.json does not decide.
  Status check_numbers(const Group& group) const {
    const std::span<const uint32_t> members = members_of(group);
    const auto missing = [&](size_t number) {
      const ExpertName name = parts_of_name(members[0]);
      return Status::error(
          MARLIN_E_NOT_FOUND, "expert %zu: '%.*s.%zu.%.*s' is in none of the files", number,
          static_cast<int>(std::min<size_t>(name.before.size(), 100)), name.before.data(), number,
          static_cast<int>(std::min<size_t>(name.after.size(), 60)), name.after.data());
    };
    for (size_t i = 0; i < members.size(); ++i) {
      const uint32_t number = parts_of_name(members[i]).number;
      if (number == i) continue;
      if (number > i) return missing(i);
      return Status::error(
          MARLIN_E_FORMAT, "expert %u: expected it once in the files, found '%.100s' and '%.100s'",
          number, singles_->layer_name(members[i - 1]), singles_->layer_name(members[i]));
    }
    if (group.of_block > members.size()) return missing(members.size());
    const auto routed = experts_of_router(singles_->tensors(), parts_of_name(members[0]).before);
    if (!routed || *routed == members.size()) return {};
    if (*routed > members.size()) return missing(members.size());
    return Status::error(MARLIN_E_FORMAT,
                         "experts: expected %" PRIu64 " as the router has rows, found %zu", *routed,
                         members.size());
  }

  void list_layers() {
    const size_t all = singles_->layer_count();
    std::sort(groups_.begin(), groups_.end(), [&](const Group& a, const Group& b) {
      return std::string_view(name_of(a)) < std::string_view(name_of(b));
    });
    constexpr uint32_t kAlone = UINT32_MAX, kLater = UINT32_MAX - 1;
    std::vector<uint32_t> entry_of(all, kAlone);  // of the first member of each group
    size_t gathered = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const auto members = members_of(groups_[g]);
      for (const uint32_t member : members) entry_of[member] = kLater;
      entry_of[groups_[g].first] = static_cast<uint32_t>(g) | kGroup;
      gathered += members.size() - 1;
    }
    listed_.reserve(all - gathered);
    for (size_t i = 0; i < all; ++i) {
      if (entry_of[i] == kLater) continue;
      if (entry_of[i] != kAlone)
        groups_[entry_of[i] & ~kGroup].place = static_cast<uint32_t>(listed_.size());
      listed_.push_back(entry_of[i] == kAlone ? static_cast<uint32_t>(i) : entry_of[i]);
    }
  }

  std::unique_ptr<Checkpoint> singles_;
  std::optional<uint64_t> expected_;
  std::vector<uint32_t> members_;
  std::vector<Group> groups_;  // by name
  std::vector<char> names_;
  std::vector<uint32_t> listed_;  // the single, or kGroup and the group
};

}  // namespace

std::unique_ptr<Checkpoint> gather_experts(std::unique_ptr<Checkpoint> singles) {
  auto gathered = std::make_unique<GatheredCheckpoint>(std::move(singles));
  if (!gathered->has_groups()) return gathered->take_singles();
  return gathered;
}

}  // namespace metal_marlin
