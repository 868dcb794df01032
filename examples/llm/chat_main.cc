// The options and the modes of the chat; talk.h has the terminal, conversation.h the conversation,
// model.h the model.
#include "chat_main.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "conversation.h"
#include "score.h"
#include "talk.h"

namespace llm {
namespace {

volatile std::sig_atomic_t interrupted = 0;

struct Options {
  std::string model, tokenizer, system, prompt, text, logits;
  ModelOptions run;
  double temperature = 0.2, top_p = 0.9;  // what SmolLM2's makers recommend
  double repeat_penalty = 1.1;
  uint64_t seed = 1;
  int64_t most_tokens = 1024;
  bool profile = false, perplexity = false, bench = false, tokenize = false, detokenize = false,
       null = false;
};

// Where and how the model runs.
void declare_run(CLI::App& app, ModelOptions& run) {
  app.add_option("--context", run.context,
                 "tokens of the whole talk; 0: as many as the model was made for")
      ->check(CLI::NonNegativeNumber)
      ->default_val(2048);
  app.add_option("--block", run.block, "tokens of a prompt that run together")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--threads", run.threads, "0: as many as processors")
      ->check(CLI::Range(0u, 1024u))
      ->capture_default_str();
  static const std::map<std::string, marlin_backend> backends = {{"auto", MARLIN_BACKEND_AUTO},
                                                                 {"cpu", MARLIN_BACKEND_CPU},
                                                                 {"metal", MARLIN_BACKEND_METAL},
                                                                 {"cuda", MARLIN_BACKEND_CUDA}};
  static const std::map<std::string, marlin_compute> computes = {
      {"default", MARLIN_COMPUTE_DEFAULT}, {"int8", MARLIN_COMPUTE_INT8}};
  app.add_option_function<std::string>(
         "--backend", [&run](const std::string& name) { run.backend = backends.at(name); },
         "default: auto")
      ->check(CLI::IsMember(&backends));
  app.add_option_function<std::string>(
         "--compute", [&run](const std::string& name) { run.compute = computes.at(name); },
         "int8: activations rounded to 8 bits, which is faster")
      ->check(CLI::IsMember(&computes));
  app.add_flag("--row-invariant", run.row_invariant,
               "the same bits of logits whatever tokens run together");
}

void declare(CLI::App& app, Options& o) {
  app.add_option("model", o.model, "a .gguf file, or a folder of safetensors")->required();
  app.add_option("--tokenizer", o.tokenizer,
                 "the .gguf file that has the tokenizer; default: the model")
      ->type_name("FILE");
  app.add_option("--system", o.system,
                 "what the model is told first; default: what its maker says");
  app.add_option("--prompt", o.prompt, "answer this and end")->check([](const std::string& found) {
    return found.empty() ? std::string("expected a message, found none") : std::string();
  });
  app.add_option("--temperature", o.temperature, "0: always the most probable token")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  app.add_option("--top-p", o.top_p, "choose among the tokens that have this share")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--repeat-penalty", o.repeat_penalty,
                 "above 1: tokens of the answer's last 64 become less probable; 1: they do not")
      ->check(CLI::Range(1.0, 10.0))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of the choice: the same seed, the same answer")
      ->capture_default_str();
  app.add_option("--max-tokens", o.most_tokens, "of one answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  declare_run(app, o.run);
  app.add_flag("--profile", o.profile, "say where the time went");
  app.add_option("--text", o.text, "the text for --perplexity and --logits")->type_name("FILE");
  app.add_flag("--perplexity", o.perplexity, "how well the model predicts the text")
      ->needs("--text");
  app.add_option("--logits", o.logits,
                 "write those of every token of the text to a new file, for NumPy")
      ->type_name("FILE")
      ->needs("--text");
  app.add_flag("--bench", o.bench,
               "lines 'PROMPT GENERATE' from stdin: the seconds that so many tokens take");
  app.add_flag("--tokenize", o.tokenize, "lines from stdin: print the numbers of their tokens");
  app.add_flag("--detokenize", o.detokenize, "lines of such numbers from stdin: print the text");
  app.add_flag("--null", o.null, "texts of the two end with a zero byte instead of a newline");
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return failed->get_name() + ": " + error.what() + "\nTry '" + failed->get_name() +
           " --help'.\n";
  });
  app.footer(
      "Exit codes: 0 all is well; 1 it could not be done; 2 the command line makes no sense; "
      "130 Ctrl-C ended --prompt.");
}

