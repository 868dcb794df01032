#include "products.h"

#include <algorithm>
#include <cstring>

#include "log.h"

namespace marlin_ggml {
namespace {

constexpr size_t kFloat = sizeof(float);

char* at(const ggml_tensor& t, int64_t i1, int64_t i2, int64_t i3) {
  return static_cast<char*>(t.data) + i1 * static_cast<int64_t>(t.nb[1]) +
         i2 * static_cast<int64_t>(t.nb[2]) + i3 * static_cast<int64_t>(t.nb[3]);
}

/// One row of activations, whose elements may be any number of bytes apart.
void copy_row(const ggml_tensor& a, const char* from, float* to) {
  if (a.nb[0] == kFloat) {
    std::memcpy(to, from, static_cast<size_t>(a.ne[0]) * kFloat);
    return;
  }
  for (int64_t k = 0; k < a.ne[0]; ++k)
    std::memcpy(to + k, from + k * static_cast<int64_t>(a.nb[0]), kFloat);
}

/// Whether rows of activations are a marlin_matrix: whole floats apart, and not into each other.
bool rows_are_plain(const ggml_tensor& a) {
  return a.nb[0] == kFloat && (a.ne[1] == 1 || (a.nb[1] % kFloat == 0 &&
                                                a.nb[1] >= static_cast<size_t>(a.ne[0]) * kFloat));
}

marlin_matrix matrix(float* data, int64_t rows, int64_t cols, int64_t stride) {
  marlin_matrix m{};
  m.data = data;
  m.rows = rows;
  m.cols = cols;
  m.row_stride = stride;
  m.dtype = MARLIN_F32;
  return m;
}

/// Makes `m` the longer one of both when `next` goes on where `m` ends.
bool goes_on(const marlin_matrix& m, const marlin_matrix& next) {
  return m.row_stride == next.row_stride &&
         static_cast<float*>(m.data) + m.rows * m.row_stride == next.data;
}

/// Tells the log, and says it as ggml does.
ggml_status failed(marlin_status status, const marlin_error& error, const char* what,
                   const char* name) {
  log(GGML_LOG_LEVEL_ERROR, "%s '%s': %s: %s", what, name, marlin_status_name(status),
      error.message);
  return status == MARLIN_E_MEMORY ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
}

}  // namespace

bool is_product(const ggml_tensor& node, ggml_backend_buffer_type_t buffers) {
  if ((node.op != GGML_OP_MUL_MAT && node.op != GGML_OP_MUL_MAT_ID) || node.type != GGML_TYPE_F32)
    return false;
  const ggml_tensor &w = *node.src[0], &a = *node.src[1];
  const BlockType* block = block_type(w.type);
  if (block == nullptr || w.nb[0] != block->bytes || w.nb[1] < ggml_row_size(w.type, w.ne[0]))
    return false;
  const ggml_backend_buffer_t buffer = buffer_of(w);
  if (buffer != nullptr && buffer->buft != buffers) return false;
  if (node.op == GGML_OP_MUL_MAT_ID && node.src[2]->type != GGML_TYPE_I32) return false;
  return a.type == GGML_TYPE_F32;
}

bool share_activations(const ggml_tensor& first, const ggml_tensor& second) {
  return first.op == GGML_OP_MUL_MAT && second.op == GGML_OP_MUL_MAT &&
         first.src[1] == second.src[1] && rows_are_plain(*first.src[1]);
}

ggml_status Products::compute(const ggml_tensor& node, std::span<const ggml_tensor> others) {
  products_.clear();
  weights_.clear();
  if (node.op == GGML_OP_MUL_MAT_ID) return multiply_experts(node);
  ggml_status status = multiply(node);
  for (const ggml_tensor& other : others) {
    if (status == GGML_STATUS_SUCCESS) status = multiply(other);
  }
  return status == GGML_STATUS_SUCCESS ? run(node) : status;
}

/// Adds C = A W^T with the matrix [i3][i2] of `weights`, piece by piece.
ggml_status Products::add(const ggml_tensor& weights, int64_t i2, int64_t i3, const Rows& a,
                          const Rows& c) {
  ggml_status status = GGML_STATUS_SUCCESS;
  for_each_piece(weights, i2, i3, [&](const Matrix& piece, int64_t first) {
    status = add_piece(weights, piece, a, {c.data + first, c.count, piece.n, c.stride});
    return status == GGML_STATUS_SUCCESS;
  });
  return status;
}

/// What goes on with the last product becomes part of it: then W is read once for both.
ggml_status Products::add_piece(const ggml_tensor& weights, const Matrix& piece, const Rows& a,
                                const Rows& c) {
  auto error = metal_marlin::make<marlin_error>();
  Weights packed;
  const marlin_status status = packed_buffer(buffer_of(weights)).pack(piece, packed, error);
  if (status != MARLIN_OK) return failed(status, error, "weights", weights.name);
  auto next = metal_marlin::make<marlin_gemm_desc>();
  next.compute = compute_;
  next.weights = packed.get();
  next.a = matrix(a.data, a.count, a.columns, a.stride);
  next.c = matrix(c.data, c.count, c.columns, c.stride);
  if (!products_.empty()) {
    marlin_gemm_desc& last = products_.back();
    if (last.weights == next.weights && goes_on(last.a, next.a) && goes_on(last.c, next.c)) {
      last.a.rows += a.count;
      last.c.rows += c.count;
      return GGML_STATUS_SUCCESS;
    }
  }
  products_.push_back(next);
  weights_.push_back(std::move(packed));
  return GGML_STATUS_SUCCESS;
}

ggml_status Products::run(const ggml_tensor& node) {
  std::vector<const marlin_gemm_desc*> all;
  all.reserve(products_.size());
  for (const marlin_gemm_desc& product : products_) all.push_back(&product);
  auto error = metal_marlin::make<marlin_error>();
  const marlin_status status =
      marlin_gemm_many(stream_, all.data(), static_cast<uint32_t>(all.size()), &error);
  return status == MARLIN_OK ? GGML_STATUS_SUCCESS : failed(status, error, "node", node.name);
}

/// Adds the products of one node.
ggml_status Products::multiply(const ggml_tensor& c) {
  const ggml_tensor &w = *c.src[0], &a = *c.src[1];
  const int64_t k = a.ne[0], m = a.ne[1], n = c.ne[0];
  const bool plain = rows_are_plain(a);
  if (!plain) gathered_.resize(static_cast<size_t>(ggml_nelements(&a)));
  float* copy = gathered_.data();
  for (int64_t i3 = 0; i3 < a.ne[3]; ++i3) {
    for (int64_t i2 = 0; i2 < a.ne[2]; ++i2) {
      Rows rows{reinterpret_cast<float*>(at(a, 0, i2, i3)), m, k,
                m == 1 ? k : static_cast<int64_t>(a.nb[1] / kFloat)};
      if (!plain) {
        rows = {copy, m, k, k};
        for (int64_t i1 = 0; i1 < m; ++i1, copy += k) copy_row(a, at(a, i1, i2, i3), copy);
      }
      // As many matrices of A share one of W as it has fewer.
      const ggml_status status = add(w, i2 / (a.ne[2] / w.ne[2]), i3 / (a.ne[3] / w.ne[3]), rows,
                                     {reinterpret_cast<float*>(at(c, 0, i2, i3)), m, n,
                                      m == 1 ? n : static_cast<int64_t>(c.nb[1] / kFloat)});
      if (status != GGML_STATUS_SUCCESS) return status;
    }
  }
  return GGML_STATUS_SUCCESS;
}

/// c[n, u, t] = row (u mod b) of token t of A, times the expert ids[u, t]: sorted by expert,
/// multiplied, put back.
ggml_status Products::multiply_experts(const ggml_tensor& c) {
  const ggml_tensor &w = *c.src[0], &a = *c.src[1], &ids = *c.src[2];
  const int64_t k = a.ne[0], n = c.ne[0], used = ids.ne[0], tokens = ids.ne[1];
  struct Row {
    int32_t expert;
    int64_t u, t;
  };
  std::vector<Row> rows;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t u = 0; u < used; ++u) {
      int32_t expert = 0;
      std::memcpy(&expert, at(ids, t, 0, 0) + u * static_cast<int64_t>(ids.nb[0]), sizeof expert);
      if (expert < 0 || expert >= w.ne[2]) {
        log(GGML_LOG_LEVEL_ERROR, "node '%s': ids[%d, %d] is %d, expected 0 .. %d", c.name,
            static_cast<int>(u), static_cast<int>(t), static_cast<int>(expert),
            static_cast<int>(w.ne[2] - 1));
        return GGML_STATUS_FAILED;
      }
      rows.push_back({expert, u, t});
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& x, const Row& y) { return x.expert < y.expert; });
  gathered_.resize(rows.size() * static_cast<size_t>(k));
  results_.resize(rows.size() * static_cast<size_t>(n));
  float *from = gathered_.data(), *to = results_.data();
  for (const Row& row : rows) {
    copy_row(a, at(a, row.u % a.ne[1], row.t, 0), from);
    const ggml_status status = add(w, row.expert, 0, {from, 1, k, k}, {to, 1, n, n});
    if (status != GGML_STATUS_SUCCESS) return status;
    from += k;
    to += n;
  }
  const ggml_status status = run(c);
  if (status != GGML_STATUS_SUCCESS) return status;
  const float* result = results_.data();
  for (const Row& row : rows) {
    std::memcpy(at(c, row.u, row.t, 0), result, static_cast<size_t>(n) * kFloat);
    result += n;
  }
  return GGML_STATUS_SUCCESS;
}

}  // namespace marlin_ggml
