#include "differential.h"

#include <cstdlib>
#include <cstring>
#include <ostream>
#include <random>

#include "wheel.h"

namespace metal_on_cpu::differential {

Bytes random_bits(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes all(bytes);
  for (unsigned char& b : all) b = static_cast<unsigned char>(random() >> 24);
  return all;
}

Bytes random_values(const Type& type, size_t count, uint32_t seed, int least, int most) {
  std::mt19937_64 random(seed);
  const size_t bytes = type.exponent_bits ? std::min<size_t>(type.bytes, 4) : type.bytes;  // of one number
  Bytes all;
  all.reserve(count * type.bytes);
  for (size_t i = 0; i < count * type.bytes / bytes; ++i) {
    uint64_t bits = random();
    if (type.exponent_bits) {
      const int bias = (1 << (type.exponent_bits - 1)) - 1;
      const uint64_t mantissa = bits & ((uint64_t{1} << type.mantissa_bits) - 1), sign = bits >> 63,
                     exponent = static_cast<uint64_t>(bias + least) + (bits >> 32) % static_cast<uint64_t>(most - least + 1);
      bits = sign << (type.exponent_bits + type.mantissa_bits) | exponent << type.mantissa_bits | mantissa;
    } else if (std::strcmp(type.msl, "bool") == 0) {
      bits &= 1;
    } else {
      bits >>= bits % (8 * bytes);
      if (random() & 1) bits = ~bits;
    }
    for (size_t k = 0; k < bytes; ++k) all.push_back(static_cast<unsigned char>(bits >> 8 * k));
  }
  return all;
}

Arguments& Arguments::input(int index, Bytes bytes) {
  buffers_[index] = {Kind::kInput, std::move(bytes)};
  return *this;
}
Arguments& Arguments::output(int index, size_t bytes) {
  buffers_[index] = {Kind::kOutput, Bytes(bytes, 0xcd)};
  return *this;
}
Arguments& Arguments::in_out(int index, Bytes bytes) {
  buffers_[index] = {Kind::kInOut, std::move(bytes)};
  return *this;
}
Arguments& Arguments::value_bytes(int index, Bytes bytes) {
  buffers_[index] = {Kind::kValue, std::move(bytes)};
  return *this;
}
Arguments& Arguments::shorten(int index, size_t bytes) {
  Bytes& all = buffers_.at(index).bytes;
  all.resize(all.size() - bytes);
  return *this;
}
Arguments& Arguments::threadgroup_memory(int index, size_t bytes) {
  threadgroup_memory_[index] = bytes;
  return *this;
}
Arguments& Arguments::groups(uint32_t x, uint32_t y, uint32_t z) {
  groups_ = {x, y, z};
  return *this;
}
Arguments& Arguments::grid(uint32_t x, uint32_t y, uint32_t z) {
  grid_ = {x, y, z};
  return *this;
}
Arguments& Arguments::threads(uint32_t x, uint32_t y, uint32_t z) {
  threads_ = {x, y, z};
  return *this;
}
Arguments& Arguments::flush_to_zero(bool on) {
  flush_to_zero_ = on;
  return *this;
}

// One of the two ways to run a case, and what came of it.
struct Route {
  Arguments arguments;
  Report report;

  Result<bool> run(const Case& c, const Library& library) {
    Kernel kernel = library.kernel(c.kernel);
    for (const auto& [index, value] : c.constants) kernel.constant(index, value);
    Dispatch d = kernel.dispatch();
    for (auto& [index, b] : arguments.buffers_) {
      switch (b.kind) {
        case Arguments::Kind::kInput:
          d.buffer(index, std::as_const(b.bytes).data(), b.bytes.size());
          break;
        case Arguments::Kind::kOutput:
          d.output(index, b.bytes.data(), b.bytes.size());
          break;
        case Arguments::Kind::kInOut:
          d.buffer(index, b.bytes.data(), b.bytes.size());
          break;
        case Arguments::Kind::kValue:
          d.bytes(index, b.bytes.data(), b.bytes.size());
          break;
      }
    }
    for (const auto& [index, bytes] : arguments.threadgroup_memory_) d.threadgroup_memory(index, bytes);
    d.threads(arguments.threads_.x, arguments.threads_.y, arguments.threads_.z);
    const Size3 &groups = arguments.groups_, &grid = arguments.grid_;
    if (grid.count()) d.grid(grid.x, grid.y, grid.z);
    if (groups.count()) d.groups(groups.x, groups.y, groups.z);
    auto result = d.flush_to_zero(arguments.flush_to_zero_).check().count().run();
    if (!result) return result.error();
    report = result.take();
    return true;
  }