// A bar on stderr while the model is loaded; nothing when that is no terminal.
void draw_progress(double part) {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const int width = std::clamp((known ? size.ws_col : 80) - 11, 1, 40);  // one line, with the words
  static int drawn = -1;
  const int full = static_cast<int>(part * width);
  if (full == drawn || !isatty(STDERR_FILENO)) return;
  drawn = full;
  std::fprintf(stderr, "\rloading [%-*s]", width,
               std::string(static_cast<size_t>(full), '#').c_str());
  if (full == width) std::fprintf(stderr, "\r\033[K");
}

void print_rates(const Counts& c) {
  if (c.prompt_tokens == 0) return;
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  };
  std::fprintf(stderr, "prompt: %lld tokens, %.1f a second; answers: %lld tokens, %.1f a second\n",
               static_cast<long long>(c.prompt_tokens), rate(c.prompt_tokens, c.prompt_seconds),
               static_cast<long long>(c.answer_tokens), rate(c.answer_tokens, c.answer_seconds));
}

void print_profile(const Model& model) {
  double all = 0;
  for (const double seconds : model.seconds()) all += seconds;
  for (size_t i = 0; i < kStageNames.size(); ++i) {
    std::fprintf(stderr, "%-24s %8.3f s %5.1f %%\n", kStageNames[i], model.seconds()[i],
                 100 * model.seconds()[i] / (all > 0 ? all : 1));
  }
}

// What the user talks to.
std::string notice(const Metadata& metadata, const Model& model) {
  const std::string name = metadata.has("general.name") ? metadata.text("general.name") : "a model";
  char size[64];
  std::snprintf(size, sizeof size, "%.3g GB of weights",
                static_cast<double>(model.weight_bytes()) / 1e9);
  std::string text = "This is " + name + ", " + size + ".\n";
  text += model.weight_bytes() < 2'000'000'000 ? "A model this small is often wrong.\n"
                                               : "What it says may be wrong.\n";
  return text;
}

// More threads than processors would wait for each other.
void limit_threads(unsigned& threads) {
  auto info = metal_marlin::make<marlin_device_info>();
  unsigned usable = std::thread::hardware_concurrency();
  for (uint32_t i = 0; marlin_device_get(i, &info, nullptr) == MARLIN_OK; ++i) {
    if (info.backend == MARLIN_BACKEND_CPU) usable = info.threads;
  }
  if (usable == 0 || threads <= usable) return;
  std::fprintf(stderr, "(--threads %u: this process may use %u processor%s, so there are %u)\n",
               threads, usable, usable == 1 ? "" : "s", usable);
  threads = usable;
}

int tokens_of_stdin(const Tokenizer& tokenizer, const Options& o) {
  const char end = o.null ? '\0' : '\n';
  for (std::string line; std::getline(std::cin, line, o.tokenize ? end : '\n');) {
    if (o.tokenize) {
      const char* between = "";
      for (const Token token : tokenizer.encode(line))
        std::cout << std::exchange(between, " ") << token;
      std::cout << '\n';
    } else {
      std::istringstream numbers(line);
      const std::vector<Token> tokens(std::istream_iterator<Token>(numbers), {});
      std::cout << tokenizer.text(tokens) << end;
    }
  }
  return 0;
}

int score_text(Model& model, const Tokenizer& tokenizer, const Options& o) {
  std::ifstream in(o.text, std::ios::binary);
  if (!in) throw std::runtime_error(o.text + ": cannot be read");
  const std::vector<Token> tokens =
      tokenizer.encode(std::string(std::istreambuf_iterator<char>(in), {}));
  const Score sum = score(model, tokenizer.opening(), tokens, o.logits);
  const double mean = sum.predicted ? sum.negative_log / static_cast<double>(sum.predicted) : 0;
  std::printf(
      "tokens %zu\npredicted %lld\nnats_per_token %.9g\nperplexity %.9g\nseconds "
      "%.3f\nweight_bytes %llu\n",
      tokens.size(), static_cast<long long>(sum.predicted), mean, std::exp(mean), sum.seconds,
      static_cast<unsigned long long>(model.weight_bytes()));
  return 0;
}

