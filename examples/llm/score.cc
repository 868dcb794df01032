#include "score.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string_view>

#include "stopwatch.h"

namespace llm {
namespace {

// -ln softmax(logits)[token]
double negative_log(std::span<const float> logits, Token token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return std::log(sum) + max - double{logits[static_cast<size_t>(token)]};
}

// A new NumPy file of float32 [rows, columns]; none if its name is empty.
class NpyFile {
 public:
  NpyFile(const std::string& path, size_t rows, int64_t columns) : path_(path) {
    if (path.empty()) return;
    file_.reset(std::fopen(path.c_str(), "wbx"));  // x: never in place of another
    if (!file_) refuse();
    std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(rows) + ", " + std::to_string(columns) + "), }";
    head.resize(128 - 10 - 1, ' ');  // behind the magic, version 1.0 and this length
    put(std::string("\x93NUMPY\x01\x00\x76\x00", 10) + head + '\n');
  }
  void write(std::span<const float> values) const {
    if (file_) put({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  void end() const {
    if (file_ && std::fflush(file_.get()) != 0) refuse();
  }

 private:
  void put(std::string_view bytes) const {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) refuse();
  }
  [[noreturn]] void refuse() const {
    throw std::runtime_error(path_ + ": cannot be written: " + std::strerror(errno));
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace

Score score(Model& model, const std::vector<Token>& opening, const std::vector<Token>& tokens,
            const std::string& logits_file) {
  if (std::ssize(opening) >= model.context())
    throw std::runtime_error("the context has no room for a text");
  const NpyFile file(logits_file, tokens.size(), model.vocabulary());
  Score sum;
  const Stopwatch watch;
  for (size_t at = 0; at < tokens.size();) {
    if (at == 0 || model.position() == model.context()) {
      model.rewind(0);
      if (!opening.empty()) model.run(opening, 0);
    }
    const int64_t count = std::min({std::ssize(tokens) - static_cast<int64_t>(at), model.block(),
                                    model.context() - model.position()});
    const std::span<const float> logits =
        model.run(std::span(tokens).subspan(at, static_cast<size_t>(count)), count);
    file.write(logits);
    const bool window_ends = model.position() == model.context();
    const auto row_size = static_cast<size_t>(model.vocabulary());
    for (size_t row = 0; row < static_cast<size_t>(count); ++row) {
      const size_t next = at + row + 1;
      if (next == tokens.size() || (window_ends && row + 1 == static_cast<size_t>(count))) continue;
      sum.negative_log += negative_log(logits.subspan(row * row_size, row_size), tokens[next]);
      ++sum.predicted;
    }
    at += static_cast<size_t>(count);
  }
  sum.seconds = watch.seconds();
  file.end();
  return sum;
}

Speed time_tokens(Model& model, int64_t prompt, int64_t generate) {
  const int64_t most = std::max(prompt, generate);
  if (most > model.context()) {
    throw std::runtime_error(std::to_string(most) + " tokens, and the context has " +
                             std::to_string(model.context()));
  }
  std::mt19937 random;  // the same tokens each time. NOLINT(bugprone-random-generator-seed)
  std::vector<Token> tokens(static_cast<size_t>(most));
  for (Token& token : tokens)
    token = static_cast<Token>(random() % static_cast<uint32_t>(model.vocabulary()));
  const auto timed = [&](int64_t count, int64_t block, bool each_gives_logits) {
    const Stopwatch watch;
    model.rewind(0);
    for (int64_t at = 0; at < count; at += block) {
      const int64_t rows = std::min(block, count - at);
      const bool wanted = each_gives_logits || at + rows == count;
      model.run(std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)),
                wanted ? 1 : 0);
    }
    return watch.seconds();
  };
  return {timed(prompt, model.block(), false), timed(generate, 1, true)};
}

}  // namespace llm
