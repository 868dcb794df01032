// Prints the tables of docs/metal.md: work of the Metal kernels, counted on the CPU.
//   metal_counters [--json] [--format NAME,...] [-m M,...] [--experts E [--top-k K] [--skew S]]
// With --experts, of mixtures of experts, whose tokens are M. Exits with 0 whether or not goals are met (the tests judge them),
// 2 for a wrong command line, 3 when a product fails.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>

#include "counted.h"
#include "counted_experts.h"
#include "tools/json.h"
#include "tools/table.h"

namespace {

using namespace shaders;
using metal_marlin::tools::Json;
using metal_marlin::tools::Table;

struct Options {
  bool json = false;
  std::vector<std::string> formats, m;
  int64_t experts = 0, top_k = 1;
  double skew = 0;
};

constexpr const char* kUsage =
    "usage: metal_counters [--json] [--format NAME,...] [-m M,...] [--experts E [--top-k K] [--skew S]]\n";

std::vector<std::string> split(const char* list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

/// A whole number from 1 to `most`, or 0.
int64_t whole(const std::string& text, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= most ? value : 0;
}

/// An option that has a value.
bool take(const char* name, const char* value, Options& options) {
  const std::string option = name;
  char* end = nullptr;
  if (option == "--format")
    options.formats = split(value);
  else if (option == "-m")
    options.m = split(value);
  else if (option == "--experts")
    return (options.experts = whole(value, 1024)) != 0;
  else if (option == "--top-k")
    return (options.top_k = whole(value, 1024)) != 0;
  else if (option == "--skew")
    return (options.skew = std::strtod(value, &end)) >= 0 && end != value && *end == 0;
  else
    return false;
  return true;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0)
      options.json = true;
    else if (i + 1 >= argc || !take(argv[i], argv[i + 1], options))
      return false;
    else
      ++i;
  }
  return options.experts == 0 || options.top_k <= options.experts;
}

bool listed(const std::vector<std::string>& list, const std::string& what) {
  return list.empty() || std::find(list.begin(), list.end(), what) != list.end();
}

bool is_k_quant(const CountedProduct& c) { return metal_marlin::is_two_level(c.kind.scale_type); }

/// "int4" of "int4_zeros_sparse"; "q4_k".
std::string format_of(const CountedProduct& c) {
  const std::string name = c.kind.name;
  return is_k_quant(c) ? name : name.substr(0, name.find('_'));
}

std::string weights_of(const CountedProduct& c) {
  std::string text = format_of(c);
  if (c.kind.zeros == ZeroKind::integer) text += " zeros";
  if (c.kind.zeros == ZeroKind::additive && !is_k_quant(c)) text += " additive";
  if (c.kind.sparse) text += " 2:4";
  if (c.a_type != MARLIN_F16) text += c.a_type == MARLIN_F32 ? ", A f32" : ", A bf16";
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value == static_cast<double>(static_cast<int64_t>(value)) ? "%.0f" : "%.2f", value);
  return text;
}

/// "gemv_m4" of "gemv_fp4_f16_m4".
std::string kernel_of(const std::string& name) { return name.substr(0, name.find('_')) + name.substr(name.find("_m")); }

/// "met", or the quantities that missed.
std::string verdict(const std::vector<Quantity>& quantities) {
  std::string missed;
  for (const Quantity& q : quantities)
    if (!q.met()) missed += (missed.empty() ? "missed: " : ", ") + std::string(q.name);
  return missed.empty() ? "met" : missed;
}

void add_quantities(const std::vector<Quantity>& quantities, Json& json) {
  bool all = true;
  for (const Quantity& q : quantities) {
    Json& entry = json["counted"][q.name] = {{"value", q.value}};
    if (q.goal) {
      entry["goal"] = *q.goal;
      entry["goal_is"] = q.kind == Goal::exactly ? "exact" : "most";
      entry["met"] = q.met();
    }
    all = all && q.met();
  }
  json["met"] = all;
}

Json record(const CountedProduct& c, const Counted& counted) {
  Json json = {{"kernel", counted.kernel},
               {"format", format_of(c)},
               {"zeros", ""},
               {"sparse", c.kind.sparse ? "2:4" : "none"},
               {"group", c.group},
               {"M", c.m},
               {"dtype", c.a_type == MARLIN_F32   ? "f32"
                         : c.a_type == MARLIN_F16 ? "f16"
                                                  : "bf16"},
               {"N", kCountedN},
               {"K", kCountedK},
               {"passes", counted.passes}};
  json["zeros"] = c.kind.zeros == ZeroKind::none ? "none" : c.kind.zeros == ZeroKind::integer ? "integer" : "additive";
  constexpr std::pair<int, const char*> kBuffers[] = {
      {MARLIN_BUFFER_CODES, "codes"}, {MARLIN_BUFFER_SCALES, "scales"}, {MARLIN_BUFFER_A, "activations"}};
  for (const auto& [buffer, name] : kBuffers) {
    const metal_on_cpu::BufferCounters& b = counted.counters.buffers.at(buffer);
    json[name] = {{"requested_bytes", b.bytes_read},
                  {"unique_bytes", b.unique_bytes_read},
                  {"simdgroup_lines", b.simdgroup_lines},
                  {"unique_lines", b.unique_lines}};
  }
  add_quantities(counted.quantities, json);
  return json;
}

