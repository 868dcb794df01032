#include "table.h"

#include <algorithm>

#include "printable.h"

namespace metal_marlin::tools {
namespace {

/// Counts characters, not bytes: continuation bytes of UTF-8 have no width.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

void print_text(const std::string& text, std::FILE* to) {
  std::fwrite(text.data(), 1, text.size(), to);
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (const Column& column : columns_) widths_.push_back(width(column.title));
}

void Table::row(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable(cell);
  measure(cells);
  rows_.push_back(std::move(cells));
}

void Table::measure(const std::vector<std::string>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], width(cells[i]));
}

std::string Table::line(const std::vector<std::string>& cells) const {
  std::string out;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const std::string pad(widths_[i] - width(cells[i]), ' ');
    out += (i ? "  " : "") + (columns_[i].align == Align::right ? pad + cells[i] : cells[i] + pad);
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
  std::string out = head();
  for (const auto& cells : rows_) out += line(cells);
  return out;
}

void Table::print(std::FILE* to) const { print_text(render(), to); }
void Table::print_head(std::FILE* to) const { print_text(head(), to); }
void Table::print_line(const std::vector<std::string>& cells, std::FILE* to) const {
  print_text(line(cells), to);
}

}  // namespace metal_marlin::tools
