#include "shape_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <tuple>

#include "command.h"
#include "notes.h"
#include "wildcards.h"

namespace metal_marlin::tools {

void ShapeOptions::add_to(CLI::App& app, bool several) {
  several_ = several;
  const auto sizes = in_range(int64_t{1}, int64_t{1} << 24);
  auto* n = app.add_option("-n,--n", n_, "Rows of the weights (out features)")
                ->capture_default_str()
                ->check(sizes);
  auto* k = app.add_option("-k,--k", k_, "Columns of the weights (in features)")
                ->capture_default_str()
                ->check(sizes);
  auto* format = app.add_option("--format", formats_,
                                several ? "Formats and types of GGUF's blocks, a list; default: "
                                          "int4, fp4, mxfp4, nvfp4, int8"
                                        : "A format or a type of GGUF's blocks; default: int4");
  format->check(names_of(parse_weight_type, "{" + weight_types() + "}"));
  if (several) {
    format->delimiter(',');
  } else {
    format->expected(1);
  }
  app.add_option("--group", group_,
                 "Weights that share a scale; default: the format's own, as 32 (nvfp4: 16)");
  auto* zeros =
      app.add_option("--zeros", zeros_, "Zero points of int4 codes: none (8), integer, additive")
          ->capture_default_str()
          ->check(CLI::IsMember({"none", "integer", "additive"}));
  const std::vector<std::string> kinds = several ? std::vector<std::string>{"none", "2:4", "both"}
                                                 : std::vector<std::string>{"none", "2:4"};
  auto* sparse =
      app.add_option(
             "--sparse", sparse_,
             several
                 ? "2:4 for weights of which two in four are kept; both: raced against dense ones"
                 : "2:4 for weights of which two in four are kept")
          ->capture_default_str()
          ->check(CLI::IsMember(kinds));
  auto* file =
      app.add_option("--file", file_,
                     several
                         ? "Take the layers of this checkpoint, each kind once, instead of a shape"
                         : "Take a layer of this checkpoint instead of a shape")
          ->type_name(kFile);
  file->excludes(n)->excludes(k)->excludes(zeros)->excludes(sparse);
  if (several) {
    app.add_option("--experts", experts_,
                   "Weights of so many experts of N x K each, of which every row has --top-k")
        ->check(in_range(1, 1024))
        ->excludes(file);
  }
  app.add_option("--layer", layer_,
                 several ? "This layer of --file alone" : "The layer of --file; default: its first")
      ->needs(file);
  app.add_option("--expert", expert_, "The expert of a layer that has several")->needs(file);
}

namespace {

/// What layers have in common whose products take the same time.
auto kind_of(const marlin_layer_info& layer) {
  return std::tuple(layer.format, layer.format == MARLIN_FORMAT_NONE ? layer.dtype : 0, layer.n,
                    layer.k, layer.group_size, layer.flags, layer.experts);
}

/// Floats as they are.
WeightType floats_of(marlin_dtype dtype) {
  return {dtype == MARLIN_F32   ? MARLIN_FORMAT_FLOAT32
          : dtype == MARLIN_F16 ? MARLIN_FORMAT_FLOAT16
                                : MARLIN_FORMAT_BFLOAT16};
}

/// How many experts of a stack a token takes; 1 if the file does not say it.
uint64_t experts_of_a_token(const marlin_checkpoint* file) {
  const auto value_of = [&](const std::string& key) {
    auto value = make<marlin_value>();
    return marlin_checkpoint_value(file, key.c_str(), &value, nullptr) == MARLIN_OK
               ? value
               : make<marlin_value>();
  };
  const marlin_value architecture = value_of("general.architecture");
  std::vector<std::string> keys = {"num_experts_per_tok", "text_config.num_experts_per_tok",
                                   "moe_topk", "moe_k"};
  if (architecture.kind == MARLIN_VALUE_STRING)
    keys.push_back(std::string(static_cast<const char*>(architecture.data), architecture.bytes) +
                   ".expert_used_count");
  for (const std::string& key : keys)
    if (const uint64_t experts = value_of(key).u64; experts != 0) return experts;
  return 1;
}

bool is_named(const marlin_layer_info& layer, std::initializer_list<const char*> patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const char* pattern) { return fits(pattern, layer.name); });
}

}  // namespace

