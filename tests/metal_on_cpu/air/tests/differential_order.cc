// What depends on the order of elements: scans, sorts, searches in sorted arrays.
#include <algorithm>

#include "differential.h"

namespace metal_on_cpu::differential {
namespace {

// --- scans
// ----------------------------------------------------------------------------------------------------------------------

struct Scan {
  const char *name, *functor;
  Type in, out;
};

struct Direction {
  const char* name;
  bool inclusive, reverse;
};
constexpr Direction kDirections[] = {{"inclusive", true, false},
                                     {"exclusive", false, false},
                                     {"reverse_inclusive", true, true},
                                     {"reverse_exclusive", false, true}};

std::string scan_name(const char* walk, const Scan& s, const Direction& d) {
  return std::string(walk) + "_scan_" + d.name + "_" + s.name + "_" + s.in.wheel + "_" + s.out.wheel;
}
uint32_t reads(const Scan& s) { return s.in.bytes == 8 ? 2 : 4; }
std::string scan_instance(const char* kernel, const Scan& s, const Direction& d) {
  const std::string out = s.out.msl, flag[] = {"false", "true"};
  return std::string(kernel) + "<" + s.in.msl + ", " + out + ", " + s.functor + "<" + out + ">, " + std::to_string(reads(s)) +
         ", " + flag[d.inclusive] + ", " + flag[d.reverse] + ">";
}

void add_contiguous(Group& g, const Scan& s, const Direction& d) {
  g.cases.push_back({scan_name("contig", s, d), scan_instance("contiguous_scan", s, d), [s] {
                       constexpr uint64_t kRows = 2, kSize = 4301;  // two or three rounds of all 32 simdgroups
                       return Arguments()
                           .input(0, random_values(s.in, kRows * kSize, 7, -3, 0))
                           .output(1, kRows * kSize * s.out.bytes)
                           .value(2, kSize)
                           .groups(1, kRows)
                           .threads(1024);
                     }});
}

void add_strided(Group& g, const Scan& s, const Direction& d) {
  g.cases.push_back({scan_name("strided", s, d), scan_instance("strided_scan", s, d), [s] {
                       constexpr uint64_t kOuter = 2, kSize = 45, kStride = 51, kBlocks = 2;  // of 32 columns
                       return Arguments()
                           .input(0, random_values(s.in, kOuter * kSize * kStride, 7, -3, 0))
                           .output(1, kOuter * kSize * kStride * s.out.bytes)
                           .value(2, kSize)
                           .value(3, kStride)
                           .value(4, kBlocks)
                           .groups(1, kOuter * kBlocks)
                           .threads(32 * 32 / reads(s));
                     }});
}

Group scans(const char* name, void (*add)(Group&, const Scan&, const Direction&)) {
  Group g{name, {"utils.h", "scan.h"}, {}};
  const Scan sum{"sum", "CumSum", kF32, kF32};
  for (const Direction& d : kDirections) {
    add(g, sum, d);
    add(g, {"prod", "CumProd", kF16, kF16}, d);
    add(g, {"max", "CumMax", kBF16, kBF16}, d);
    add(g, {"min", "CumMin", kI64, kI64}, d);
    add(g, {"logaddexp", "CumLogaddexp", kF32, kF32}, d);
  }
  for (const Type& t : {kF16, kBF16, kI8, kI16, kI32, kI64, kU8, kU16, kU64, kComplex64})
    add(g, {"sum", "CumSum", t, t}, kDirections[0]);
  for (const Type& t : {kF32, kBF16, kI32, kU64, kBool, kComplex64}) add(g, {"prod", "CumProd", t, t}, kDirections[1]);
  for (const Type& t : {kF32, kF16, kI8, kU32, kBool, kComplex64}) {
    add(g, {"max", "CumMax", t, t}, kDirections[2]);
    add(g, {"min", "CumMin", t, t}, kDirections[3]);
  }
  for (const Type& t : {kF16, kBF16, kComplex64}) add(g, {"logaddexp", "CumLogaddexp", t, t}, kDirections[0]);
  add(g, {"sum", "CumSum", kBool, kI32}, kDirections[1]);
  return g;
}

// --- sorts
// ----------------------------------------------------------------------------------------------------------------------

// Keys of which some are equal and, of floats, a few are NaN.
Bytes keys(const Type& t, size_t count) {
  Bytes all = random_values(t, count, 7, -4, 4);
  for (size_t i = 0; i + 5 < count; i += 5) std::copy_n(&all[i * t.bytes], t.bytes, &all[(i + 4) * t.bytes]);
  if (t.exponent_bits && t.bytes < 8) {
    for (size_t i = 3; i < count; i += 97) all[(i + 1) * t.bytes - 1] |= 0x7f, all[(i + 1) * t.bytes - 2] |= 0xf0;
  }
  return all;
}

std::string block_of(int threads) { return "_bn" + std::to_string(threads) + "_tn4"; }
std::string sort_arguments(const Type& t, bool indices, int threads) {
  return std::string("<") + t.msl + ", " + (indices ? kU32 : t).msl + ", " + (indices ? "true, " : "false, ") +
         std::to_string(threads) + ", 4>";
}

// One threadgroup sorts a row; its elements are next to each other, or `columns` apart.
void add_block_sort(Group& g, const Type& t, bool indices, int threads) {
  const Type u = indices ? kU32 : t;
  const std::string name = std::string(indices ? "arg" : "") + "_block_sort_" + t.wheel + "_" + u.wheel + block_of(threads);
  const int size = threads * 4 - threads / 2 - 3, rows = 3;
  const size_t count = static_cast<size_t>(size) * rows;
  g.cases.push_back({"c" + name, "block_sort" + sort_arguments(t, indices, threads), [=] {
                       return Arguments()
                           .input(0, keys(t, count))
                           .output(1, count * u.bytes)
                           .value(2, size)
                           .value(3, 1)
                           .value(4, rows)
                           .value(5, size)
                           .value(6, 1)
                           .groups(1, rows)
                           .threads(static_cast<uint32_t>(threads));
                     }});
  g.cases.push_back({"nc" + name, "block_sort_nc" + sort_arguments(t, indices, threads), [=] {
                       return Arguments()
                           .input(0, keys(t, 2 * count))
                           .output(1, 2 * count * u.bytes)
                           .value(2, size)
                           .value(3, rows)
                           .value(4, 1)
                           .value(5, 2)  // the other axes: 2 by 3
                           .values(6, std::vector<int>{2, rows})
                           .values(7, std::vector<int64_t>{static_cast<int64_t>(count), 1})
                           .values(8, std::vector<int64_t>{static_cast<int64_t>(count), size})
                           .groups(1, 2 * rows)
                           .threads(static_cast<uint32_t>(threads));
                     }});
}

Group block_sorts() {
  Group g{"block_sort", {"utils.h", "sort.h"}, {}};
  for (const int threads : {32, 64, 128, 256, 512}) {
    add_block_sort(g, kF32, false, threads);
    add_block_sort(g, kI32, true, threads);
  }
  for (const Type& t : {kF16, kBF16, kI8, kU16, kI64, kComplex64}) {
    add_block_sort(g, t, false, 64);
    add_block_sort(g, t, true, 128);
  }
  return g;
}

// Several threadgroups sort blocks of a row, find where they meet, and merge them.
void add_multi_block_sort(Group& g, const Type& t) {
  const int threads = t.bytes == 8 ? 256 : 512, block = threads * 4, blocks = 3, size = block * blocks - 501, rows = 2;
  const size_t count = static_cast<size_t>(size) * rows;
  const std::string name = std::string("_mbsort_") + t.wheel + "_uint32" + block_of(threads),
                    arguments = std::string("<") + t.msl + ", uint32_t, true, " + std::to_string(threads) + ", 4>";
  g.cases.push_back({"sort" + name, "mb_block_sort" + arguments, [=] {
                       return Arguments()
                           .input(0, keys(t, count))
                           .output(1, count * t.bytes)
                           .output(2, count * 4)
                           .value(3, size)
                           .value(4, rows)
                           .value(5, 1)
                           .value(6, rows)
                           .value(7, int64_t{1})
                           .groups(static_cast<uint32_t>(blocks), rows)
                           .threads(static_cast<uint32_t>(threads));
                     }});
}

// Blocks in order, as sorting leaves them, of which each two are merged; the last is alone.
struct Merge {
  int block, size, blocks = 3;
  std::vector<int32_t> row;

