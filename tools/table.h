// Plain text tables: columns as wide as they must be, numbers to the right, nothing that a pipe could not carry.
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
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as columns, which are made printable.
  void row(std::vector<std::string> cells);
  /// The title line, a rule, the rows; columns two spaces apart, trailing spaces cut.
  std::string render() const;
  void print(std::FILE* to = stdout) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace metal_marlin::tools
