// Times the CUDA backend: products of quantized weights beside cuBLAS's of 16-bit weights and a kernel that only reads as many
// bytes; a decoder's step; mixtures of experts. Prints a table, and checks what it times. No test: what it says depends on the
// machine. --help says more.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "timing_modes.h"
#include "timing_operands.h"

namespace {

using namespace timing;

/// Those of a table whose names are in the list.
template <class Entry, size_t kCount>
std::vector<const Entry*> named(const Entry (&table)[kCount], const std::vector<std::string>& names) {
  std::vector<const Entry*> chosen;
  for (const std::string& name : names)
    chosen.push_back(std::find_if(std::begin(table), std::end(table), [&](const Entry& entry) { return entry.name == name; }));
  return chosen;
}
template <class Entry, size_t kCount>
std::vector<std::string> names_of(const Entry (&table)[kCount]) {
  std::vector<std::string> names;
  for (const Entry& entry : table) names.emplace_back(entry.name);
  return names;
}

/// What the command line has as words.
struct Words {
  std::vector<std::string> shapes = names_of(kShapes), formats = {"mxfp4"};
  std::string activations = "bf16", compute = "default";
};

/// A list with commas between; what follows is no part of it.
CLI::Option* as_list(CLI::Option* option) { return option->delimiter(',')->allow_extra_args(false); }

void add_common(CLI::App& app, Options& options, Words& words) {
  app.add_option("READ_FLOOR.fatbin", options.read_floor, "the kernel that only reads, as the build makes it")
      ->required()
      ->check(CLI::ExistingFile);
  as_list(
      app.add_option("--rows", options.rows,
                     "M, or tokens, with commas between (1,8,16,64,128,256,512,2048; with --decoder 1,2,4,8,16,64,512; with "
                     "--experts powers of two up to 512)"))
      ->check(CLI::Range(1, 4096));
  as_list(app.add_option("--formats", words.formats, "of the weights, with commas between"))
      ->check(CLI::IsMember(names_of(kFormats)))
      ->capture_default_str();
  app.add_option("--activations", words.activations, "and results; cuBLAS's weights, too")
      ->check(CLI::IsMember({"bf16", "f16"}))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "in which each graph is replayed once")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--cublas", options.cublas, "a folder to look for libcublas.so in; may be given several times")
      ->allow_extra_args(false)
      ->check(CLI::ExistingDirectory);
  app.add_option("--json", options.json, "a file for one JSON record a line of the table");
}

void add_modes(CLI::App& app, Options& options, Words& words) {
  auto* const shapes =
      as_list(app.add_option("--shapes", words.shapes, "of these, with commas between; lm_head has up to 8 rows"))
          ->check(CLI::IsMember(names_of(kShapes)))
          ->capture_default_str();
  auto* const compute = app.add_option("--compute", words.compute,
                                       "of single products; fp8 is for FP4 and FP8 weights, and int8-128 and int8-row have "
                                       "longer groups of activations")
                            ->check(CLI::IsMember(names_of(kComputes)))
                            ->capture_default_str();
  auto* const decoder = app.add_flag("--decoder", options.decoder,
                                     "instead of single products: all products of a decoder of 7 B weights in one graph")
                            ->excludes(shapes)
                            ->excludes(compute);
  app.add_flag("--dense", options.dense, "cuBLAS as such a decoder, too, whose weights take 13 GB")->needs(decoder);
  auto* const experts = app.add_flag("--experts", options.experts, "instead of single products: mixtures of experts")
                            ->excludes(shapes)
                            ->excludes(compute)
                            ->excludes(decoder);
  app.add_option("--expert-count", options.expert_count, "experts of a product")
      ->needs(experts)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--top-k", options.top_k, "experts of a token")
      ->needs(experts)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  as_list(app.add_option("--skew", options.skews,
                         "how uneven experts are, with commas between: 0 all are equally frequent, 1 by Zipf's law"))
      ->needs(experts)
      ->check(CLI::Range(0.0, 4.0))
      ->capture_default_str();
}

std::vector<int64_t> default_rows(const Options& options) {
  if (options.decoder) return {1, 2, 4, 8, 16, 64, 512};
  if (options.experts) return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  return {1, 8, 16, 64, 128, 256, 512, 2048};
}

bool run(const Options& options) {
  const Bench bench(options);
  if (options.decoder) return time_decoder(bench);
  return options.experts ? time_experts(bench) : race_products(bench);
}

/// The exit status if there is nothing to run.
std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app(
      "Times products on an NVIDIA GPU beside cuBLAS and a kernel that only reads as many bytes, and checks them.\n"
      "METAL_MARLIN_KERNEL=NAME forces a kernel. The exit status is 1 if a product is wrong or refused.");
  Words words;
  add_common(app, options, words);
  add_modes(app, options, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  }
  options.shapes = named(kShapes, words.shapes);
  options.formats = named(kFormats, words.formats);
  options.activations = words.activations == "f16" ? MARLIN_F16 : MARLIN_BF16;
  options.compute = *named(kComputes, {words.compute}).front();
  if (options.rows.empty()) options.rows = default_rows(options);
  if (options.top_k > options.expert_count) {
    std::fprintf(stderr, "--top-k %lld: expected at most the %lld of --expert-count\n", static_cast<long long>(options.top_k),
                 static_cast<long long>(options.expert_count));
    return 2;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    if (const auto status = parse(argc, argv, options)) return *status;
    const bool right = run(options);
    if (!right) std::fprintf(stderr, "A product is wrong or refused.\n");
    return right ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