int time_lines(Model& model) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream numbers(line);
    int64_t prompt = 0, generate = 0;
    if (!(numbers >> prompt >> generate) || prompt < 0 || generate < 0) {
      throw std::runtime_error("--bench: expected two numbers of tokens, found '" + line + "'");
    }
    const Speed speed = time_tokens(model, prompt, generate);
    std::cout << R"({"prompt": )" << prompt << R"(, "prompt_seconds": )" << speed.prompt_seconds
              << R"(, "generate": )" << generate << R"(, "generate_seconds": )"
              << speed.generate_seconds << "}\n"
              << std::flush;
  }
  return 0;
}

// A folder says what the model is in config.json, a GGUF in itself; one that says nothing was made
// from the tokenizer's GGUF.
HyperParameters find_hyper_parameters(const Options& o, const Metadata& tokenizer_file) {
  HyperParameters hyper;
  if (std::filesystem::is_directory(o.model) && read_config(o.model, hyper)) return hyper;
  return hyper_parameters(tokenizer_file);
}

/// The model, or std::runtime_error on every rank if one has no model.
void make_model(const Options& o, const HyperParameters& hyper, size_t tokens,
                std::optional<Model>& model) {
  std::string error;
  try {
    model.emplace(o.model, hyper, o.run);
    if (static_cast<size_t>(model->vocabulary()) != tokens) {
      throw std::runtime_error(o.model + ": has " + std::to_string(model->vocabulary()) +
                               " tokens, the tokenizer " + std::to_string(tokens));
    }
  } catch (const std::exception& e) {
    if (!o.run.ranks) throw;
    error = e.what();
  }
  if (o.run.ranks) o.run.ranks->agree(error);
}

int answer(Model& model, const Tokenizer& tokenizer, const Metadata& metadata, const Options& o) {
  if (o.perplexity || !o.logits.empty()) return score_text(model, tokenizer, o);
  if (o.bench) return time_lines(model);
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted = 1; };  // without SA_RESTART: reading a line ends, too
  sigaction(SIGINT, &action, nullptr);
  int code = 0;
  Conversation conversation(model, tokenizer, metadata, o.system);
  Sampler sampler(o.temperature, o.top_p, o.seed, o.repeat_penalty);
  Talk talk(conversation, sampler, o.most_tokens, &interrupted);
  if (conversation.only_continues())
    std::fprintf(stderr,
                 "(the file has no chat template: its model only continues text, and may repeat "
                 "itself without end)\n");
  if (o.prompt.empty())
    talk.run(notice(metadata, model));
  else if (talk.say(o.prompt) == End::interrupted)
    code = 130;  // as a shell says of Ctrl-C
  print_rates(conversation.counts());
  return code;
}

int run(Options& o) {
  if (o.tokenizer.empty() && std::filesystem::is_directory(o.model)) {
    throw std::runtime_error(o.model +
                             ": is a folder; --tokenizer says which .gguf file has the tokenizer");
  }
  const Metadata metadata(o.tokenizer.empty() ? o.model : o.tokenizer);
  const Tokenizer tokenizer(metadata);
  if (o.tokenize || o.detokenize) return tokens_of_stdin(tokenizer, o);

  const HyperParameters hyper = find_hyper_parameters(o, metadata);
  if (o.run.context == 0 || o.run.context > hyper.context) o.run.context = hyper.context;
  const bool first = !o.run.ranks || o.run.ranks->rank() == 0;
  if (first) o.run.progress = draw_progress;
  if (first) limit_threads(o.run.threads);
  o.run.vocabulary = static_cast<int64_t>(tokenizer.size());
  std::optional<Model> model;
  make_model(o, hyper, tokenizer.size(), model);
  Model& made = *model;  // NOLINT(bugprone-unchecked-optional-access): make_model has made it
  int code = 0;
  if (first)
    code = answer(made, tokenizer, metadata, o);
  else
    made.serve();
  if (first) made.dismiss();
  if (o.profile && first) print_profile(made);
  return code;
}

}  // namespace
int chat_main(int argc, char** argv, const char* program, const RanksOfModel& ranks_of) {
  Options options;
  CLI::App app("Chat with a small language model; all its products run on 4-bit weights.", program);
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (ranks_of) options.run.ranks = ranks_of(options.model);
  const int code = run(options);
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw std::runtime_error("the standard output cannot be written");
  return code;
}

}  // namespace llm
