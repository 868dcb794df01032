// The choice of the fastest way of reading memory, with planted rates, and the labels of the roofline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <regex>

#include "tools/label_places.h"
#include "tools/machine_limits.h"
#include "tools/read_kernels.h"
#include "tools/roofline.h"

namespace metal_marlin::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const auto kNever = [] { return false; };

TEST(Fastest, HasTheLargestMedianAndNotTheLargestRate) {
  const std::vector<std::vector<double>> planted = {{20, 21, 20, 20, 22}, {99, 17, 18, 99, 17}, {22, 22, 23, 3, 23}};
  std::vector<size_t> rounds(planted.size());
  const auto rate = [&](size_t i) { return planted[i][rounds[i]++]; };
  EXPECT_EQ(fastest(planted.size(), 5, rate, kNever), 2u);
}

TEST(Fastest, OfEqualsIsTheFirst) {
  EXPECT_EQ(fastest(3, 4, [](size_t i) { return i == 0 ? 1.0 : 2.0; }, kNever), 1u);
}

TEST(Fastest, AsksInTurnsSoThatASlowMinuteSlowsAll) {
  std::vector<size_t> asked;
  double machine = 10;
  const auto rate = [&](size_t i) {
    asked.push_back(i);
    if (asked.size() > 3) machine = 6;  // from the second round on
    return machine * (i == 1 ? 1.05 : 1.0);
  };
  EXPECT_EQ(fastest(3, 3, rate, kNever), 1u);
  EXPECT_THAT(asked, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2));
}

TEST(Fastest, LeavesOutWhatIsFarBehind) {
  std::vector<int> asked(3);
  const auto rate = [&](size_t i) { return ++asked[i], i == 2 ? 7.9 : i == 1 ? 10.0 : 8.1; };
  EXPECT_EQ(fastest(3, 6, rate, kNever), 1u);
  EXPECT_THAT(asked, ElementsAre(6, 6, 1));
}

TEST(Fastest, EndsWithTheRoundInWhichTheTimeIsOver) {
  int asked = 0;
  const auto rate = [&](size_t i) { return ++asked, static_cast<double>(i + 1); };
  EXPECT_EQ(fastest(4, 100, rate, [] { return true; }), 3u);
  EXPECT_EQ(asked, 4);
}

TEST(ReadKernels, HaveNamesOfTheirOwnAndDependOnEveryByte) {
  constexpr size_t kBytes = 8 * 4096, kBeyond = 16384 + 128;
  std::vector<std::byte> buffer(kBytes + kBeyond + 64);
  std::byte* p = buffer.data() + (64 - reinterpret_cast<uintptr_t>(buffer.data()) % 64) % 64;
  std::vector<std::string> names;
  for (const ReadKernel& kernel : read_kernels()) {
    names.push_back(kernel.name);
    std::memset(p, 0, kBytes);
    EXPECT_EQ(kernel.run(p, kBytes), 0u) << kernel.name;
    for (size_t i = 0; i < kBytes; i += 8) {
      p[i + i / 8 % 8] = std::byte{0x40};
      ASSERT_NE(kernel.run(p, kBytes), 0u) << kernel.name << ": byte " << i + i / 8 % 8 << " is not read";
      p[i + i / 8 % 8] = std::byte{0};
    }
  }
  EXPECT_GE(names.size(), 8u);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end()) << *std::adjacent_find(names.begin(), names.end());
}

TEST(ReadKernels, AreNamedByWhatTheyDo) {
  EXPECT_EQ(read_kernel_name(64, 4, 2048, false), "64-byte loads, 4 streams, prefetched 2 KB ahead");
  EXPECT_EQ(read_kernel_name(32, 1, 512, true), "32-byte loads, 1 stream, prefetched 0.5 KB ahead for one use");
  EXPECT_EQ(read_kernel_name(16, 2, 0, false), "16-byte loads, 2 streams, not prefetched");
}

TEST(Limits, SayHowMemoryIsRead) {
  Limits limits(1);
  EXPECT_THAT(limits.reading(), HasSubstr("-byte loads, "));
  EXPECT_GT(limits.read_sample(), 0);
}

/// What a drawing has: centers of points, and middles of labels with half of their widths.
struct Circle {
  double x, y;
};
struct Text {
  double x, y, half, degrees;
  std::string words;
};

std::vector<Circle> circles_of(const std::string& svg) {
  const std::regex circle("<circle cx=\"([-0-9.]+)\" cy=\"([-0-9.]+)\" r=\"5\" [^>]*><title>");
  std::vector<Circle> found;
  for (std::sregex_iterator it(svg.begin(), svg.end(), circle), end; it != end; ++it)
    found.push_back({std::stod((*it)[1]), std::stod((*it)[2])});
  return found;
}

