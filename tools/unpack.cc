// unpack: writes the true values of layers as float32 tensors to a .safetensors file.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include "base/utf8.h"
#include "command.h"
#include "library.h"
#include "output_file.h"
#include "printable.h"
#include "progress.h"
#include "quantize_options.h"
#include "safetensors_writer.h"
#include "sparse_floats.h"

namespace metal_marlin::tools {
namespace unpack_command {
namespace {

struct Options {
  std::string path, output, layer;
  QuantizeOptions quantize;
  bool force = false;
};

void leave_out(const marlin_layer_info& layer, const std::string& why) {
  fmt::print(stderr, "metal-marlin: left out '{}': {}\n", printable(layer.name), printable(why));
}

/// The layers to write. Layers that must be left out are named on stderr; *missing counts the
/// layers that should have been written.
std::vector<marlin_layer_info> choose(marlin_context* context, const marlin_checkpoint* checkpoint,
                                      const Options& options, int* missing) {
  if (!options.layer.empty()) {
    const marlin_layer_info layer = find_layer(checkpoint, options.layer);
    const std::string why = why_not(context, checkpoint, layer);
    if (!why.empty())
      throw Failure(fmt::format("cannot load '{}': {}", printable(layer.name), printable(why)));
    return {layer};
  }
  std::vector<marlin_layer_info> chosen;
  for (const marlin_layer_info& layer : layers_of(checkpoint)) {
    std::string why = why_not(context, checkpoint, layer);
    if (why.empty() && !is_utf8(layer.name))
      why = "its name is no UTF-8, as the names of .safetensors are";
    if (!why.empty()) {
      leave_out(layer, why);
      ++*missing;
    } else {
      chosen.push_back(layer);
    }
  }
  if (chosen.empty()) throw Failure(fmt::format("{} has no layer to unpack", options.path));
  return chosen;
}

std::vector<SafetensorsWriter::Tensor> tensors_of(const std::vector<marlin_layer_info>& layers) {
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const auto& layer : layers) {
    std::vector<int64_t> shape = {layer.n, layer.k};
    if (layer.experts > 1) shape.insert(shape.begin(), layer.experts);
    tensors.push_back({layer.name, shape});
  }
  return tensors;
}

/// Fills rows [first, first + count) of one expert.
using RowReader = std::function<void(int64_t first, int64_t count, float* out)>;

/// 2:4 sparse floats, which are not packed as they are, come from the file; all other layers are
/// packed and unpacked.
RowReader reader_of(marlin_context* context, const marlin_checkpoint* checkpoint,
                    const marlin_layer_info& layer, uint32_t expert, const Quantize& quantize) {
  const bool sparse = (layer.flags & MARLIN_LAYER_SPARSE_2_4) != 0;
  if (layer.format == MARLIN_FORMAT_NONE && quantize.format == MARLIN_FORMAT_NONE && sparse) {
    return [floats = SparseFloats(checkpoint, layer)](int64_t first, int64_t count, float* out) {
      floats.read(first, count, out);
    };
  }
  const std::shared_ptr<marlin_weights> weights =
      load(context, checkpoint, layer, expert, quantize);
  return [weights, k = layer.k](int64_t first, int64_t count, float* out) {
    unpack_rows(weights.get(), first, count, k, out);
  };
}

using UseValues = std::function<void(const std::vector<float>&)>;

/// Gives `use` the values of a layer, some rows at a time. Returns why it does not load, or "".
std::string read_layer(marlin_context* context, const marlin_checkpoint* checkpoint,
                       const marlin_layer_info& layer, const Quantize& quantize,
                       const UseValues& use) {
  // About 16 MB at a time, so that memory holds little more than one packed expert.
  const int64_t stripe = rows_of_stripe(layer.k);
  std::vector<float> values;
  for (uint32_t expert = 0; expert < layer.experts; ++expert) {
    RowReader read;
    for (int64_t row = 0; row < layer.n; row += stripe) {
      const int64_t count = std::min(stripe, layer.n - row);
      values.resize(static_cast<size_t>(count * layer.k));
      try {
        if (!read) read = reader_of(context, checkpoint, layer, expert, quantize);
        read(row, count, values.data());
      } catch (const Failure& failure) {
        return failure.what();
      }
      use(values);
    }
  }
  return "";
}

using ReadLayer = std::function<std::string(const marlin_layer_info&, const UseValues&)>;

/// Writes the file. Returns the index of the first layer that does not load, with the reason in
/// *why; the number of layers if all do, and there is no file otherwise.
size_t write_layers(OutputFile& output, const std::vector<marlin_layer_info>& layers,
                    const ReadLayer& read, std::string* why) {
  SafetensorsWriter writer(output, tensors_of(layers));
  double total = 0, done = 0;
  for (const auto& layer : layers) total += static_cast<double>(layer.n * layer.k) * layer.experts;
  Progress progress("unpacking", total);
  for (size_t i = 0; i < layers.size(); ++i) {
    *why = read(layers[i], [&](const std::vector<float>& values) {
      writer.write(values.data(), values.size());
      done += static_cast<double>(values.size());
      progress.at(done, layers[i].name);
    });
    if (!why->empty()) return i;
  }
  writer.commit();
  return layers.size();
}

ExitCode run(const Options& options) {
  const Checkpoint checkpoint = open_checkpoint(options.path);
  const Context context = make_context({.backend = MARLIN_BACKEND_CPU});
  int missing = 0;
  auto layers = choose(context.get(), checkpoint.get(), options, &missing);
  InputFiles inputs;
  inputs.add_checkpoint(options.path);
  const ReadLayer read = [&](const marlin_layer_info& layer, const UseValues& use) {
    return read_layer(context.get(), checkpoint.get(), layer, options.quantize.get(), use);
  };
  for (;;) {
    OutputFile output(options.output, options.force, inputs);
    std::string why;
    const size_t bad = write_layers(output, layers, read, &why);
    if (bad == layers.size()) return missing ? ExitCode::wrong : ExitCode::ok;
    if (!options.layer.empty()) throw Failure(why);
    // The header had promised this layer. Before another is written, all others are read.
    const auto is_left_out = [&, first = &layers[bad]](const marlin_layer_info& layer) {
      if (&layer != first) why = read(layer, [](const std::vector<float>&) {});
      if (why.empty()) return false;
      leave_out(layer, why);
      ++missing;
      return true;
    };
    std::vector<marlin_layer_info> good(layers.begin(),
                                        layers.begin() + static_cast<ptrdiff_t>(bad));
    std::copy_if(layers.begin() + static_cast<ptrdiff_t>(bad), layers.end(),
                 std::back_inserter(good), std::not_fn(is_left_out));
    if (good.empty()) throw Failure(fmt::format("{} has no layer to unpack", options.path));
    layers = std::move(good);
  }
}

}  // namespace
}  // namespace unpack_command

void add_unpack(CLI::App& app, Action& action) {
  using namespace unpack_command;
  auto* sub = app.add_subcommand("unpack",
                                 "Write the true float32 values of layers to a .safetensors file");
  auto options = std::make_shared<Options>();
  sub->add_option("FILE", options->path, kCheckpointFile)->required();
  add_output(*sub, options->output);
  sub->add_option("--layer", options->layer, "This layer only; default: all");
  options->quantize.add_to(*sub);
  add_force(*sub, options->force);
  sub->footer(
      "Each layer becomes a float32 tensor [N, K], or [experts, N, K], under its own name: the "
      "exact value of every\n"
      "weight, rounded once. The file appears when it is complete, and never in place of one of "
      "the input's.\n"
      "Layers of floats are written as they are, or with --format as that format's values of them. "
      "Layers that do not\n"
      "load are left out with a note, and the command then exits with 1.\n\n"
      "Examples:\n"
      "  metal-marlin unpack model.gguf -o values.safetensors\n"
      "  metal-marlin unpack DIR --layer model.layers.0.mlp.down_proj -o down.safetensors\n"
      "  metal-marlin unpack float-model --format mxfp4 -o quantized.safetensors");
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
