#include "roofline.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "command.h"
#include "cpu_info.h"
#include "label_places.h"
#include "names.h"

namespace metal_marlin::tools {
namespace {

// The colors of Okabe and Ito. Everyone can distinguish them, on white and on dark gray.
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73",
                                   "#cc79a7", "#e69f00", "#56b4e9"};
constexpr double kWidth = 960, kHeight = 600;
constexpr double kLeft = 84, kRight = 730, kTop = 84, kBottom = 528;

/// A logarithmic axis from a power of two or ten to another.
struct Axis {
  double low, high;  // values
  double from, to;   // pixels
  double at(double value) const {
    return from +
           (std::log(value) - std::log(low)) / (std::log(high) - std::log(low)) * (to - from);
  }
};

std::string escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  }
  return out;
}

std::string rate_text(double rate) {
  return rate >= 1e12 ? fmt::format("{:.3g} T", rate / 1e12) : fmt::format("{:.3g} G", rate / 1e9);
}

/// 1, 2 or 5 times a power of ten.
double round_down(double value) {
  const double decade = std::pow(10, std::floor(std::log10(value)));
  return decade * (value >= 5 * decade ? 5 : value >= 2 * decade ? 2 : 1);
}

class Drawing {
 public:
  explicit Drawing(const Roofline& r) : r_(r) {
    double least = r.points.empty() ? 1 : r.points[0].intensity, most = least;
    double slowest = least * r.read_rate, fastest = slowest;
    for (const auto& p : r.points) {
      least = std::min(least, p.intensity);
      most = std::max(most, p.intensity);
      slowest = std::min(slowest, p.rate);
      fastest = std::max(fastest, p.rate);
    }
    for (const auto& [name, peak] : r.peaks) {
      fastest = std::max(fastest, peak);
      most = std::max(most, peak / r.read_rate);  // the ridge must be in the picture
    }
    x_ = {std::exp2(std::floor(std::log2(least / 1.4))),
          std::exp2(std::ceil(std::log2(most * 1.4))), kLeft, kRight};
    y_ = {round_down(slowest / 2), 1.6 * fastest, kBottom, kTop};
    size_t next = 0;
    for (const auto& p : r.points) {
      std::string& color = colors_[p.series];
      if (color.empty()) color = kColors[next++ % std::size(kColors)], legend_.push_back(p.series);
    }
  }

  std::string render() {
    head();
    axes();
    roofs();
    points();
    labels();
    legend();
    return out_ + "</svg>\n";
  }

