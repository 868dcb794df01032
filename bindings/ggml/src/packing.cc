#include "packing.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "team.h"

namespace marlin_ggml {

const BlockType* block_type(ggml_type type) {
  for (const BlockType& row : kBlockTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

marlin_status pack_matrix(marlin_context* context, const Matrix& matrix, Weights& out,
                          marlin_error& error) {
  const BlockType& block = *block_type(matrix.type);
  const size_t row_bytes = matrix.row_bytes();
  const char* blocks = matrix.data;
  std::vector<char> rows;  // of a view of columns, which the C ABI takes only without gaps
  if (!matrix.is_whole()) {
    rows.reserve(static_cast<size_t>(matrix.n) * row_bytes);
    for (int64_t i = 0; i < matrix.n; ++i, blocks += matrix.row_stride)
      rows.insert(rows.end(), blocks, blocks + row_bytes);
    blocks = rows.data();
  }
  auto part = metal_marlin::make<marlin_pack_desc>();
  part.format = block.format;
  part.layout = MARLIN_LAYOUT_GGUF;
  part.n = matrix.n;
  part.k = matrix.k;
  part.flags = block.flags;
  part.values.data = const_cast<char*>(blocks);
  part.values.rows = matrix.n;
  part.values.cols = static_cast<int64_t>(row_bytes);
  part.values.dtype = MARLIN_U8;
  const marlin_pack_desc* parts[] = {&part};
  marlin_weights* weights = nullptr;
  const marlin_status status = marlin_weights_pack(context, parts, 1, 1, &weights, &error);
  if (status == MARLIN_OK) out = Weights(weights, marlin_weights_destroy);
  return status;
}

bool unpack_rows(const marlin_weights& weights, const Matrix& matrix, int64_t first, int64_t count,
                 char* out) {
  marlin_matrix to{};
  to.data = out;
  to.rows = count;
  to.cols = static_cast<int64_t>(matrix.row_bytes());
  to.dtype = MARLIN_U8;
  return marlin_weights_unpack(nullptr, &weights, nullptr, first, &to, nullptr) == MARLIN_OK;
}

bool holds_all(const marlin_weights& weights, const Matrix& matrix) {
  static constexpr int64_t kRows = 64;
  struct Work {
    const marlin_weights& weights;
    const Matrix& matrix;
    std::atomic<bool> same{true};
  } work{weights, matrix};
  const auto compare = [](void* user, uint32_t task) {
    auto& [weights_of, of, same] = *static_cast<Work*>(user);
    if (!same.load(std::memory_order_relaxed)) return;
    const int64_t first = task * kRows, count = std::min(kRows, of.n - first);
    const size_t row_bytes = of.row_bytes(), size = static_cast<size_t>(count) * row_bytes;
    const std::unique_ptr<char[]> rows(new (std::nothrow) char[size]);
    if (rows == nullptr || !unpack_rows(weights_of, of, first, count, rows.get()) ||
        std::memcmp(rows.get(), of.data + first * static_cast<int64_t>(row_bytes), size) != 0)
      same.store(false, std::memory_order_relaxed);
  };
  Team::parallel_for(nullptr, static_cast<uint32_t>((matrix.n + kRows - 1) / kRows), compare,
                     &work);
  return work.same;
}

namespace {

/// Whether [begin, end) is part of one file that is mapped for reading alone and shared with the
/// system's cache. Only Linux tells.
bool is_mapped_file(uintptr_t begin, uintptr_t end) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  bool found = false;
  char line[512];
  for (bool starts = true; std::fgets(line, sizeof line, maps) != nullptr;) {
    uintptr_t from = 0, to = 0;
    char permissions[5] = {};
    // Where a number is too large, nothing is found: the range is not let go.
    // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion,cert-err34-c)
    const int read = std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to, permissions);
    // Lines with long names come in pieces.
    if (starts && read == 3 && from <= begin && end <= to) {
      found = std::strcmp(permissions, "r--s") == 0;
      break;
    }
    starts = std::strchr(line, '\n') != nullptr;
  }
  std::fclose(maps);
  return found;
}

}  // namespace

FilePages file_pages(const void* data, size_t size) {
  constexpr size_t kWorthwhile = 64 << 10;
  if (size < kWorthwhile) return {};
  // Pages that other data share come back from the cache, so the range may grow to whole pages.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data) / page * page,
             end = reinterpret_cast<uintptr_t>(data) + size;
  if (!is_mapped_file(begin, end)) return {};
  return {reinterpret_cast<void*>(begin), end - begin};
}

bool FilePages::let_go() const {
  return begin != nullptr && madvise(begin, size, MADV_DONTNEED) == 0;
}

}  // namespace marlin_ggml