  std::vector<Difference> differences(const Route& other) const {
    std::vector<Difference> all;
    const auto number = [&](const std::string& what, uint64_t x, uint64_t y) {
      if (x != y) all.push_back({what, std::to_string(x) + " and " + std::to_string(y)});
    };
    const Counters &x = report.counters, &y = other.report.counters;
    for (const auto& [index, b] : arguments.buffers_) {
      const std::string buffer = " buffer " + std::to_string(index);
      const Bytes& theirs = other.arguments.buffers_.at(index).bytes;
      if (b.bytes != theirs) all.push_back({"output" + buffer, first_difference(b.bytes, theirs)});
      const BufferCounters p = counters(x, index), q = counters(y, index);
      number("unique bytes read of" + buffer, p.unique_bytes_read, q.unique_bytes_read);
      number("bytes written to" + buffer, p.bytes_written, q.bytes_written);
      // How often sizes in constant memory are read again is the optimizer's choice.
      if (b.kind != Arguments::Kind::kValue) number("bytes read of" + buffer, p.bytes_read, q.bytes_read);
    }
    findings(other, all);
    number("threadgroup barriers", x.threadgroup_barriers, y.threadgroup_barriers);
    number("simdgroup barriers", x.simdgroup_barriers, y.simdgroup_barriers);
    number("reductions", x.reductions, y.reductions);
    number("shuffles", x.shuffles, y.shuffles);
    number("votes", x.votes, y.votes);
    number("matrix multiplies", x.matrix_multiplies, y.matrix_multiplies);
    number("atomics", x.atomics, y.atomics);
    number("threadgroup bytes read", x.threadgroup_bytes_read, y.threadgroup_bytes_read);
    number("threadgroup bytes written", x.threadgroup_bytes_written, y.threadgroup_bytes_written);
    return all;
  }

 private:
  // Each kind of finding is a difference from what is right, also when both routes have it.
  void findings(const Route& other, std::vector<Difference>& all) const {
    std::map<std::string, std::array<std::string, 2>> texts;
    for (const bool second : {false, true}) {
      for (const Finding& f : (second ? other : *this).report.findings) {
        const std::string what = f.kind + (f.buffer < 0 ? "" : " of buffer " + std::to_string(f.buffer));
        texts[what][second] += (texts[what][second].empty() ? "" : "; ") + f.text();
      }
    }
    for (const auto& [what, by] : texts)
      all.push_back({what, (by[0].empty() ? "nothing" : by[0]) + " and " + (by[1].empty() ? "nothing" : by[1])});
  }
  static BufferCounters counters(const Counters& all, int index) {
    const auto found = all.buffers.find(index);
    return found == all.buffers.end() ? BufferCounters{} : found->second;
  }
  static std::string first_difference(const Bytes& x, const Bytes& y) {
    size_t first = 0, count = 0;
    for (size_t i = x.size(); i-- > 0;) {
      if (x[i] != y[i]) first = i, ++count;
    }
    return std::to_string(count) + " of " + std::to_string(x.size()) + " bytes, the first at " + std::to_string(first) + ": " +
           hex(x, first) + " and " + hex(y, first);
  }
  static std::string hex(const Bytes& bytes, size_t at) {  // the aligned word there, as the processor reads it
    std::string text;
    char two[3];
    for (size_t i = std::min(at / 4 * 4 + 4, bytes.size()); i-- > at / 4 * 4;) {
      std::snprintf(two, sizeof two, "%02x", bytes[i]);
      text += two;
    }
    return text;
  }
};

Result<std::vector<Difference>> compare(const Case& c, const Library& apple, const Library& ours) {
  Route a{c.arguments(), {}};
  Route b = a;
  if (auto ran = a.run(c, apple); !ran) return Error{"AIR: " + ran.message()};
  if (auto ran = b.run(c, ours); !ran) return Error{"source: " + ran.message()};
  return a.differences(b);
}

Result<Report> run(const Case& c, const Library& library) {
  Route route{c.arguments(), {}};
  auto ran = route.run(c, library);
  if (!ran) return ran.error();
  return std::move(route.report);
}

Bytes output(const Case& c, const Library& library, int buffer) {
  Route route{c.arguments(), {}};
  return route.run(c, library) ? route.arguments.buffers_.at(buffer).bytes : Bytes();
}

static std::string source_of(const Group& group, const std::vector<Case>& cases) {
  std::string text = "#include <metal_common>\n#include <metal_simdgroup>\n";
  for (const std::string& header : group.headers) text += "#include \"mlx/backend/metal/kernels/" + header + "\"\n";
  for (const Case& c : cases) {
    if (c.constants != cases.front().constants) continue;
    text += "template [[host_name(\"" + c.kernel + "\")]] [[kernel]] decltype(" + c.instance + ") " + c.instance + ";\n";
  }
  return text;
}

Result<Library> wheel_library() {
  setenv("METAL_ON_CPU_AIR_TO_NATIVE", METAL_ON_CPU_AIR_TO_NATIVE, 1);
  return Library::from_file(air::wheel().metallib);
}

Result<Library> source_library(const Group& group, const std::vector<Case>& cases) {
  CompileOptions options;
  options.include_folders = {METAL_ON_CPU_AIR_HEADERS, air::wheel().headers};
  options.language = 17;
  return Library::from_source(source_of(group, cases), options, group.name + ".metal");
}

std::vector<Group> all_groups() {
  std::vector<Group> all;
  for (const auto family :
       {map_groups, order_groups, row_groups, fft_groups, reduce_groups, quantized_groups, gemm_groups, attention_groups}) {
    for (Group& group : family()) all.push_back(std::move(group));
  }
  return all;
}

std::ostream& operator<<(std::ostream& out, const Group& group) { return out << group.name; }

}  // namespace metal_on_cpu::differential
