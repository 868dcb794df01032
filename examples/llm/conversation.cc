#include "conversation.h"

#include <algorithm>
#include <ctime>
#include <stdexcept>
#include <utility>

#include "answer_parts.h"
#include "stopwatch.h"
#include "unicode.h"

namespace llm {

// Templates are programs in a language of their own (Jinja). These are recognized by what only they
// say. Each message is <begin>role<behind_role><before_content>content<end><behind_end>.
struct ChatTemplate {
  std::string_view mark, begin, end;  // begin and end: control tokens, or none
  // Control tokens or none: what stands between role and content, and in Harmony what begins the
  // name of a channel (see AnswerParts).
  std::string_view content_token = {}, channel_token = {};
  std::string_view behind_role = "\n", before_content = {}, behind_end = "\n";
  std::string_view told = "system", user = "user", model = "assistant";  // roles
  std::string_view about = {};   // what the role "system" says first of all; % is the date
  std::string_view system = {};  // what the model is told first
  std::string_view before_system = {}, behind_system = {};
  bool always_told = false;           // also when there is nothing to tell but before_system
  bool system_in_message = false;     // in front of the first message, else a message of its own
  bool trims = false;                 // spaces around messages are left out
  std::string_view thought_end = {};  // later messages do not repeat what stands before it
  std::string_view stop = {};         // text that ends an answer
};

namespace {

constexpr ChatTemplate kTemplates[] = {
    {.mark = "named SmolLM, trained by Hugging Face<|im_end|>",
     .begin = "<|im_start|>",
     .end = "<|im_end|>",
     .system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {.mark = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
     .begin = "<|im_start|>",
     .end = "<|im_end|>",
     .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {.mark = "<|im_start|>system\nYou are a helpful assistant",
     .begin = "<|im_start|>",
     .end = "<|im_end|>",
     .system = "You are a helpful assistant."},
    {.mark = "'<|im_start|>' + message['role'] + '\n' + message['content']",
     .begin = "<|im_start|>",
     .end = "<|im_end|>"},
    {.mark = "'<|im_start|>' + message.role + '\n'",
     .begin = "<|im_start|>",
     .end = "<|im_end|>",
     .thought_end = "</think>"},
    {.mark = "'<start_of_turn>' + role + '\n'",
     .begin = "<start_of_turn>",
     .end = "<end_of_turn>",
     .model = "model",
     .system_in_message = true,
     .trims = true},
    {.mark = "Cutting Knowledge Date: December 2023",  // Llama 3.1 and later
     .begin = "<|start_header_id|>",
     .end = "<|eot_id|>",
     .content_token = "<|end_header_id|>",
     .behind_role = {},
     .before_content = "\n\n",
     .behind_end = {},
     .before_system = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
     .always_told = true,
     .trims = true},
    {.mark = "<|start_header_id|>",  // Llama 3
     .begin = "<|start_header_id|>",
     .end = "<|eot_id|>",
     .content_token = "<|end_header_id|>",
     .behind_role = {},
     .before_content = "\n\n",
     .behind_end = {},
     .trims = true},
    {.mark = "<|start|>system<|message|>",
     .begin = "<|start|>",
     .end = "<|end|>",
     .content_token = "<|message|>",
     .channel_token = "<|channel|>",
     .behind_role = {},
     .behind_end = {},
     .told = "developer",
     .about = "You are ChatGPT, a large language model trained by OpenAI.\n"
              "Knowledge cutoff: 2024-06\nCurrent date: %\n\nReasoning: medium\n\n"
              "# Valid channels: analysis, commentary, final. Channel must be included for every "
              "message.",
     .before_system = "# Instructions\n\n",
     .behind_system = "\n\n"},
};

// A model whose file has no template was trained on text alone, as models are before they learn to
// chat. It goes on with a transcript.
constexpr ChatTemplate kTranscript = {.mark = "",
                                      .begin = "",
                                      .end = "",
                                      .behind_role = ":",
                                      .before_content = " ",
                                      .told = "System",
                                      .user = "User",
                                      .model = "Assistant",
                                      .stop = "\nUser:"};

const ChatTemplate& find_template(const Metadata& metadata) {
  const std::string key = "tokenizer.chat_template";
  if (!metadata.has(key)) return kTranscript;
  // A newline stands in a template as itself or, in the language's own writing, as two characters.
  const std::string text = replaced(metadata.text(key), "\\n", "\n");
  for (const ChatTemplate& row : kTemplates) {
    if (text.find(row.mark) != std::string::npos) return row;
  }
  std::string message = metadata.file() + ": " + key;
  message += ": expected ChatML (<|im_start|>role ... <|im_end|>), Gemma's form ";
  message += "(<start_of_turn>role ... <end_of_turn>), Llama 3's (<|start_header_id|>role ";
  message +=
      "<|end_header_id|> ... <|eot_id|>) or Harmony (<|start|>role<|message|> ... <|end|>), ";
  message += "found '";
  throw std::runtime_error(message + text.substr(0, 60) + "...'");
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &parts)};
}

// Hands the text of an answer on, but holds back what may become the text that ends it.
class Said {
 public:
  Said(const ChatTemplate& form, const std::function<void(std::string_view)>& out)
      : form_(form), out_(out) {}

