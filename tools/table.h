// Plain text tables: columns as wide as needed, numbers on the right, and only plain characters.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace metal_marlin::tools {

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns);

  /// There must be as many cells as columns, here and below. row() makes them printable.
  void row(std::vector<std::string> cells);
  /// The title line, a rule, the rows; columns two spaces apart, trailing spaces cut.
  std::string render() const;
  void print(std::FILE* to = stdout) const;

  // For a table that may be too long to keep: all its cells are measured, and then made again and
  // printed.
  void measure(const std::vector<std::string>& cells);
  void print_head(std::FILE* to = stdout) const;
  void print_line(const std::vector<std::string>& cells, std::FILE* to = stdout) const;

 private:
  std::string head() const;
  std::string line(const std::vector<std::string>& cells) const;

  std::vector<Column> columns_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace metal_marlin::tools
