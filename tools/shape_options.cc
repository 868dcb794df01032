#include "shape_options.h"

#include <algorithm>
#include <memory>

#include "command.h"

namespace metal_marlin::tools {

void ShapeOptions::add_to(CLI::App& app, bool several) {
  const auto sizes = in_range(int64_t{1}, int64_t{1} << 24);
  auto* n = app.add_option("-n,--n", n_, "Rows of the weights (out features)")
                ->capture_default_str()
                ->check(sizes);
  auto* k = app.add_option("-k,--k", k_, "Columns of the weights (in features)")
                ->capture_default_str()
                ->check(sizes);
  auto* format = app.add_option("--format", formats_,
                                several ? "Formats, a list; default: all" : "Default: int4");
  format->check(format_names());
  if (several) {
    format->delimiter(',');
  } else {
    format->expected(1);
  }
  app.add_option("--group", group_,
                 "Weights that share a scale; default: the format's own, 32 (nvfp4: 16)");
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
  auto* file = app.add_option("--file", file_, "Take a layer of this checkpoint instead of a shape")
                   ->type_name(kFile);
  file->excludes(n)->excludes(k)->excludes(zeros)->excludes(sparse);
  if (several) {
    app.add_option("--experts", experts_,
                   "Weights of so many experts of N x K each, of which every row has --top-k")
        ->check(in_range(1, 1024))
        ->excludes(file);
  }
  app.add_option("--layer", layer_, "The layer of --file; default: its first")->needs(file);
  app.add_option("--expert", expert_, "The expert of a layer that has several")->needs(file);
}

std::vector<marlin_format> ShapeOptions::formats() const {
  std::vector<marlin_format> formats;
  formats.reserve(formats_.size());
  for (const std::string& name : formats_) formats.push_back(known(parse_format(name)));
  if (!formats.empty()) return formats;
  if (!file_.empty()) return {MARLIN_FORMAT_NONE};
  return {measured_formats().begin(), measured_formats().end()};
}

std::vector<bool> ShapeOptions::sparsities(marlin_format format) const {
  if (sparse_ == "2:4") return {true};
  // Codes of other widths are always dense.
  if (sparse_ == "both" && code_bits(format) == 4) return {false, true};
  return {false};
}

InputFiles ShapeOptions::inputs() const {
  InputFiles inputs;
  if (!file_.empty()) inputs.add_checkpoint(file_);
  return inputs;
}

std::function<Weights()> ShapeOptions::make(marlin_context* context, marlin_format format,
                                            bool sparse) const {
  if (file_.empty()) {
    const bool int4 = format == MARLIN_INT4;
    const Zeros zeros = !int4 || zeros_ == "none" ? Zeros::none
                        : zeros_ == "integer"     ? Zeros::integer
                                                  : Zeros::additive;
    const auto random = std::make_shared<RandomWeights>(
        WeightShape{format, n_, k_, group_, zeros, sparse, std::max<int64_t>(experts_, 1)}, 1);
    return [random, context] { return random->pack(context); };
  }
  const std::shared_ptr<marlin_checkpoint> checkpoint = open_checkpoint(file_);
  const auto all = layers_of(checkpoint.get());
  if (all.empty()) throw Failure(file_ + " has no layers");
  const marlin_layer_info layer =
      layer_.empty() ? all.front() : find_layer(checkpoint.get(), layer_);
  if (const std::string why = why_not(context, checkpoint.get(), layer); !why.empty())
    throw Failure(std::string("'") + layer.name + "' is not read: " + why);
  if (layer.format == MARLIN_FORMAT_NONE && format == MARLIN_FORMAT_NONE) {
    throw Failure(std::string("'") + layer.name +
                  "' is not quantized; --format says what to quantize it to");
  }
  return [=, this] {
    return load(context, checkpoint.get(), layer, expert_, Quantize{format, group_});
  };
}

}  // namespace metal_marlin::tools
