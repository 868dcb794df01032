#include "machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <utility>

#include "cpu_info.h"
#include "host_matrix.h"
#include "library.h"
#include "platform.h"
#include "team.h"

namespace metal_marlin::tools {
namespace {

constexpr size_t kPage = size_t{2} << 20;
constexpr size_t kReadPiece =
    size_t{64} << 20;    // bytes of one sample: long compared with starting the threads
volatile uint64_t sink;  // prevents the compiler from removing the sums

// Twelve chains of 16-byte vectors fill the latency of a multiplication and an addition on
// processors that start two a cycle.
constexpr int kPortableChains = 12;
using Floats [[gnu::vector_size(16)]] = float;
using Shorts [[gnu::vector_size(16)]] = int16_t;
template <class V>
void portable_loop(int64_t rounds) {
  V chain[kPortableChains] = {};
  V factor{}, term{};
  factor[0] =
      static_cast<std::remove_cvref_t<decltype(factor[0])>>(sink & 1);  // unknown to the compiler
  term += factor;
  for (int64_t i = 0; i < rounds; ++i) {
    for (V& c : chain) c = c * factor + term;
  }
  V sum = chain[0];
  for (const V& c : chain) sum += c;
  sink = sink + static_cast<uint64_t>(sum[0] != 0);
}
/// Bytes of memory that reading cycles through.
size_t bytes_to_read() {
  const size_t wanted = std::max(size_t{512} << 20, 8 * cpu_info().last_level_cache());
  return std::max(kReadPiece, std::min(wanted, free_memory() / 4)) / kPage * kPage;
}

constexpr DotLoop kPortable[] = {
    {"float mul+add", kPortableChains * 4 * 2, portable_loop<Floats>},
    {"int16 mul+add", kPortableChains * 8 * 2, portable_loop<Shorts>},
};

}  // namespace

unsigned usable_threads() { return device_of(MARLIN_BACKEND_CPU).threads; }

std::span<const DotLoop> dot_loops() {
  static const std::vector<DotLoop> loops = [] {
    std::vector<DotLoop> all = arch_dot_loops();
    all.insert(all.end(), std::begin(kPortable), std::end(kPortable));
    return all;
  }();
  return loops;
}

const DotLoop* find_dot_loop(const std::string& name) {
  for (const DotLoop& loop : dot_loops()) {
    if (name == loop.name) return &loop;
  }
  return nullptr;
}

std::string instruction_for(const std::string& isa, marlin_compute compute,
                            marlin_dtype activations) {
  const auto has = [&](const char* part) { return isa.find(part) != std::string::npos; };
  const bool int8 = compute == MARLIN_COMPUTE_INT8, bf16 = activations == MARLIN_BF16;
  std::string name = int8 ? "int16 mul+add" : "float mul+add";
  if (has("amx")) {
    name = int8 ? "tdpbssd" : bf16 ? "tdpbf16ps" : "3 tdpbf16ps";
  } else if (has("avx512")) {
    name = int8 ? has("vnni") ? "vpdpbusd" : "vpmaddubsw"
           : bf16 && has("bf16") && find_dot_loop("vdpbf16ps") != nullptr ? "vdpbf16ps"
                                                                          : "vfmadd231ps";
  } else if (has("avx2")) {
    name = int8 ? has("vnni") ? "vpdpbusd.ymm" : "vpmaddubsw.ymm" : "vfmadd231ps.ymm";
  } else if (has("i8mm") && int8) {
    name = "smmla";
  } else if (has("dotprod") && int8) {
    name = "sdot";
  } else if (has("neon") || has("dotprod") || has("i8mm")) {
    name = int8 ? "smlal" : "fmla";
  }
  return find_dot_loop(name) ? name : int8 ? "int16 mul+add" : "float mul+add";
}

Limits::Memory::Memory(size_t wanted, unsigned threads, bool large_pages) : bytes(wanted) {
  begin = static_cast<std::byte*>(map_memory(bytes + kPage, large_pages, pages));
  if (begin == nullptr) throw std::bad_alloc();
  // The threads that will read the memory write it first, for machines with several memory nodes.
  run_team(
      threads, [](unsigned) {},
      [&](unsigned t) {
        Random random(t);
        auto* words = reinterpret_cast<uint64_t*>(begin);
        for (size_t i = t; i < (bytes + kPage) / kPage; i += threads) {
          for (size_t w = 0; w < kPage / 8; ++w) words[i * (kPage / 8) + w] = random.next();
        }
      });
}

Limits::Memory::~Memory() {
  if (begin) unmap_memory(begin, bytes + kPage);  // the page beyond is for prefetches and rounding
}

void Limits::Memory::swap(Memory& other) noexcept {
  std::swap(begin, other.begin);
  std::swap(bytes, other.bytes);
  std::swap(at, other.at);
  pages.swap(other.pages);
}

Limits::Limits(unsigned threads)
    : threads_(threads),
      // Pieces of whole kilobytes a thread: the kernels' streams stay aligned.
      piece_(kReadPiece / (threads_ * size_t{4096}) * threads_ * size_t{4096}),
      kernel_(&read_kernels().front()),
      memory_(bytes_to_read(), threads, true) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 7;
  auto deadline = Clock::now() + std::chrono::milliseconds(400);
  const auto finished = [&] { return Clock::now() > deadline; };
  const auto rate_of = [&](size_t i) { return sample(read_kernels()[i], memory_); };
  kernel_ = &read_kernels()[fastest(read_kernels().size(), kRounds, rate_of, finished)];
  if (memory_.pages.empty()) return;
  Memory small(memory_.bytes, threads, false);
  deadline = Clock::now() + std::chrono::milliseconds(100);
  const auto rate_of_pages = [&](size_t i) { return sample(*kernel_, i == 0 ? memory_ : small); };
  if (fastest(2, kRounds, rate_of_pages, finished) == 1) memory_ = std::move(small);
}

