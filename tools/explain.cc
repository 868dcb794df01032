// explain: names the kernel of a product, and the reason for the choice.
#include <fmt/core.h>

#include <vector>

#include "command.h"
#include "library.h"
#include "quantize_options.h"
#include "shape_options.h"
#include "workload.h"

namespace metal_marlin::tools {
namespace explain_command {
namespace {

struct Options {
  ShapeOptions shape;
  std::vector<int64_t> m = {1};
  std::string backend = "auto", compute = "default", dtype = "bf16";
};

ExitCode run(const Options& options) {
  const Context context = make_context({.backend = known(parse_backend(options.backend))});
  const Subject subject = options.shape.subjects().front();
  const Weights weights =
      options.shape.make(context.get(), subject, options.shape.sparsities(subject.type).front())();
  const marlin_layer_info info = info_of(weights.get());
  bool first = true;
  for (int64_t m : options.m) {
    const HostMatrix a(m, info.k, known(parse_activation_dtype(options.dtype))),
        c(m, info.n, MARLIN_F32);
    const std::string text =
        explain(product(weights.get(), a, c, m, known(parse_compute(options.compute))));
    fmt::print("{}M: {}\n{}", first ? "" : "\n", m, text);
    first = false;
  }
  return ExitCode::ok;
}

}  // namespace
}  // namespace explain_command

void add_explain(CLI::App& app, Action& action) {
  using namespace explain_command;
  auto* sub = app.add_subcommand("explain", "Say which kernel a product would take, and why");
  auto options = std::make_shared<Options>();
  options->shape.add_to(*sub, false);
  sub->add_option("--backend", options->backend,
                  "Where products run; auto: the first usable of cuda, metal, cpu")
      ->capture_default_str()
      ->check(backend_names());
  sub->add_option("-m", options->m, "Rows of activations, a list")
      ->delimiter(',')
      ->capture_default_str()
      ->check(in_range(int64_t{1}, int64_t{1} << 20));
  sub->add_option("--compute", options->compute, "default or int8")
      ->capture_default_str()
      ->check(compute_names());
  sub->add_option("--dtype", options->dtype, "Of the activations")
      ->capture_default_str()
      ->check(dtype_names());
  sub->footer(
      "Examples:\n"
      "  metal-marlin explain --format mxfp4 -n 11776 -k 4096 -m 1,8,512\n"
      "  metal-marlin explain --format int4 --group 128 --compute int8 -m 16\n"
      "  metal-marlin explain --format fp4 --sparse 2:4 --backend cpu\n"
      "  metal-marlin explain --file model.gguf --layer blk.0.ffn_down.weight");
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