 private:
  void head() {
    out_ += fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" role=\"img\">\n"
        "<title>{2}</title>\n<style>\n"
        "text {{ font: 13px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #333 }}\n"
        ".title {{ font-size: 18px; font-weight: 600 }} .small {{ font-size: 11.5px; fill: #666 "
        "}}\n"
        ".page {{ fill: #fff }} .grid {{ stroke: #e6e6e6 }} .axis {{ stroke: #888 }} .ring {{ "
        "fill: #fff }} .disc {{ stroke: "
        "#fff }}\n"
        ".roof {{ stroke: #444; fill: none; stroke-width: 2 }} .peak {{ stroke: #444; fill: none; "
        "stroke-dasharray: 7 4 }}\n"
        "@media (prefers-color-scheme: dark) {{\n"
        "text {{ fill: #ddd }} .small {{ fill: #aaa }} .page, .ring {{ fill: #1b1d20 }} .grid {{ "
        "stroke: #303338 }} .disc {{ "
        "stroke: #1b1d20 }}\n"
        ".roof, .peak {{ stroke: #ccc }}\n}}\n</style>\n"
        "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
        kWidth, kHeight, escape(r_.title));
    text(kLeft, 34, "title", "start", r_.title);
    text(kLeft, 56, "small", "start", r_.subtitle);
  }

  void axes() {
    const auto octave = [](double value) {
      return static_cast<int>(std::lround(std::log2(value)));
    };
    for (int power = octave(x_.low); power <= octave(x_.high); ++power) {
      const double v = std::exp2(power);
      line("grid", x_.at(v), kTop, x_.at(v), kBottom);
      text(x_.at(v), kBottom + 20, "", "middle", fmt::format("{:g}", v));
    }
    const auto decade = [](double value) {
      return static_cast<int>(std::floor(std::log10(value)));
    };
    for (int power = decade(y_.low); power <= decade(y_.high); ++power) {
      for (int step : {1, 2, 5}) {
        const double v = step * std::pow(10, power);
        if (v < y_.low || v > y_.high) continue;
        line("grid", kLeft, y_.at(v), kRight, y_.at(v));
        text(kLeft - 8, y_.at(v) + 4, "", "end", fmt::format("{:g}", v / 1e9));
      }
    }
    line("axis", kLeft, kBottom, kRight, kBottom);
    line("axis", kLeft, kTop, kLeft, kBottom);
    text((kLeft + kRight) / 2, kBottom + 46, "", "middle", "operations per byte of packed weights");
    out_ += fmt::format(
        "<text transform=\"translate(24 {}) rotate(-90)\" text-anchor=\"middle\">GFLOP/s</text>\n",
        (kTop + kBottom) / 2);
  }

  void roofs() {
    auto peaks = r_.peaks;
    std::sort(peaks.begin(), peaks.end(),
              [](const auto& a, const auto& b) { return a.second > b.second; });
    const double highest = peaks.empty() ? 0 : peaks.front().second;
    double label = 0;
    for (const auto& [name, peak] : peaks) {
      const double y = y_.at(peak);
      line("peak", std::max(kLeft, x_.at(peak / r_.read_rate)), y, kRight, y);
      constexpr double kLineHeight = 15;
      label = std::max(y + 4, label + kLineHeight);
      text(kRight + 8, label, "small", "start", fmt::format("{}  {}op/s", name, rate_text(peak)));
    }
    const double ridge = highest > 0 ? highest / r_.read_rate : x_.high;
    // The memory roof enters at the left edge, or at the bottom if it lies below the picture at the
    // left edge.
    const double start = std::max(x_.low, y_.low / r_.read_rate);
    line("roof", x_.at(start), y_.at(start * r_.read_rate), x_.at(ridge),
         y_.at(ridge * r_.read_rate));
    roof_from_ = {x_.at(start), y_.at(start * r_.read_rate)};
    roof_to_ = {x_.at(ridge), y_.at(ridge * r_.read_rate)};
  }

  void points() {
    for (const auto& p : r_.points) {
      const double x = x_.at(p.intensity), y = y_.at(p.rate);
      const std::string& color = colors_[p.series];
      out_ += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" {}><title>{} M={}: {:.0f} GFLOP/s, {:.0f}% "
          "of its "
          "limit</title></circle>\n",
          x, y, mark(p.filled, color), escape(p.series), p.m, p.rate / 1e9, 100 * p.fraction);
    }
  }

  /// Labels come after all points, each at the first of its places that nothing else takes.
  void labels() {
    LabelPlaces places({kLeft, kTop, kRight, kBottom});
    for (const auto& p : r_.points) places.take_point(x_.at(p.intensity), y_.at(p.rate));
    // Each cluster has one label: points of one M lie apart if one format has 8 bits per weight and
    // the others have 4.
    std::map<std::pair<int64_t, bool>, Box> clusters;
    for (const auto& p : r_.points) {
      const double x = x_.at(p.intensity), y = y_.at(p.rate);
      const double bits_a_weight = 16 * static_cast<double>(p.m) / p.intensity;
      auto [it, fresh] = clusters.try_emplace({p.m, bits_a_weight > 6}, Box{x, y, x, y});
      it->second.add(x, y);
    }
    const std::string reading = fmt::format("reading memory  {}B/s", rate_text(r_.read_rate));
    const Label roof = places.along(roof_from_, roof_to_, reading);
    out_ += fmt::format(
        "<text class=\"small\" transform=\"translate({:.1f} {:.1f}) rotate({:.1f})\" "
        "text-anchor=\"middle\">{}</text>\n",
        roof.x, roof.y, roof.degrees, escape(reading));
    places.take_line(roof_from_, roof_to_);
    for (const auto& [key, box] : clusters) {
      const std::string words = fmt::format("M={}", key.first);
      const Label label = places.beside(box, words);
      text(label.x, label.y, "label", "middle", words);
    }
  }

  /// A disc has an edge in the color of the page, so that neighbors stay distinct.
  static std::string mark(bool filled, const std::string& color) {
    return filled ? fmt::format("class=\"disc\" fill=\"{}\"", color)
                  : fmt::format("class=\"ring\" stroke=\"{}\" stroke-width=\"2\"", color);
  }

  void legend() {
    double y = kBottom - 22 * static_cast<double>(legend_.size() + 3) - 4;
    for (const std::string& series : legend_) {
      out_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"5\" fill=\"{}\"/>\n", kRight + 26, y,
                          colors_[series]);
      text(kRight + 40, y + 4.5, "", "start", series);
      y += 22;
    }
    y += 8;
    for (const auto& [filled, words] :
         {std::pair{true, "default compute"}, std::pair{false, "INT8 compute"}}) {
      out_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"5\" {}/>\n", kRight + 26, y,
                          mark(filled, "#888"));
      text(kRight + 40, y + 4.5, "", "start", words);
      y += 22;
    }
  }

  void line(const char* kind, double x1, double y1, double x2, double y2) {
    out_ += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1,
        y1, x2, y2);
  }
  void text(double x, double y, const char* kind, const char* anchor, const std::string& words) {
    out_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n",
                    x, y, kind, anchor, escape(words));
  }

  const Roofline& r_;
  Axis x_{}, y_{};
  PicturePoint roof_from_{}, roof_to_{};  // the ends of the memory roof, in pixels
  std::map<std::string, std::string> colors_;
  std::vector<std::string> legend_;
  std::string out_;
};

}  // namespace

