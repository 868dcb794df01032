#include "machine_limits.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <string>

#include "cpu_info.h"
#include "host_matrix.h"
#include "library.h"
#include "team.h"

namespace metal_marlin::tools {
namespace {

constexpr size_t kPage = size_t{2} << 20;
constexpr size_t kReadPiece =
    size_t{64} << 20;    // bytes of one sample: long compared with starting the threads
volatile uint64_t sink;  // prevents the compiler from removing the sums

/// Reads four streams, prefetched 2 KB ahead, with builtins that every compiler has.
uint64_t portable_read(const std::byte* p, size_t bytes) {
  constexpr size_t kStreams = 4, kLine = 64, kAhead = 2048;
  const size_t stream = bytes / kStreams;
  uint64_t sums[kStreams][4] = {};
  for (size_t i = 0; i < stream; i += kLine) {
    for (size_t s = 0; s < kStreams; ++s) {
      const auto* q = reinterpret_cast<const uint64_t*>(p + s * stream + i);
      __builtin_prefetch(reinterpret_cast<const std::byte*>(q) + kAhead);
      for (size_t j = 0; j < 4; ++j) sums[s][j] ^= q[j] ^ q[j + 4];
    }
  }
  uint64_t all = 0;
  for (const auto& sum : sums) all ^= sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return all;
}

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
    name = int8                  ? has("vnni") ? "vpdpbusd" : "vpmaddubsw"
           : bf16 && has("bf16") ? "vdpbf16ps"
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

Limits::Limits(unsigned threads)
    : threads_(threads), read_(arch_read_kernel() ? arch_read_kernel() : portable_read) {
  const size_t wanted = std::max(size_t{512} << 20, 8 * cpu_info().last_level_cache());
  bytes_ = std::max(kReadPiece, std::min(wanted, free_memory() / 4)) / kPage * kPage;
  // Pieces of whole kilobytes a thread: the kernels' streams stay aligned.
  piece_ = kReadPiece / (threads_ * size_t{4096}) * threads_ * size_t{4096};
  void* mapped =
      mmap(nullptr, bytes_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(mapped);
#if defined(MADV_HUGEPAGE)
  madvise(memory_, bytes_ + kPage, MADV_HUGEPAGE);
#endif
  // The threads that will read the memory write it first, for machines with several memory nodes.
  run_team(
      threads_, [](unsigned) {},
      [&](unsigned t) {
        Random random(t);
        auto* words = reinterpret_cast<uint64_t*>(memory_);
        for (size_t i = t; i < (bytes_ + kPage) / kPage; i += threads_) {
          for (size_t w = 0; w < kPage / 8; ++w) words[i * (kPage / 8) + w] = random.next();
        }
      });
}

Limits::~Limits() {
  munmap(memory_, bytes_ + kPage);
}  // the page beyond is for prefetches and rounding

double Limits::read_sample() {
  if (at_ + piece_ > bytes_) at_ = 0;
  const std::byte* from = memory_ + at_;
  at_ += piece_;
  const size_t share = piece_ / threads_;
  // Warming up on the part that was read longest ago raises the clock and warms the page tables,
  // but leaves `from` cold.
  const std::byte* old = memory_ + (at_ + bytes_ / 2) % (bytes_ - kReadPiece + 1) / kPage * kPage;
  const double seconds = run_team(
      threads_,
      [&](unsigned t) {
        sink = read_(old + t * (share / 4096 * 4096 / 16) / 4096 * 4096, share / 16 / 4096 * 4096);
      },
      [&](unsigned t) { sink = read_(from + t * share, share); });
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