double Limits::read_sample() { return sample(*kernel_, memory_); }

double Limits::sample(const ReadKernel& kernel, Memory& memory) const {
  if (memory.at + piece_ > memory.bytes) memory.at = 0;
  const std::byte* from = memory.begin + memory.at;
  memory.at += piece_;
  const size_t share = piece_ / threads_;
  // Warming up on the part that was read longest ago raises the clock and warms the page tables,
  // but leaves `from` cold.
  const std::byte* old = memory.begin + (memory.at + memory.bytes / 2) %
                                            (memory.bytes - kReadPiece + 1) / kPage * kPage;
  const double seconds = run_team(
      threads_,
      [&](unsigned t) {
        sink = kernel.run(old + t * (share / 4096 * 4096 / 16) / 4096 * 4096,
                          share / 16 / 4096 * 4096);
      },
      [&](unsigned t) { sink = kernel.run(from + t * share, share); });
  return static_cast<double>(piece_) / seconds;
}

double Limits::dot_sample(const DotLoop& loop) {
  using Clock = std::chrono::steady_clock;
  // The warm-up finds how many rounds take 2 ms. The count of the slowest thread serves all
  // threads.
  std::atomic<int64_t> rounds = INT64_MAX;
  const auto warm_up = [&](unsigned) {
    int64_t n = 1000;
    for (;; n *= 2) {
      const auto start = Clock::now();
      loop.run(n);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (seconds < 0.5e-3) continue;
      n = static_cast<int64_t>(static_cast<double>(n) * 2e-3 / seconds);
      break;
    }
    for (int64_t seen = rounds; n < seen && !rounds.compare_exchange_weak(seen, n);) {
    }
  };
  const double seconds = run_team(threads_, warm_up, [&](unsigned) { loop.run(rounds); });
  return static_cast<double>(loop.operations) * static_cast<double>(rounds) * threads_ / seconds;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace metal_marlin::tools
