// The table of `metal-marlin bench --metal-counters`, which runs this program: work of the Metal kernels, counted on the CPU.
//   metal_counters [--json] [--format NAME,...] [-m M,...]
// Exits with 0 whether or not goals are met (the tests judge them), 2 for a wrong command line, 3 when a product fails.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "counted.h"
#include "tools/table.h"

namespace {

using nlohmann::ordered_json;
using namespace shaders;
using metal_marlin::tools::Table;

struct Options {
  bool json = false;
  std::vector<std::string> formats, m;
};

std::vector<std::string> split(const char* list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--json") == 0)
      options.json = true;
    else if (more && std::strcmp(argv[i], "--format") == 0)
      options.formats = split(argv[++i]);
    else if (more && std::strcmp(argv[i], "-m") == 0)
      options.m = split(argv[++i]);
    else
      return false;
  }
  return true;
}

bool listed(const std::vector<std::string>& list, const std::string& what) {
  return list.empty() || std::find(list.begin(), list.end(), what) != list.end();
}

/// "int4" of "int4_zeros_sparse".
std::string format_of(const Case& c) {
  const std::string name = c.kind.name;
  return name.substr(0, name.find('_'));
}

std::string weights_of(const Case& c) {
  std::string text = format_of(c);
  if (c.kind.zeros == ZeroKind::integer) text += " zeros";
  if (c.kind.zeros == ZeroKind::additive) text += " additive";
  if (c.kind.sparse) text += " 2:4";
  if (c.a_type != MARLIN_F16) text += c.a_type == MARLIN_F32 ? ", A f32" : ", A bf16";
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value == static_cast<double>(static_cast<int64_t>(value)) ? "%.0f" : "%.2f", value);
  return text;
}

/// "met", or the quantities that missed.
std::string verdict(const Counted& counted) {
  std::string missed;
  for (const Quantity& q : counted.quantities)
    if (!q.met()) missed += (missed.empty() ? "missed: " : ", ") + std::string(q.name);
  return missed.empty() ? "met" : missed;
}

ordered_json record(const Case& c, const Counted& counted) {
  ordered_json json = {{"kernel", counted.kernel},
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
  bool all = true;
  for (const Quantity& q : counted.quantities) {
    ordered_json& entry = json["counted"][q.name] = {{"value", q.value}};
    if (q.goal) entry.update({{"goal", *q.goal}, {"goal_is", q.kind == Goal::exactly ? "exact" : "most"}, {"met", q.met()}});
    all = all && q.met();
  }
  json["met"] = all;
  return json;
}

/// Rows as they are counted; the goals, of which a column may have several, come first.
class Rows {
 public:
  void add(const Case& c, const Counted& counted) {
    goals_.resize(counted.quantities.size());
    std::vector<std::string> cells = {weights_of(c), c.group != 0 ? std::to_string(c.group) : "row", std::to_string(c.m),
                                      counted.kernel};
    names_.clear();
    for (size_t i = 0; i < counted.quantities.size(); ++i) {
      const Quantity& q = counted.quantities[i];
      names_.emplace_back(q.name);
      cells.push_back(number(q.value));
      if (q.goal) goals_[i].insert((q.kind == Goal::exactly ? "" : "<=") + number(*q.goal));
    }
    cells.push_back(verdict(counted));
    rows_.push_back(cells);
  }
  void print() const {
    using enum Table::Align;
    std::vector<Table::Column> columns = {{"weights"}, {"group", right}, {"M", right}, {"kernel"}};
    for (const std::string& name : names_) columns.push_back({name, right});
    columns.push_back({"goals"});
    Table table(columns);
    std::vector<std::string> goals = {"goal", "", "", ""};
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
  std::vector<std::string> names_;
  std::vector<std::set<std::string>> goals_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: metal_counters [--json] [--format NAME,...] [-m M,...]\n");
    return 2;
  }
  Rows rows;
  bool any = false;
  for (const Case& c : counted_cases()) {
    if (!listed(options.formats, format_of(c)) || !listed(options.m, std::to_string(c.m))) continue;
    Counted counted;
    if (const auto done = count(c, counted); !done) {
      std::fprintf(stderr, "metal_counters: %s\n", done.message());
      return 3;
    }
    any = true;
    rows.add(c, counted);
    if (!options.json) continue;
    std::printf("%s\n", record(c, counted).dump().c_str());
    std::fflush(stdout);  // a record is of use as soon as it is made
  }
  if (!any) {
    std::fprintf(stderr, "metal_counters: nothing is counted for these formats and M; M is 1, 2, 4, 8, 16, 32, 64 or 128\n");
    return 2;
  }
  if (!options.json) rows.print();
  return 0;
}
