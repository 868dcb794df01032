#include "table.h"

#include <algorithm>

#include "printable.h"

namespace metal_marlin::tools {
namespace {

/// Characters, not bytes: continuation bytes of UTF-8 take no room.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

void trim(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

}  // namespace

std::string Table::render() const {
  std::vector<size_t> widths;
  widths.reserve(columns_.size());
  for (const Column& column : columns_) widths.push_back(width(column.title));
  for (const auto& cells : rows_) {
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width(cells[i]));
  }
  std::string out;
  const auto add = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = cell_of(i);
      const std::string pad(widths[i] - width(cell), ' ');
      line += (i ? "  " : "") + (columns_[i].align == Align::right ? pad + cell : cell + pad);
    }
    trim(line);
    out += line + "\n";
  };
  add([&](size_t i) { return columns_[i].title; });
  add([&](size_t i) { return std::string(widths[i], '-'); });
  for (const auto& cells : rows_) {
    add([&](size_t i) { return cells[i]; });
  }
  return out;
}

void Table::row(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

void Table::print(std::FILE* to) const {
  const std::string text = render();
  std::fwrite(text.data(), 1, text.size(), to);
}

}  // namespace metal_marlin::tools
