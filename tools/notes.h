// Why layers are not read, each reason once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace metal_marlin::tools {

/// Reasons that differ in the name of the layer alone are one note.
class Notes {
 public:
  /// The number of the note, from 1 on.
  size_t add(const std::string& layer, const std::string& reason);
  /// "(1) REASON: 80 layers, the first NAME", a line a note.
  void print() const;
  /// "3 more layers: REASON", a line for each note of several layers.
  std::vector<std::string> repeated() const;
  size_t size() const { return notes_.size(); }
  bool empty() const { return notes_.empty(); }

 private:
  struct Note {
    std::string reason, first;  ///< the reason without the name
    std::string whole;          ///< the reason as it was given, for a note of one layer
    size_t layers;
  };
  std::vector<Note> notes_;
};

/// Says on stderr that layers of a file were left out, if any were.
void note_left_out(size_t layers);

}  // namespace metal_marlin::tools