  explicit Merge(int of) : block(of), size(3 * of - 501), row(static_cast<size_t>(size)) {
    for (int i = 0; i < size; ++i) row[static_cast<size_t>(i)] = i % block * (3 + i / block);
  }
  // How many of the first `taken` elements of two merged blocks are of the first.
  int of_first(int begin, int middle, int end, int taken) const {
    int a = begin, b = middle;
    for (; taken > 0; --taken) {
      const bool second = a == middle || (b < end && row[static_cast<size_t>(b)] < row[static_cast<size_t>(a)]);
      ++(second ? b : a);
    }
    return a - begin;
  }
  // Where each block of the result begins in its first source, and the end.
  std::vector<uint32_t> partitions() const {
    std::vector<uint32_t> all;
    for (int i = 0; i <= blocks; ++i) {
      const int begin = std::min(size, i / 2 * 2 * block), middle = std::min(size, begin + block),
                end = std::min(size, middle + block);
      all.push_back(static_cast<uint32_t>(begin + of_first(begin, middle, end, std::min(end - begin, i % 2 * block))));
    }
    return all;
  }
};

void add_merge(Group& g, const Type& t) {
  const Merge m(2048);
  const std::string name = std::string("_mbsort_") + t.wheel + "_uint32" + block_of(512),
                    arguments = std::string("<") + t.msl + ", uint32_t, true, 512, 4>";
  const Bytes indices = random_bits(m.row.size() * 4);
  g.cases.push_back({"partition" + name, "mb_block_partition" + arguments, [=] {
                       return Arguments()
                           .output(0, m.partitions().size() * 4)
                           .input(1, bytes_of(m.row))
                           .input(2, indices)
                           .value(3, m.size)
                           .value(4, 2)
                           .value(5, m.blocks)
                           .groups(1)
                           .threads(static_cast<uint32_t>(m.blocks + 1));
                     }});
  g.cases.push_back({"merge" + name, "mb_block_merge" + arguments, [=] {
                       return Arguments()
                           .input(0, bytes_of(m.partitions()))
                           .input(1, bytes_of(m.row))
                           .input(2, indices)
                           .output(3, m.row.size() * 4)
                           .output(4, m.row.size() * 4)
                           .value(5, m.size)
                           .value(6, 2)
                           .value(7, m.blocks)
                           .groups(static_cast<uint32_t>(m.blocks))
                           .threads(512);
                     }});
}

Group multi_block_sorts() {
  Group g{"multi_block_sort", {"utils.h", "sort.h"}, {}};
  for (const Type& t : {kF32, kF16, kBF16, kI32, kU8, kI64, kComplex64}) add_multi_block_sort(g, t);
  for (const Type& t : {kI32, kU32}) add_merge(g, t);
  return g;
}

Group searches() {
  Group g{"searchsorted", {"utils.h", "sort.h", "searchsorted.h"}, {}};
  for (const Type& t : {kF32, kF16, kBF16, kI8, kU16, kI32, kI64, kBool, kComplex64}) {
    for (const bool right : {false, true}) {
      g.cases.push_back({std::string("searchsorted_") + t.wheel + (right ? "_right" : "_left"),
                         std::string("searchsorted<") + t.msl + (right ? ", true>" : ", false>"), [t] {
                           constexpr uint32_t kSorted = 301;
                           Arguments a;  // what is searched need not be sorted for both routes to take the same steps
                           return a.input(0, random_values(t, 2 * kSorted, 7, -4, 4))
                               .input(1, random_values(t, 12 * 7 * 2, 8, -4, 4))
                               .output(2, 12 * 7 * 2 * 4)
                               .value(3, kSorted)
                               .value(4, int64_t{2})
                               .grid(12, 7, 2)
                               .threads(4, 4, 2);
                         }});
    }
  }
  return g;
}

}  // namespace

std::vector<Group> order_groups() {
  Group contiguous = scans("scan_contiguous", add_contiguous);
  contiguous.known = {
      {"contig_scan_*", "threadgroup bytes read",
       "the check of the index in simdgroup_sums[simd_group_id] stands before each use, and keeps the source route from "
       "reading it "
       "once; Apple's kernel was optimized before it is checked"},
      {"contig_scan_*complex64", "bytes read of buffer 0", "Apple's compiler reads the real part of an input twice"}};
  return {std::move(contiguous), scans("scan_strided", add_strided), block_sorts(), multi_block_sorts(), searches()};
}

}  // namespace metal_on_cpu::differential
