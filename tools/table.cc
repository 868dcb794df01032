#include "table.h"

#include <algorithm>

#include "printable.h"
#include "terminal.h"

namespace metal_marlin::tools {
namespace {

constexpr size_t kNarrowest = 14;  // of a text that is cut
/// Texts of a column that are compared. Columns of more texts are not cut, because nobody would
/// know whether two of them became one.
constexpr size_t kMostCompared = 4096;

bool begins_character(char c) { return (c & 0xc0) != 0x80; }

/// Counts characters, not bytes: continuation bytes of UTF-8 have no width.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

/// The byte at which character `index` of a text begins.
size_t byte_of(const std::string& text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (begins_character(text[at]) && index-- == 0) break;
  }
  return at;
}

/// The first and last characters of a text, which is longer, with "…" between them; or its last
/// ones alone, behind "…".
std::string elided(const std::string& text, size_t columns, bool at_front) {
  const size_t first = at_front ? 0 : (columns - 1) / 2, last = columns - 1 - first;
  return text.substr(0, byte_of(text, first)) + "…" +
         text.substr(byte_of(text, width(text) - last));
}

void print_text(const std::string& text, std::FILE* to) {
  std::fwrite(text.data(), 1, text.size(), to);
}

}  // namespace

Table::Table(std::vector<Column> columns)
    : columns_(std::move(columns)),
      filled_(columns_.size(), 0),
      uniform_(columns_.size(), 1),
      told_(columns_.size(), 0),
      left_out_(columns_.size(), 0),
      at_front_(columns_.size(), 0),
      long_(columns_.size()) {
  for (const Column& column : columns_) widths_.push_back(width(column.title));
}

void Table::row(std::vector<std::string> cells, Mood mood) {
  for (std::string& cell : cells) cell = printable(cell);
  measure(cells);
  rows_.push_back({std::move(cells), mood});
}

void Table::measure(const std::vector<std::string>& cells) {
  if (measured_++ == 0) first_ = cells;
  for (size_t i = 0; i < cells.size(); ++i) {
    const size_t wide = width(cells[i]);
    filled_[i] = std::max(filled_[i], wide);
    widths_[i] = std::max(widths_[i], filled_[i]);
    if (cells[i] != first_[i]) uniform_[i] = 0;
    if (columns_[i].align == Align::left && wide > kNarrowest && long_[i].size() <= kMostCompared)
      long_[i].insert(cells[i]);
  }
}

std::string Table::cut(size_t column, const std::string& text) const {
  return width(text) > widths_[column] ? elided(text, widths_[column], at_front_[column] != 0)
                                       : text;
}

bool Table::are_apart(size_t column) const {
  const std::set<std::string>& texts = long_[column];
  std::set<std::string> shown;
  for (const std::string& text : texts) shown.insert(cut(column, text));
  return texts.size() <= kMostCompared && shown.size() == texts.size();
}

bool Table::is_shown(size_t column) const {
  return told_[column] == 0 && left_out_[column] == 0 && (measured_ == 0 || filled_[column] > 0);
}

size_t Table::total_width() const {
  size_t total = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (is_shown(i)) total += widths_[i] + (total != 0 ? 2 : 0);
  }
  return total;
}

/// "everywhere: layout gguf; scales f16", "too wide for this terminal: nmse", or nothing.
std::string Table::told() const {
  std::string same, left_out;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (told_[i] != 0) same += (same.empty() ? "" : "; ") + columns_[i].title + " " + first_[i];
    if (left_out_[i] != 0) left_out += (left_out.empty() ? "" : ", ") + columns_[i].title;
  }
  if (!same.empty()) same = "everywhere: " + same + "\n";
  if (!left_out.empty()) left_out = "too wide for this terminal: " + left_out + "\n";
  return same.empty() && left_out.empty() ? "" : same + left_out + "\n";
}

void Table::fit(size_t most) {
  for (size_t i = 1; i < columns_.size() && total_width() > most; ++i)
    told_[i] = uniform_[i] != 0 && filled_[i] > 0 ? 1 : 0;
  for (size_t i = columns_.size(); i-- > 0 && total_width() > most;)
    left_out_[i] = columns_[i].is_detail && is_shown(i) ? 1 : 0;
  narrow(most);
}

void Table::narrow(size_t most) {
  std::vector<size_t> narrowest(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i)
    narrowest[i] = columns_[i].align == Align::left && is_shown(i)
                       ? std::max(kNarrowest, width(columns_[i].title))
                       : widths_[i];
  while (total_width() > most) {
    size_t widest = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (widths_[i] > narrowest[i] && (widest == columns_.size() || widths_[i] > widths_[widest]))
        widest = i;
    }
    if (widest == columns_.size()) return;
    const char was_at_front = at_front_[widest];
    --widths_[widest];
    if (!are_apart(widest)) at_front_[widest] = 1;
    if (are_apart(widest)) continue;
    at_front_[widest] = was_at_front;
    narrowest[widest] = ++widths_[widest];
  }
}

std::string Table::line(const std::vector<std::string>& cells) const {
  std::string out;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (!is_shown(i)) continue;
    const std::string text = cut(i, cells[i]);
    const std::string pad(widths_[i] - width(text), ' ');
    out +=
        (out.empty() ? "" : "  ") + (columns_[i].align == Align::right ? pad + text : text + pad);
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

std::string Table::head() const {
  std::vector<std::string> titles, rules;
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    rules.emplace_back(widths_[i], '-');
  }
  return line(titles) + line(rules);
}

std::string Table::render() const {
  std::string out = told() + head();
  for (const Row& row : rows_) out += line(row.cells);
  return out;
}

void Table::print(std::FILE* to) {
  print_head(to);
  for (const Row& row : rows_) print_line(row.cells, to, row.mood);
}

void Table::print_head(std::FILE* to) {
  if (const size_t columns = terminal_width(to); columns != 0) fit(columns);
  print_text(told() + head(), to);
}

void Table::print_line(const std::vector<std::string>& cells, std::FILE* to, Mood mood) const {
  print_text(mood == Mood::wrong ? red(line(cells), to) : line(cells), to);
}

}  // namespace metal_marlin::tools
