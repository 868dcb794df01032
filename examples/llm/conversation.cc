#include "conversation.h"

#include <algorithm>
#include <stdexcept>

#include "stopwatch.h"

namespace llm {
namespace {

// Templates are programs in a language of their own (Jinja). These are recognized by what only they
// say.
struct ChatTemplate {
  std::string_view mark, begin, end, system;  // <begin>role\ncontent<end>\n for each message
};
constexpr ChatTemplate kTemplates[] = {
    {"named SmolLM, trained by Hugging Face<|im_end|>", "<|im_start|>", "<|im_end|>",
     "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {"'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'", "<|im_start|>",
     "<|im_end|>", ""},
};

const ChatTemplate& find_template(const Metadata& metadata) {
  const std::string& text = metadata.text("tokenizer.chat_template");
  for (const ChatTemplate& row : kTemplates) {
    if (text.find(row.mark) != std::string::npos) return row;
  }
  throw std::runtime_error(
      metadata.file() +
      ": tokenizer.chat_template: expected ChatML (<|im_start|>role ... <|im_end|>), found '" +
      text.substr(0, 60) + "...'");
}

}  // namespace

Conversation::Conversation(Model& model, const Tokenizer& tokenizer, const Metadata& metadata,
                           std::string system)
    : model_(model), tokenizer_(tokenizer) {
  const ChatTemplate& form = find_template(metadata);
  begin_ = tokenizer.control(form.begin);
  end_ = tokenizer.control(form.end);
  if (begin_ < 0 || end_ < 0)
    throw std::runtime_error(metadata.file() +
                             ": the chat template's tokens are not in the vocabulary");
  if (system.empty()) system = form.system;
  if (!system.empty()) add(system_, "system", system, false);
}

// open: the content is still to come, from the model.
void Conversation::add(Tokens& to, std::string_view role, std::string_view content,
                       bool open) const {
  const Tokens text = tokenizer_.encode(std::string(role) + "\n" + std::string(content));
  to.push_back(begin_);
  to.insert(to.end(), text.begin(), text.end());
  if (open) return;
  const Tokens newline = tokenizer_.encode("\n");
  to.push_back(end_);
  to.insert(to.end(), newline.begin(), newline.end());
}

// Everything that the model is to read, with a quarter of the context left for the answer where
// older exchanges can go.
Conversation::Tokens Conversation::prompt(const Tokens& message) {
  const auto size = [&] {
    size_t sum = system_.size() + message.size();
    for (const Tokens& exchange : exchanges_) sum += exchange.size();
    return static_cast<int64_t>(sum);
  };
  while (!exchanges_.empty() && size() > model_.context() * 3 / 4) {
    exchanges_.erase(exchanges_.begin());
    ++forgotten_;
  }
  if (size() >= model_.context()) {
    throw std::runtime_error("the message is too long: " + std::to_string(size()) +
                             " tokens with all around it, and the context has " +
                             std::to_string(model_.context()));
  }
  Tokens all = system_;
  for (const Tokens& exchange : exchanges_) all.insert(all.end(), exchange.begin(), exchange.end());
  all.insert(all.end(), message.begin(), message.end());
  return all;
}

// Brings the model to the end of these tokens; what its cache has of them already is not run again.
// Empty when interrupted.
std::span<const float> Conversation::run(const Tokens& prompt,
                                         const volatile std::sig_atomic_t* stop) {
  const auto known =
      std::mismatch(ran_.begin(), ran_.end(), prompt.begin(), prompt.end()).second - prompt.begin();
  auto at = static_cast<size_t>(
      std::min<std::ptrdiff_t>(known, std::ssize(prompt) - 1));  // the last one gives the logits
  model_.rewind(static_cast<int64_t>(at));
  ran_.resize(at);
  std::span<const float> logits;
  while (at < prompt.size() && !*stop) {
    const size_t count = std::min(prompt.size() - at, static_cast<size_t>(model_.block()));
    logits = model_.run(std::span(prompt).subspan(at, count), at + count == prompt.size() ? 1 : 0);
    ran_.insert(ran_.end(), prompt.begin() + static_cast<std::ptrdiff_t>(at),
                prompt.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
    counts_.prompt_tokens += static_cast<int64_t>(count);
  }
  return logits;
}

End Conversation::answer(std::string_view message, Sampler& sampler, int64_t most_tokens,
                         const volatile std::sig_atomic_t* stop,
                         const std::function<void(std::string_view)>& out) {
  Tokens exchange;
  add(exchange, "user", message, false);
  add(exchange, "assistant", "", true);
  const Tokens all = prompt(exchange);
  const Stopwatch reading;
  std::span<const float> logits = run(all, stop);
  counts_.prompt_seconds += reading.seconds();

  const Stopwatch writing;
  End end = End::finished;
  for (int64_t n = 0;; ++n) {
    if (logits.empty() || *stop) {
      end = End::interrupted;
      break;
    }
    const Token token = sampler.choose(logits);
    if (tokenizer_.is_control(token)) break;
    if (n == most_tokens || model_.position() == model_.context()) {
      end = n == most_tokens ? End::most_tokens : End::context_full;
      break;
    }
    out(tokenizer_.bytes(token));
    exchange.push_back(token);
    ran_.push_back(token);
    logits = model_.run({&token, 1}, 1);
    ++counts_.answer_tokens;
  }
  counts_.answer_seconds += writing.seconds();
  exchange.push_back(end_);
  for (const Token token : tokenizer_.encode("\n")) exchange.push_back(token);
  exchanges_.push_back(std::move(exchange));
  return end;
}

}  // namespace llm
