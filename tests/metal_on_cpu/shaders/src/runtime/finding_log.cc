#include "finding_log.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "../beside.h"
#include "../compiler/process.h"

namespace metal_on_cpu {
namespace {

struct SourceLine {
  std::string file;
  uint32_t line = 0;
};

std::string without_dot(const std::string& file) { return file.starts_with("./") ? file.substr(2) : file; }

// The innermost frame of the shader itself, among those that were inlined at this address.
SourceLine innermost(std::istream& lines) {
  SourceLine place;
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    const size_t column = line.rfind(':'), number = line.rfind(':', column - 1);
    if (column == std::string::npos || number == std::string::npos || !place.file.empty()) continue;
    const std::string file = line.substr(0, number);
    const auto n = static_cast<uint32_t>(std::strtoul(line.c_str() + number + 1, nullptr, 10));
    if (file.find(kPreludeFolder) == std::string::npos && file != "??" && n != 0) place = {without_dot(file), n};
  }
  return place;
}

std::map<uintptr_t, SourceLine> symbolize(const std::vector<uintptr_t>& addresses, const std::string& image) {
  std::map<uintptr_t, SourceLine> places;
  Dl_info info{};
  std::vector<std::string> command = {"llvm-symbolizer-19", "--obj=" + image, "--inlines", "--functions=none"};
  std::vector<uintptr_t> asked;
  for (const uintptr_t pc : addresses) {
    if (!dladdr(reinterpret_cast<void*>(pc), &info) || !info.dli_fname || image != info.dli_fname) continue;
    char text[32];
    // A return address is one past the call.
    std::snprintf(text, sizeof text, "0x%zx", static_cast<size_t>(pc - 1 - reinterpret_cast<uintptr_t>(info.dli_fbase)));
    command.emplace_back(text);
    asked.push_back(pc);
  }
  if (asked.empty()) return places;
  std::istringstream lines(run_process(command).output);
  for (const uintptr_t pc : asked) places[pc] = innermost(lines);
  return places;
}

}  // namespace

std::string Finding::text() const {
  std::ostringstream out;
  out << (file.empty() ? "?" : file) << ":" << line << ": " << kind << ": " << message;
  if (!kernel.empty()) out << " (kernel " << kernel;
  if (!kernel.empty() && !message.empty()) {
    out << ", threadgroup (" << threadgroup.x << "," << threadgroup.y << "," << threadgroup.z << "), thread (" << thread.x
        << "," << thread.y << "," << thread.z << ")";
  }
  if (!kernel.empty()) out << (count > 1 ? "; " + std::to_string(count) + " times)" : ")");
  return out.str();
}

std::string Report::text() const {
  std::string out;
  for (const Finding& f : findings) out += f.text() + "\n";
  return out;
}

bool FindingLog::add(const char* kind, const Where& where, int buffer) {
  const auto [at, fresh] = found_.try_emplace({kind, where.pc, where.file ? where.file : "", where.line, buffer});
  last_ = &at->second;
  if (!fresh) {
    last_->count++;
    return false;
  }
  last_->kind = kind;
  last_->buffer = buffer;
  return true;
}

std::vector<Finding> FindingLog::take(const std::string& image) {
  std::vector<uintptr_t> addresses;
  for (const auto& [key, finding] : found_) {
    if (std::get<1>(key)) addresses.push_back(std::get<1>(key));
  }
  const auto places = symbolize(addresses, image);
  std::vector<Finding> all;
  for (auto& [key, finding] : found_) {
    finding.file = without_dot(std::get<2>(key)), finding.line = std::get<3>(key);
    if (const auto place = places.find(std::get<1>(key)); place != places.end() && !place->second.file.empty()) {
      finding.file = place->second.file, finding.line = place->second.line;
    }
    // Several instructions of one line are one finding.
    const auto same = std::find_if(all.begin(), all.end(), [&](const Finding& f) {
      return f.kind == finding.kind && f.file == finding.file && f.line == finding.line && f.buffer == finding.buffer;
    });
    if (same == all.end())
      all.push_back(std::move(finding));
    else
      same->count += finding.count;
  }
  found_.clear();
  std::sort(all.begin(), all.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.file, a.line, a.kind, a.buffer) < std::tie(b.file, b.line, b.kind, b.buffer);
  });
  return all;
}

}  // namespace metal_on_cpu