std::vector<Text> labels_of(const std::string& svg) {
  const std::regex flat("<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" class=\"label\"[^>]*>([^<]*)<"),
      turned("translate\\(([-0-9.]+) ([-0-9.]+)\\) rotate\\(([-0-9.]+)\\)\" text-anchor=\"middle\">(reading[^<]*)<");
  std::vector<Text> found;
  const auto half = [](const std::string& words) { return 3.4 * static_cast<double>(words.size()); };
  for (std::sregex_iterator it(svg.begin(), svg.end(), flat), end; it != end; ++it)
    found.push_back({std::stod((*it)[1]), std::stod((*it)[2]), half((*it)[3]), 0, (*it)[3]});
  for (std::sregex_iterator it(svg.begin(), svg.end(), turned), end; it != end; ++it)
    found.push_back({std::stod((*it)[1]), std::stod((*it)[2]), half((*it)[4]), std::stod((*it)[3]), (*it)[4]});
  return found;
}

/// Whether the point lies on the letters, in the coordinates of the text.
bool covers(const Text& text, const Circle& point) {
  const double turn = text.degrees * M_PI / 180, dx = point.x - text.x, dy = point.y - text.y;
  const double along = dx * std::cos(turn) + dy * std::sin(turn), down = dy * std::cos(turn) - dx * std::sin(turn);
  return std::abs(along) < text.half + 4 && down > -14 && down < 5;
}

TEST(Roofline, LabelsLieOnNoPointAndOnNoOtherLabel) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> part(0.4, 1.15);
    Roofline drawn{"title", "subtitle", 27e9, "", {{"vpdpbusd", 9e11}, {"vdpbf16ps", 4.5e11}}, {}};
    for (const char* series : {"int4", "mxfp4", "nvfp4", "int8"}) {
      for (const int64_t m : {1, 2, 4, 8, 64}) {
        for (const bool filled : {true, false}) {
          const double intensity = (series == std::string("int8") ? 1.9 : 3.6) * static_cast<double>(m);
          const double fraction = part(random);
          const double limit = std::min(27e9 * intensity, filled ? 4.5e11 : 9e11);
          drawn.points.push_back({series, filled, m, intensity, fraction * limit, fraction});
        }
      }
    }
    const std::string svg = render_roofline(drawn);
    const auto points = circles_of(svg);
    const auto labels = labels_of(svg);
    ASSERT_EQ(points.size(), drawn.points.size());
    ASSERT_EQ(labels.size(), 11u) << svg;  // five M, of two widths, and the roof
    for (const Text& label : labels) {
      for (const Circle& point : points)
        EXPECT_FALSE(covers(label, point)) << "seed " << seed << ": '" << label.words << "' lies on " << point.x << ", "
                                           << point.y;
      for (const Text& other : labels) {
        if (&other != &label) {
          EXPECT_FALSE(covers(label, {other.x, other.y - 4.5}))
              << "seed " << seed << ": " << label.words << " on " << other.words;
        }
      }
    }
  }
}

TEST(LabelPlaces, TakeTheNextPlaceWhereOneIsTaken) {
  LabelPlaces places({0, 0, 400, 400});
  const Label below = places.beside({200, 200, 200, 200}, "M=1");
  EXPECT_DOUBLE_EQ(below.y, 220);
  const Label above = places.beside({200, 200, 200, 200}, "M=2");
  EXPECT_DOUBLE_EQ(above.y, 189);
  LabelPlaces lined({0, 0, 400, 400});
  lined.take_line({0, 220}, {400, 220});
  EXPECT_DOUBLE_EQ(lined.beside({200, 200, 200, 200}, "M=1").y, 189);
  // A roof whose whole upper side is taken has its label below, and one without any room in the corner.
  LabelPlaces crowded({0, 0, 400, 400});
  for (double x = 0; x <= 400; x += 5) crowded.take_point(x, 400 - x - 14);
  const Label roof = crowded.along({0, 400}, {400, 0}, "reading memory");
  EXPECT_DOUBLE_EQ(roof.degrees, -45);
  EXPECT_GT(roof.x + roof.y, 410);
  for (double x = 0; x <= 400; x += 5) crowded.take_point(x, 400 - x + 14);
  EXPECT_DOUBLE_EQ(crowded.along({0, 400}, {400, 0}, "reading memory").degrees, 0);
}

}  // namespace
}  // namespace metal_marlin::tools
