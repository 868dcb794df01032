// MUL_MAT: every type over shapes, batches, views of weights and strides of activations.
#include "graph.h"

namespace ggml_test {
namespace {

enum class View { whole, rows, columns, swapped };                      // of weights
enum class Rows { whole, wide, heads, transposed, sliding, repeated };  // of activations

struct Shape {
  const char* name;
  int64_t k, n, w2, w3;  // weights [k, n, w2, w3]
  int64_t m, a2, a3;     // activations [k, m, a2, a3]
  View view;
  Rows rows;
};
constexpr Shape kShapes[] = {
    {"OneRow", 256, 96, 1, 1, 1, 1, 1, View::whole, Rows::whole},
    {"Smallest", 64, 1, 1, 1, 1, 1, 1, View::whole, Rows::whole},
    {"Ragged", 192, 37, 1, 1, 5, 1, 1, View::whole, Rows::whole},
    {"ManyRows", 320, 67, 1, 1, 130, 1, 1, View::whole, Rows::whole},
    {"BatchOfActivations", 128, 33, 1, 1, 3, 4, 2, View::whole, Rows::whole},
    {"Batches", 128, 33, 2, 3, 3, 2, 3, View::whole, Rows::whole},
    {"Broadcast", 128, 17, 2, 3, 7, 6, 6, View::whole, Rows::whole},
    {"RowsOfWeights", 128, 29, 2, 1, 3, 2, 1, View::rows, Rows::whole},
    {"ColumnsOfWeights", 128, 29, 1, 1, 3, 1, 1, View::columns, Rows::whole},
    {"SwappedBatches", 64, 9, 3, 2, 2, 3, 2, View::swapped, Rows::whole},
    {"WideRows", 128, 19, 1, 1, 6, 2, 1, View::whole, Rows::wide},
    {"Heads", 128, 19, 2, 1, 6, 4, 2, View::whole, Rows::heads},
    {"Transposed", 128, 19, 1, 1, 6, 2, 1, View::whole, Rows::transposed},
    {"Column", 128, 19, 1, 1, 1, 1, 1, View::whole, Rows::transposed},
    {"SlidingWindow", 128, 19, 1, 1, 6, 1, 1, View::whole, Rows::sliding},
    {"RepeatedRow", 128, 19, 1, 1, 6, 1, 1, View::whole, Rows::repeated},
};

// What the tensor is made from that view_weights and view_rows then look at.
std::array<int64_t, 4> weights_shape(const Shape& s) {
  if (s.view == View::rows) return {s.k, s.n + 5, s.w2, s.w3};
  if (s.view == View::columns) return {2 * s.k, s.n, s.w2, s.w3};
  if (s.view == View::swapped) return {s.k, s.n, s.w3, s.w2};
  return {s.k, s.n, s.w2, s.w3};
}
std::array<int64_t, 4> rows_shape(const Shape& s) {
  if (s.rows == Rows::wide) return {s.k + 7, s.m, s.a2, s.a3};
  if (s.rows == Rows::heads) return {s.k, s.a2, s.m, s.a3};
  if (s.rows == Rows::transposed) return {s.m + 2, s.k, s.a2, s.a3};
  if (s.rows == Rows::sliding || s.rows == Rows::repeated)
    return {s.k * s.m, 1, 1, 1};  // as ggml wants for a view
  return {s.k, s.m, s.a2, s.a3};
}
ggml_tensor* view_weights(ggml_context* ctx, ggml_tensor* w, const Shape& s) {
  const size_t *nb = w->nb, block = ggml_row_size(w->type, columns(w->type, 64));
  if (s.view == View::rows)
    return ggml_view_4d(ctx, w, s.k, s.n, s.w2, s.w3, nb[1], nb[2], nb[3], 3 * nb[1]);
  if (s.view == View::columns)
    return ggml_view_4d(ctx, w, s.k, s.n, s.w2, s.w3, nb[1], nb[2], nb[3], block);
  if (s.view == View::swapped) return ggml_permute(ctx, w, 0, 1, 3, 2);
  return w;
}
ggml_tensor* view_rows(ggml_context* ctx, ggml_tensor* a, const Shape& s) {
  const size_t* nb = a->nb;
  if (s.rows == Rows::wide)
    return ggml_view_4d(ctx, a, s.k, s.m, s.a2, s.a3, nb[1], nb[2], nb[3], 2 * nb[0]);
  if (s.rows == Rows::heads) return ggml_permute(ctx, a, 0, 2, 1, 3);
  if (s.rows == Rows::transposed)
    return ggml_transpose(ctx, ggml_view_4d(ctx, a, s.m, s.k, s.a2, s.a3, nb[1], nb[2], nb[3], 0));
  if (s.rows == Rows::sliding) return ggml_view_2d(ctx, a, s.k, s.m, nb[0], 0);
  if (s.rows == Rows::repeated) return ggml_view_2d(ctx, a, s.k, s.m, 0, 0);
  return a;
}

class Products : public ::testing::TestWithParam<std::tuple<ggml_type, Shape>> {};
std::string name(const ::testing::TestParamInfo<Products::ParamType>& info) {
  return std::string(ggml_type_name(std::get<0>(info.param))) + "_" + std::get<1>(info.param).name;
}

TEST_P(Products, AreThoseOfFloat64AndOfTheCpu) {
  const auto& [type, shape] = GetParam();
  Shape s = shape;
  s.k = columns(type, shape.k);
  const Graph graph{
      {random_input(type, weights_shape(s), 1), random_input(GGML_TYPE_F32, rows_shape(s), 2)},
      [&s](ggml_context* ctx, std::span<ggml_tensor* const> in) {
        return ggml_mul_mat(ctx, view_weights(ctx, in[0], s), view_rows(ctx, in[1], s));
      }};
  check_product(graph, s.rows != Rows::transposed);
}
INSTANTIATE_TEST_SUITE_P(Ggml, Products,
                         ::testing::Combine(::testing::ValuesIn(kTypes),
                                            ::testing::ValuesIn(kShapes)),
                         name);

}  // namespace
}  // namespace ggml_test