std::vector<Subject> ShapeOptions::subjects_of_file() const {
  const std::shared_ptr<marlin_checkpoint> file = open_checkpoint(file_);
  std::vector<WeightType> types;
  for (const std::string& name : formats_) types.push_back(known(parse_weight_type(name)));
  const auto all = layers_of(file.get());
  if (all.empty()) throw Failure(file_ + " has no layers");
  std::vector<Subject> subjects;
  if (!several_ || !layer_.empty()) {
    const auto layer = layer_.empty() ? all.front() : find_layer(file.get(), layer_);
    if (types.empty() || layer.format != MARLIN_FORMAT_NONE) types = {WeightType{}};
    for (const WeightType& type : types) subjects.push_back({type, file, layer});
    return subjects;
  }
  // A table of embeddings is multiplied by if it is the output, too.
  const bool has_output = std::any_of(all.begin(), all.end(), [](const marlin_layer_info& layer) {
    return is_named(layer, {"output.weight", "*lm_head*"});
  });
  std::map<decltype(kind_of(all[0])), std::pair<marlin_layer_info, uint64_t>> kinds;
  std::vector<decltype(kind_of(all[0]))> order;
  size_t unread = 0;
  for (const marlin_layer_info& layer : all) {
    if (layer.status != MARLIN_OK) {
      ++unread;
      continue;
    }
    if (has_output && is_named(layer, {"*embd*", "*embed*", "*wte"})) continue;
    auto& [first, count] = kinds[kind_of(layer)];
    if (count++ > 0) continue;
    first = layer;
    order.push_back(kind_of(layer));
  }
  note_left_out(unread);
  if (order.empty())
    throw Failure(file_ + " has no layer that loads; 'metal-marlin inspect' says why");
  const uint64_t experts = experts_of_a_token(file.get());
  for (const auto& kind : order) {
    const auto& [layer, count] = kinds[kind];
    const bool floats = layer.format == MARLIN_FORMAT_NONE;
    const auto own = {floats ? floats_of(layer.dtype) : WeightType{}};
    for (const WeightType& type : floats && !types.empty() ? types : std::vector<WeightType>(own))
      subjects.push_back({type, file, layer, layer.experts > 1 ? count * experts : count});
  }
  return subjects;
}

std::vector<Subject> ShapeOptions::subjects() const {
  if (!file_.empty()) return subjects_of_file();
  std::vector<Subject> subjects;
  for (const std::string& name : formats_) subjects.push_back({known(parse_weight_type(name))});
  if (subjects.empty())
    for (const marlin_format format : measured_formats()) subjects.push_back({{format}});
  return subjects;
}

std::vector<bool> ShapeOptions::sparsities(const WeightType& type) const {
  if (sparse_ == "2:4") return {true};
  const bool has_form = type.block == nullptr && has_sparse_form(type.format);
  if (sparse_ == "both" && has_form) return {false, true};
  return {false};
}

std::function<Weights()> ShapeOptions::make(marlin_context* context, const Subject& subject,
                                            bool sparse) const {
  const WeightType& type = subject.type;
  if (subject.file == nullptr) {
    const bool int4 = type.format == MARLIN_FORMAT_INT4 && type.block == nullptr;
    const Zeros zeros = !int4 || zeros_ == "none" ? Zeros::none
                        : zeros_ == "integer"     ? Zeros::integer
                                                  : Zeros::additive;
    const auto random =
        std::make_shared<RandomWeights>(WeightShape{type.format, n_, k_, group_, zeros, sparse,
                                                    std::max<int64_t>(experts_, 1), type.block},
                                        1);
    return [random, context] { return random->pack(context); };
  }
  const marlin_layer_info layer = subject.layer;
  if (const std::string why = why_not(context, subject.file.get(), layer); !why.empty())
    throw Failure(std::string("'") + layer.name + "' is not read: " + why);
  if (layer.format == MARLIN_FORMAT_NONE && type.format == MARLIN_FORMAT_NONE) {
    throw Failure(std::string("'") + layer.name +
                  "' is not quantized; --format says what to quantize it to");
  }
  if (type.block != nullptr)
    throw Failure(fmt::format("--format {}: layers of a file are quantized to a format, such as {}",
                              weight_type_name(type), format_name(type.format)),
                  ExitCode::usage);
  return [=, this, file = subject.file] {
    return load(context, file.get(), layer, expert_, Quantize{type.format, group_});
  };
}

}  // namespace metal_marlin::tools
