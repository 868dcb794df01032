// Plain text tables: columns as wide as needed, numbers on the right, and only plain characters.
#pragma once

#include <cstddef>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

namespace metal_marlin::tools {

class Table {
 public:
  enum class Align { left, right };
  /// Rows of something wrong are red where colors are shown.
  enum class Mood { plain, wrong };
  struct Column {
    std::string title;
    Align align = Align::left;
    /// Left out where a terminal is too narrow for all columns, the last one first.
    bool is_detail = false;
  };
  explicit Table(std::vector<Column> columns);

  /// There must be as many cells as columns, here and below. row() makes them printable.
  void row(std::vector<std::string> cells, Mood mood = Mood::plain);
  /// The title line, a rule, the rows; columns two spaces apart, trailing spaces cut. A column
  /// without a text in any row is left out.
  std::string render() const;
  /// Fits a terminal (see fit).
  void print(std::FILE* to = stdout);
  /// Until a line has at most `width` columns: takes out columns with the same text in all rows,
  /// which a line above the table then tells, leaves out details, which a line names, and makes the
  /// widest columns of texts narrower, whose middle or front becomes "…". Texts that differ still
  /// differ when they are cut, so a table of many numbers or of such texts may stay wider.
  void fit(size_t width);

  // For a table that may be too long to keep: all its cells are measured, and then made again and
  // printed.
  void measure(const std::vector<std::string>& cells);
  void print_head(std::FILE* to = stdout);
  void print_line(const std::vector<std::string>& cells, std::FILE* to = stdout,
                  Mood mood = Mood::plain) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Mood mood;
  };
  bool is_shown(size_t column) const;
  size_t total_width() const;
  void narrow(size_t width);
  /// A text as the width of its column allows.
  std::string cut(size_t column, const std::string& text) const;
  /// Whether texts of a column that differ still differ when they are cut.
  bool are_apart(size_t column) const;
  std::string told() const;
  std::string head() const;
  std::string line(const std::vector<std::string>& cells) const;

  std::vector<Column> columns_;
  std::vector<size_t> widths_, filled_;  ///< of each column, with its title; of its texts alone
  size_t measured_ = 0;                  ///< rows
  std::vector<std::string> first_;       ///< the cells of the first row
  std::vector<char> uniform_, told_;     ///< whether all rows have them; whether a line tells them
  std::vector<char> left_out_;           ///< whether they are details without a place
  std::vector<char> at_front_;  ///< whether texts are cut at their front, where they differ less
  std::vector<std::set<std::string>> long_;  ///< the texts of each column that could be cut
  std::vector<Row> rows_;
};

}  // namespace metal_marlin::tools