  /// True: the answer ends here.
  bool add(std::string_view bytes) {
    pending_ += bytes;
    const size_t end = form_.stop.empty() ? std::string::npos : pending_.find(form_.stop);
    size_t sure = std::min(end, pending_.size());
    if (end == std::string::npos) {
      size_t held = std::min(form_.stop.size(), pending_.size());
      while (!form_.stop.starts_with(std::string_view(pending_).substr(pending_.size() - held)))
        --held;
      sure -= held;
    }
    say(sure);
    return end != std::string::npos;
  }
  /// Nothing more comes.
  void finish() { say(pending_.size()); }
  const std::string& text() const { return text_; }

 private:
  void say(size_t count) {
    std::string_view part = std::string_view(pending_).substr(0, count);
    // The space that stands before an answer in the form is not shown.
    if (text_.empty() && part.starts_with(form_.before_content))
      out_(part.substr(form_.before_content.size()));
    else
      out_(part);
    text_ += part;
    pending_.erase(0, count);
  }

  const ChatTemplate& form_;
  const std::function<void(std::string_view)>& out_;
  std::string pending_, text_;
};

}  // namespace

Conversation::Conversation(Model& model, const Tokenizer& tokenizer, const Metadata& metadata,
                           const std::string& system)
    : model_(model),
      tokenizer_(tokenizer),
      form_(find_template(metadata)),
      begin_(tokenizer.control(form_.begin)),
      end_(tokenizer.control(form_.end)),
      content_(tokenizer.control(form_.content_token)),
      channel_(tokenizer.control(form_.channel_token)),
      about_(replaced(form_.about, "%", today())),
      system_(system.empty() ? form_.system : system) {
  for (const auto& [token, name] :
       {std::pair(begin_, form_.begin), std::pair(end_, form_.end),
        std::pair(content_, form_.content_token), std::pair(channel_, form_.channel_token)}) {
    if (token < 0 && !name.empty())
      throw std::runtime_error(metadata.file() +
                               ": the chat template's tokens are not in the vocabulary");
  }
}

// A message whose end is still to come; with the model's role, its content as well.
void Conversation::open(Tokens& to, std::string_view role, std::string_view content) const {
  std::string text = std::string(role) + std::string(form_.behind_role);
  if (begin_ >= 0) to.push_back(begin_);
  if (content_ >= 0 && (channel_ < 0 || !content.empty())) {
    append(to, text);
    to.push_back(content_);
    append(to, std::string(form_.before_content) + std::string(content));
    return;
  }
  if (!content.empty()) text += std::string(form_.before_content) + std::string(content);
  append(to, text);
}

void Conversation::append(Tokens& to, std::string_view text) const {
  const Tokens tokens = tokenizer_.encode(text);
  to.insert(to.end(), tokens.begin(), tokens.end());
}

void Conversation::close(Tokens& to) const {
  if (end_ >= 0) to.push_back(end_);
  append(to, form_.behind_end);
}

void Conversation::add(Tokens& to, std::string_view role, std::string_view content) const {
  open(to, role, form_.trims ? trimmed(content) : content);
  close(to);
}

// All that is kept, and the beginning of the answer to the last message.
Conversation::Tokens Conversation::everything() const {
  Tokens all = tokenizer_.opening();
  if (!about_.empty()) add(all, "system", about_);
  if ((!system_.empty() || form_.always_told) && !form_.system_in_message) {
    open(all, form_.told,
         std::string(form_.before_system) +
             std::string(form_.trims ? trimmed(system_) : std::string_view(system_)) +
             std::string(form_.behind_system));
    close(all);
  }
  for (size_t i = 0; i < exchanges_.size(); ++i) {
    const bool told_here = i == 0 && !system_.empty() && form_.system_in_message;
    add(all, form_.user, (told_here ? system_ + "\n\n" : "") + exchanges_[i].message);
    open(all, form_.model, "");
    if (i + 1 == exchanges_.size()) break;
    if (channel_ >= 0) {
      all.push_back(channel_);
      append(all, AnswerParts::kFinal);
      all.push_back(content_);
    }
    all.insert(all.end(), exchanges_[i].answer.begin(), exchanges_[i].answer.end());
    close(all);
  }
  return all;
}

// Everything that the model is to read, with a quarter of the context left for the answer where
// older exchanges can go.
Conversation::Tokens Conversation::prompt() {
  Tokens all = everything();
  while (exchanges_.size() > 1 && std::ssize(all) > model_.context() * 3 / 4) {
    exchanges_.erase(exchanges_.begin());
    ++forgotten_;
    all = everything();
  }
  if (std::ssize(all) >= model_.context()) {
    exchanges_.pop_back();
    throw std::runtime_error("the message is too long: " + std::to_string(all.size()) +
                             " tokens with all around it, and the context has " +
                             std::to_string(model_.context()));
  }
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
  exchanges_.push_back({std::string(message), {}});
  const Tokens all = prompt();
  const Stopwatch reading;
  const std::span<const float> logits = run(all, stop);
  counts_.prompt_seconds += reading.seconds();

  const Stopwatch writing;
  const End end = write(logits, sampler, most_tokens, stop, out);
  counts_.answer_seconds += writing.seconds();
  return end;
}

End Conversation::write(std::span<const float> logits, Sampler& sampler, int64_t most_tokens,
                        const volatile std::sig_atomic_t* stop,
                        const std::function<void(std::string_view)>& out) {
  Tokens& answer = exchanges_.back().answer;
  Tokens chosen;  // in thoughts, too
  Said said(form_, out);
  AnswerParts parts({begin_, end_, content_, channel_});
  End end = End::finished;
  for (int64_t n = 0;; ++n) {
    if (logits.empty() || *stop) {
      end = End::interrupted;
      break;
    }
    const Token token = sampler.choose(logits, chosen);
    const bool control = tokenizer_.is_control(token);
    if (control && !parts.goes_on_with(token)) break;
    if (n == most_tokens || model_.position() == model_.context()) {
      end = n == most_tokens ? End::most_tokens : End::context_full;
      break;
    }
    ++counts_.answer_tokens;
    if (!control) chosen.push_back(token);
    const std::string text = parts.shown(token, tokenizer_.bytes(token));
    if (said.add(text)) {
      answer = tokenizer_.encode(said.text());
      return end;
    }
    if (!control && parts.in_final()) answer.push_back(token);
    ran_.push_back(token);
    logits = model_.run({&token, 1}, 1);
  }
  said.finish();
  answer = without_thoughts(answer);
  return end;
}

bool Conversation::only_continues() const { return &form_ == &kTranscript; }

// What the template repeats of an answer.
Conversation::Tokens Conversation::without_thoughts(const Tokens& answer) const {
  const Tokens mark = tokenizer_.encode(form_.thought_end);
  if (mark.size() != 1) return answer;
  const auto last = std::find(answer.rbegin(), answer.rend(), mark[0]);
  if (last == answer.rend()) return answer;
  const auto first_said = std::find_if(last.base(), answer.end(), [&](Token token) {
    return tokenizer_.bytes(token).find_first_not_of('\n') != std::string::npos;
  });
  return {first_said, answer.end()};
}

}  // namespace llm
