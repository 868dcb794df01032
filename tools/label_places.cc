#include "label_places.h"

#include <algorithm>
#include <cmath>

namespace metal_marlin::tools {
namespace {

// A text of 13 pixels in a wide font. Its room is a row of circles, which need no other arithmetic
// when the text is turned.
constexpr double kLetter = 7.4, kWider = 8, kTextRadius = 7, kPointRadius = 6;
/// Between the places that are tried one after another, up or down.
constexpr double kStep = 4;

}  // namespace

void Box::add(double x, double y) {
  left = std::min(left, x);
  right = std::max(right, x);
  top = std::min(top, y);
  bottom = std::max(bottom, y);
}

bool Box::holds(const Box& other) const {
  return left <= other.left && top <= other.top && other.right <= right && other.bottom <= bottom;
}

void LabelPlaces::take_point(double x, double y) { taken_.push_back({x, y, kPointRadius}); }

void LabelPlaces::take_line(PicturePoint from, PicturePoint to) {
  const int steps = 1 + static_cast<int>(std::hypot(to.x - from.x, to.y - from.y) / kTextRadius);
  for (int i = 0; i <= steps; ++i) {
    const double part = static_cast<double>(i) / steps;
    taken_.push_back({from.x + part * (to.x - from.x), from.y + part * (to.y - from.y), 1});
  }
}

bool LabelPlaces::take(const Label& label, const std::string& words) {
  const double width = kLetter * static_cast<double>(words.size()) + kWider;
  const double half = std::max(0.0, width / 2 - kTextRadius);
  const double turn = label.degrees * M_PI / 180;
  // The middle of the letters lies above the base line.
  const double x = label.x + 4.5 * std::sin(turn), y = label.y - 4.5 * std::cos(turn);
  std::vector<Circle> room;
  const int steps = static_cast<int>(std::ceil(2 * half / kTextRadius));
  for (int i = 0; i <= steps; ++i) {
    const double at = steps == 0 ? 0 : half * (2.0 * i / steps - 1);
    room.push_back({x + at * std::cos(turn), y + at * std::sin(turn), kTextRadius});
  }
  for (const Circle& own : room) {
    if (!frame_.holds(
            {own.x - own.radius, own.y - own.radius, own.x + own.radius, own.y + own.radius}))
      return false;
    for (const Circle& other : taken_) {
      if (std::hypot(own.x - other.x, own.y - other.y) < own.radius + other.radius) return false;
    }
  }
  taken_.insert(taken_.end(), room.begin(), room.end());
  return true;
}

Label LabelPlaces::beside(const Box& cluster, const std::string& words) {
  const double middle = (cluster.left + cluster.right) / 2;
  const double side = kLetter * static_cast<double>(words.size()) / 2 + kPointRadius + 4;
  const double level = (cluster.top + cluster.bottom) / 2 + 4.5;
  std::vector<Label> places = {{middle, cluster.bottom + 20, 0},
                               {middle, cluster.top - 11, 0},
                               {cluster.right + side, level, 0},
                               {cluster.left - side, level, 0}};
  for (int i = 0; cluster.bottom + 24 + kStep * i < frame_.bottom; ++i)
    places.push_back({middle, cluster.bottom + 24 + kStep * i, 0});
  for (int i = 0; cluster.top - 15 - kStep * i > frame_.top; ++i)
    places.push_back({middle, cluster.top - 15 - kStep * i, 0});
  for (const Label& place : places) {
    if (take(place, words)) return place;
  }
  return places.front();
}

Label LabelPlaces::along(PicturePoint from, PicturePoint to, const std::string& words) {
  const double dx = to.x - from.x, dy = to.y - from.y, length = std::hypot(dx, dy);
  const double degrees = std::atan2(dy, dx) * 180 / M_PI;
  constexpr double kAbove = 9, kBelow = 19;
  for (int hundredths = 0; length > 0 && hundredths <= 50; hundredths += 2) {
    const double offset = hundredths / 100.0;
    for (double part : {0.5 + offset, 0.5 - offset}) {
      for (double away : {-kAbove, kBelow}) {
        const Label place = {from.x + part * dx - away * dy / length,
                             from.y + part * dy + away * dx / length, degrees};
        if (take(place, words)) return place;
      }
    }
  }
  const double half = kLetter * static_cast<double>(words.size()) / 2;
  for (int i = 0; frame_.top + 16 + kStep * i < frame_.bottom; ++i) {
    const Label corner = {frame_.left + half + 4, frame_.top + 16 + kStep * i, 0};
    if (take(corner, words)) return corner;
  }
  return {frame_.left + half + 4, frame_.top + 16, 0};
}

}  // namespace metal_marlin::tools