Roofline roofline_of(std::span<const Measurement> measurements) {
  Roofline r{};
  std::vector<double> reads;
  std::map<std::string, std::vector<double>> peaks;
  for (const Measurement& m : measurements) {
    reads.push_back(m.read_rate);
    peaks[m.instruction].push_back(m.peak);
  }
  r.read_rate = median(reads);
  for (const auto& [name, samples] : peaks) r.peaks.emplace_back(name, median(samples));
  for (const Measurement& m : measurements) {
    const double intensity = m.operations() / static_cast<double>(m.bytes);
    const double limit = m.read_bound() ? intensity * r.read_rate : median(peaks[m.instruction]);
    r.points.push_back({format_name(m.format), m.job.compute != MARLIN_COMPUTE_INT8, m.job.m,
                        intensity, m.fraction_of_limit() * limit, m.fraction_of_limit()});
  }
  if (!measurements.empty()) {
    const Measurement& m = measurements.front();
    r.reading = m.reading;
    r.title = fmt::format("{} x {} weights: products against the machine's limits", m.n, m.k);
    r.subtitle =
        fmt::format("{}, {} threads; limits measured in the same run", cpu_info().model, m.threads);
  }
  return r;
}

std::string limits_text(const Roofline& roofline) {
  std::string text = fmt::format("reading memory {:.1f} GB/s", roofline.read_rate / 1e9);
  if (!roofline.reading.empty()) text += fmt::format(" ({})", roofline.reading);
  for (const auto& [name, peak] : roofline.peaks)
    text += fmt::format(", {} {:.0f} Gop/s", name, peak / 1e9);
  return text;
}

std::string render_roofline(const Roofline& roofline) { return Drawing(roofline).render(); }

}  // namespace metal_marlin::tools
