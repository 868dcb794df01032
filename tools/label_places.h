// Places for the labels of a drawing, so that none lies on a point or on another label.
#pragma once

#include <string>
#include <vector>

namespace metal_marlin::tools {

/// In pixels, y downwards.
struct PicturePoint {
  double x, y;
};

struct Box {
  double left, top, right, bottom;

  void add(double x, double y);
  bool holds(const Box& other) const;
};

/// Where a text is anchored: the middle of its base line, turned by `degrees` about this place.
struct Label {
  double x, y, degrees;
};

class LabelPlaces {
 public:
  /// Labels stay inside of the frame.
  explicit LabelPlaces(const Box& frame) : frame_(frame) {}

  /// A point of the drawing, a circle with a radius of 5 and an edge.
  void take_point(double x, double y);
  /// A line of the drawing.
  void take_line(PicturePoint from, PicturePoint to);
  /// The label of a cluster of points: below, above, right or left of it, or the nearest free place
  /// farther below.
  Label beside(const Box& cluster, const std::string& words);
  /// The label of a line that rises from `from` to `to`: above or below it, as near to its middle
  /// as possible; in the upper left corner of the frame if the line has no free place.
  Label along(PicturePoint from, PicturePoint to, const std::string& words);

 private:
  /// Takes the room of a turned text, if nothing else has a part of it.
  bool take(const Label& label, const std::string& words);

  struct Circle {
    double x, y, radius;
  };
  Box frame_;
  std::vector<Circle> taken_;
};

}  // namespace metal_marlin::tools
