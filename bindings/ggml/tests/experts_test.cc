// MUL_MAT_ID: rows that each choose an expert.
#include "graph.h"

namespace ggml_test {
namespace {

constexpr int64_t kK = 128, kN = 41, kExperts = 6;

struct Choice {
  const char* name;
  int64_t used, tokens;
  int64_t rows;  // of activations a token: 1, or one for each expert used
  std::vector<int32_t> ids;
};
const Choice kChoices[] = {
    {"OneTokenOneExpert", 1, 1, 1, {4}},
    {"Decode", 3, 1, 1, {5, 0, 2}},
    {"DecodeDown", 3, 1, 3, {5, 0, 2}},
    {"SharedRow", 2, 4, 1, {0, 1, 1, 0, 5, 4, 1, 0}},
    {"RowEach", 2, 4, 2, {0, 1, 1, 0, 5, 4, 1, 0}},
    {"RepeatedWithinAToken", 3, 3, 3, {2, 2, 2, 0, 2, 0, 5, 5, 1}},
    {"AllTheSame", 2, 5, 1, {3, 3, 3, 3, 3, 3, 3, 3, 3, 3}},
};

class Experts : public ::testing::TestWithParam<std::tuple<ggml_type, Choice>> {};
std::string name(const ::testing::TestParamInfo<Experts::ParamType>& info) {
  return std::string(ggml_type_name(std::get<0>(info.param))) + "_" + std::get<1>(info.param).name;
}

Graph graph_of(ggml_type type, const Choice& choice) {
  const int64_t k = columns(type, kK);
  return {{random_input(type, {k, kN, kExperts, 1}, 3),
           random_input(GGML_TYPE_F32, {k, choice.rows, choice.tokens, 1}, 4),
           integers({choice.used, choice.tokens, 1, 1}, choice.ids)},
          [](ggml_context* ctx, std::span<ggml_tensor* const> in) {
            return ggml_mul_mat_id(ctx, in[0], in[1], in[2]);
          }};
}

TEST_P(Experts, AreThoseOfFloat64AndOfTheCpu) {
  check_product(graph_of(std::get<0>(GetParam()), std::get<1>(GetParam())));
}
INSTANTIATE_TEST_SUITE_P(Ggml, Experts,
                         ::testing::Combine(::testing::ValuesIn(kTypes),
                                            ::testing::ValuesIn(kChoices)),
                         name);

// As a model has them: the first few of a sorted list of all experts, so that tokens lie further
// apart than what is used; and activations that are not contiguous.
TEST(ExpertsOfViews, AreFoundWhereTheyLie) {
  const Graph graph{{random_input(GGML_TYPE_MXFP4, {kK, kN, kExperts, 1}, 5),
                     random_input(GGML_TYPE_F32, {3, kK, 2, 1}, 6),
                     integers({kExperts, 2, 1, 1}, {4, 1, 0, 2, 3, 5, 1, 3, 0, 2, 4, 5})},
                    [](ggml_context* ctx, std::span<ggml_tensor* const> in) {
                      ggml_tensor* top = ggml_view_2d(ctx, in[2], 3, 2, in[2]->nb[1], 0);
                      return ggml_mul_mat_id(ctx, in[0], ggml_transpose(ctx, in[1]), top);
                    }};
  check_product(graph, false);
}

TEST(ExpertsThatAreNot, AreAnErrorThatSaysWhich) {
  const Backend backend = plugin_backend();
  for (const int32_t id : {-1, 6}) {
    Placed placed(graph_of(GGML_TYPE_Q4_0, {"", 2, 1, 1, {5, id}}), backend.get());
    const Log log;
    EXPECT_EQ(placed.compute(), GGML_STATUS_FAILED);
    EXPECT_THAT(log.text(),
                ::testing::HasSubstr("ids[1, 0] is " + std::to_string(id) + ", expected 0 .. 5"));
  }
}

}  // namespace
}  // namespace ggml_test
