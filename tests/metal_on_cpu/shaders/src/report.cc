// Reports as text, tables and JSON.
#include <cstdio>
#include <sstream>

#include "../include/metal_on_cpu/metal_on_cpu.h"

namespace metal_on_cpu {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

using Row = std::pair<const char*, uint64_t>;
std::vector<Row> rows(const Counters& c) {
  return {{"threadgroups", c.threadgroups},
          {"threads", c.threads},
          {"threadgroup_barriers", c.threadgroup_barriers},
          {"simdgroup_barriers", c.simdgroup_barriers},
          {"reductions", c.reductions},
          {"shuffles", c.shuffles},
          {"votes", c.votes},
          {"matrix_multiplies", c.matrix_multiplies},
          {"tensor_multiply_adds", c.tensor_multiply_adds},
          {"registers_estimated", c.registers_estimated},
          {"threadgroup_memory", c.threadgroup_memory},
          {"threadgroup_bytes_read", c.threadgroup_bytes_read},
          {"threadgroup_bytes_written", c.threadgroup_bytes_written},
          {"threadgroup_accesses", c.threadgroup_accesses},
          {"bank_conflicts", c.bank_conflicts},
          {"atomics", c.atomics}};
}
std::vector<Row> rows(const BufferCounters& b) {
  return {{"bytes_read", b.bytes_read},
          {"bytes_written", b.bytes_written},
          {"reads", b.reads},
          {"writes", b.writes},
          {"unique_bytes_read", b.unique_bytes_read},
          {"unique_bytes_written", b.unique_bytes_written},
          {"unique_lines", b.unique_lines},
          {"simdgroup_accesses", b.simdgroup_accesses},
          {"simdgroup_lines", b.simdgroup_lines}};
}

std::string fields(const std::vector<Row>& all) {
  std::string out;
  for (const auto& [name, n] : all) out += (out.empty() ? "" : ",") + quoted(name) + ":" + std::to_string(n);
  return out;
}

std::string triple(const Size3& s) {
  return "[" + std::to_string(s.x) + "," + std::to_string(s.y) + "," + std::to_string(s.z) + "]";
}

}  // namespace

std::string Counters::json() const {
  std::string ops, buffer_list;
  for (const auto& [name, n] : operations) ops += (ops.empty() ? "" : ",") + quoted(name) + ":" + std::to_string(n);
  for (const auto& [index, b] : buffers) {
    buffer_list += (buffer_list.empty() ? "" : ",") + quoted(std::to_string(index)) + ":{" + fields(rows(b)) + "}";
  }
  return "{" + fields(rows(*this)) + ",\"operations\":{" + ops + "},\"buffers\":{" + buffer_list + "}}";
}

std::string Counters::table() const {
  std::ostringstream out;
  char line[256];
  for (const auto& [name, n] : rows(*this)) {
    std::snprintf(line, sizeof line, "%-26s %14llu\n", name, static_cast<unsigned long long>(n));
    out << line;
  }
  for (const auto& [name, n] : operations) {
    std::snprintf(line, sizeof line, "%-26s %14llu\n", ("operations: " + name).c_str(), static_cast<unsigned long long>(n));
    out << line;
  }
  if (!buffers.empty()) {
    out << "buffer     read      unique   written      unique   accesses  lines/access  lines/unique\n";
  }
  for (const auto& [index, b] : buffers) {
    const auto per = [](uint64_t a, uint64_t n) { return n ? static_cast<double>(a) / static_cast<double>(n) : 0.0; };
    std::snprintf(line, sizeof line, "%4d %11llu %11llu %9llu %11llu %10llu %13.2f %13.2f\n", index,
                  static_cast<unsigned long long>(b.bytes_read), static_cast<unsigned long long>(b.unique_bytes_read),
                  static_cast<unsigned long long>(b.bytes_written), static_cast<unsigned long long>(b.unique_bytes_written),
                  static_cast<unsigned long long>(b.simdgroup_accesses), per(b.simdgroup_lines, b.simdgroup_accesses),
                  per(b.simdgroup_lines, b.unique_lines));
    out << line;
  }
  return out.str();
}

std::string Report::text() const {
  std::string out;
  for (const Finding& f : findings) out += f.text() + "\n";
  return out;
}

std::string Report::json() const {
  std::string list;
  for (const Finding& f : findings) {
    list += (list.empty() ? "" : ",") + std::string("{\"kind\":") + quoted(f.kind) + ",\"file\":" + quoted(f.file) +
            ",\"line\":" + std::to_string(f.line) + ",\"kernel\":" + quoted(f.kernel) + ",\"message\":" + quoted(f.message) +
            ",\"threadgroup\":" + triple(f.threadgroup) + ",\"thread\":" + triple(f.thread) +
            ",\"buffer\":" + std::to_string(f.buffer) + ",\"offset\":" + std::to_string(f.offset) +
            ",\"count\":" + std::to_string(f.count) + "}";
  }
  return "{\"findings\":[" + list + "],\"complete\":" + (complete ? "true" : "false") +
         ",\"seconds\":" + std::to_string(seconds) + ",\"cpu_seconds\":" + std::to_string(cpu_seconds) +
         ",\"counters\":" + counters.json() + "}";
}

}  // namespace metal_on_cpu