Json record(const ExpertCase& c, const CountedExperts& counted) {
  Json json = {{"kernel", counted.kernel},
               {"format", c.weights},
               {"compute", c.int8 ? "int8" : "default"},
               {"act_order", c.act_order},
               {"tokens", c.tokens},
               {"top_k", c.top_k},
               {"experts", c.experts},
               {"skew", c.skew},
               {"N", kExpertN},
               {"K", kExpertK},
               {"distinct", counted.distinct},
               {"tiles", counted.items},
               {"routed_rows", counted.rows}};
  for (const auto& [kernel, counters] : counted.dispatches) {
    Json& of_kernel = json["dispatches"][kernel];
    for (const auto& [buffer, b] : counters.buffers)
      of_kernel[std::to_string(buffer)] = {
          {"requested_bytes", b.bytes_read}, {"written_bytes", b.bytes_written}, {"simdgroup_lines", b.simdgroup_lines}};
  }
  add_quantities(counted.quantities, json);
  return json;
}

/// Rows as they are counted; the goals, of which a column may have several, come first.
class Rows {
 public:
  /// Columns before those of quantities.
  explicit Rows(std::vector<Table::Column> columns) : columns_(std::move(columns)), before_(columns_.size()) {}

  void add(std::vector<std::string> cells, const std::vector<Quantity>& quantities) {
    goals_.resize(quantities.size());
    for (size_t i = 0; i < quantities.size(); ++i) {
      const Quantity& q = quantities[i];
      if (rows_.empty()) columns_.push_back({q.name, Table::Align::right});
      cells.push_back(number(q.value));
      if (q.goal) goals_[i].insert((q.kind == Goal::exactly ? "" : "<=") + number(*q.goal));
    }
    cells.push_back(verdict(quantities));
    rows_.push_back(cells);
  }
  void print() const {
    std::vector<Table::Column> columns = columns_;
    columns.push_back({"goals"});
    Table table(columns);
    std::vector<std::string> goals(before_);
    goals[0] = "goal";
    for (const auto& of_column : goals_) {
      std::string all;
      for (const std::string& goal : of_column) all += (all.empty() ? "" : " ") + goal;
      goals.push_back(all);
    }
    goals.emplace_back("");
    table.row(goals);
    for (const auto& cells : rows_) table.row(cells);
    table.print();
  }

 private:
  std::vector<Table::Column> columns_;
  const size_t before_;
  std::vector<std::set<std::string>> goals_;
  std::vector<std::vector<std::string>> rows_;
};

/// Counts every one of the cases that the options list. Returns the status to exit with.
template <class Result, class Cases, class Listed, class Cells>
int count_all(const Options& options, const Cases& cases, const Listed& is_listed, const Cells& cells, Rows& rows) {
  bool any = false;
  for (const auto& c : cases) {
    if (!is_listed(c)) continue;
    Result counted;
    if (const auto done = count(c, counted); !done) {
      std::fprintf(stderr, "metal_counters: %s\n", done.message());
      return 3;
    }
    any = true;
    rows.add(cells(c, counted), counted.quantities);
    if (!options.json) continue;
    std::printf("%s\n", record(c, counted).dump().c_str());
    std::fflush(stdout);  // a record is of use as soon as it is made
  }
  if (any && !options.json) rows.print();
  return any ? 0 : 2;
}

int count_products(const Options& options) {
  using enum Table::Align;
  Rows rows({{"weights"}, {"group", right}, {"M", right}, {"kernel"}});
  const int status = count_all<Counted>(
      options, counted_cases(),
      [&](const CountedProduct& c) { return listed(options.formats, format_of(c)) && listed(options.m, std::to_string(c.m)); },
      [](const CountedProduct& c, const Counted& counted) {
        return std::vector<std::string>{weights_of(c), c.group != 0 ? std::to_string(c.group) : "row", std::to_string(c.m),
                                        counted.kernel};
      },
      rows);
  if (status == 2)
    std::fprintf(stderr, "metal_counters: nothing is counted for these formats and M; M is 1, 2, 4, 8, 16, 32, 64 or 128\n");
  return status;
}

int count_experts(const Options& options) {
  using enum Table::Align;
  constexpr int64_t kMostTokens = 1024;
  std::vector<int64_t> tokens;
  for (const std::string& m : options.m) tokens.push_back(whole(m, kMostTokens));
  if (options.m.empty()) tokens.assign(std::begin(kCountedTokens), std::end(kCountedTokens));
  if (std::find(tokens.begin(), tokens.end(), 0) != tokens.end()) {
    std::fprintf(stderr, "metal_counters: -m: expected numbers of tokens from 1 to %d\n", static_cast<int>(kMostTokens));
    return 2;
  }
  Rows rows({{"weights"}, {"T", right}, {"experts", right}, {"tiles", right}, {"kernel"}});
  const int status = count_all<CountedExperts>(
      options, counted_experts(tokens, options.top_k, options.experts, options.skew),
      [&](const ExpertCase& c) { return listed(options.formats, c.weights); },
      [](const ExpertCase& c, const CountedExperts& counted) {
        return std::vector<std::string>{std::string(c.weights) + (c.int8        ? ", A int8"
                                                                  : c.act_order ? " act-order"
                                                                                : ""),
                                        std::to_string(c.tokens), std::to_string(counted.distinct),
                                        std::to_string(counted.items), kernel_of(counted.kernel)};
      },
      rows);
  if (status == 2) std::fprintf(stderr, "metal_counters: experts are counted for mxfp4, nvfp4 and int4\n");
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return options.experts == 0 ? count_products(options) : count_experts(options);
}
