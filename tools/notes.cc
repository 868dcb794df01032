#include "notes.h"

#include <fmt/core.h>

#include <algorithm>
#include <regex>

#include "printable.h"
#include "words.h"

namespace metal_marlin::tools {
namespace {

/// A file may have so many layers with reasons of their own that looking each up would take long.
constexpr size_t kCompared = 256;

/// A reason without what names the layer: file and byte, tensor, the layer itself.
std::string without(const std::string& reason, const std::string& layer) {
  static const std::regex place(R"((\S*: )?byte \d+: |(tensor|layer) '[^']*'(: )?)");
  std::string text = std::regex_replace(reason, place, "");
  for (size_t at = 0; !layer.empty() && (at = text.find(layer, at)) != std::string::npos;)
    text.erase(at, layer.size());
  while (text.starts_with(':') || text.starts_with(' ') || text.starts_with("''"))
    text.erase(0, text.starts_with("''") ? 2 : 1);
  return text;
}

}  // namespace

size_t Notes::add(const std::string& layer, const std::string& reason) {
  std::string shared = without(reason, layer);
  const auto end = notes_.begin() + static_cast<std::ptrdiff_t>(std::min(notes_.size(), kCompared));
  const auto found =
      std::find_if(notes_.begin(), end, [&](const Note& note) { return note.reason == shared; });
  if (found != end) {
    ++found->layers;
    return static_cast<size_t>(found - notes_.begin()) + 1;
  }
  notes_.push_back({std::move(shared), layer, reason, 1});
  return notes_.size();
}

std::vector<std::string> Notes::repeated() const {
  std::vector<std::string> lines;
  for (const Note& note : notes_)
    if (note.layers > 1)
      lines.push_back(fmt::format("{}: {}", counted(note.layers - 1, "more layer"), note.reason));
  return lines;
}

void Notes::print() const {
  for (size_t i = 0; i < notes_.size(); ++i) {
    const Note& note = notes_[i];
    if (note.layers == 1)
      fmt::print("({}) {}\n", i + 1, printable(note.whole));
    else
      fmt::print("({}) {}: {}, the first {}\n", i + 1, printable(note.reason),
                 counted(note.layers, "layer"), printable(note.first));
  }
}

void note_left_out(size_t layers) {
  if (layers == 0) return;
  fmt::print(stderr, "metal-marlin: left out {} that would not load; 'inspect' says why\n",
             counted(layers, "layer"));
}

}  // namespace metal_marlin::tools
