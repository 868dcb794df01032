// What the plugin rounds: activations to 8 bits, as ggml's CPU backend does, unless a program wants
// them as they are.
#include <ggml-cpu.h>

#include <cstdlib>

#include "graph.h"

namespace ggml_test {
namespace {

class Rounding : public ::testing::TestWithParam<ggml_type> {};
INSTANTIATE_TEST_SUITE_P(Ggml, Rounding, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(ggml_type_name(info.param)); });

Graph product(ggml_type type) {
  return product_of(random_input(type, {columns(type, 512), 256, 1, 1}, 21),
                    random_input(GGML_TYPE_F32, {columns(type, 512), 16, 1, 1}, 22));
}

// The reason for the default. A type for which this fails needs the exact compute.
TEST_P(Rounding, IsThatOfTheCpu) {
  EXPECT_THAT(ggml_get_type_traits_cpu(GetParam())->vec_dot_type,
              ::testing::AnyOf(GGML_TYPE_Q8_0, GGML_TYPE_Q8_1, GGML_TYPE_Q8_K));
}

TEST_P(Rounding, IsTheDefault) {
  const Graph graph = product(GetParam());
  const Backend usual = plugin_backend(), int8 = plugin_backend(), exact = exact_backend();
  ASSERT_TRUE(set_compute(int8.get(), "int8"));
  const std::vector<float> found = run(graph, usual.get());
  EXPECT_EQ(found, run(graph, int8.get()));
  EXPECT_NE(found, run(graph, exact.get()));
}

// Mean squared errors against float64 products, divided by the mean square of these.
TEST_P(Rounding, LosesNoMoreThanTheCpu) {
  const Graph graph = product(GetParam());
  const Backend plugin = plugin_backend(), exact = exact_backend(), cpu = cpu_backend();
  const std::vector<double> right = expected(graph).value;
  const double power = squared_distance(std::vector<float>(right.size()), right);
  const auto error = [&](const Backend& backend) {
    return squared_distance(run(graph, backend.get()), right) / power;
  };
  const double of_plugin = error(plugin), of_cpu = error(cpu), of_exact = error(exact);
  std::printf("NMSE of %s: int8 %.2e, ggml's CPU backend %.2e, exact %.2e\n",
              ggml_type_name(GetParam()), of_plugin, of_cpu, of_exact);
  EXPECT_LE(of_plugin, 1.1 * of_cpu);
  EXPECT_LE(of_exact, 1e-3 * of_cpu);
}

TEST(Computes, OfAnUnknownNameAreRefused) {
  const Graph graph = product(GGML_TYPE_Q4_0);
  const Backend plugin = plugin_backend(), exact = exact_backend();
  const Log log;
  EXPECT_FALSE(set_compute(exact.get(), "default"));
  EXPECT_THAT(log.text(),
              ::testing::HasSubstr(R"(compute: expected "exact" or "int8", found "default")"));
  EXPECT_NE(run(graph, exact.get()), run(graph, plugin.get())) << "it stays as it was";
}

// Each loads the plugin in a process of its own, where ggml logs to stderr.
TEST(Computes, AreALineOfTheLog) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto load = [](const char* compute) {
    if (compute != nullptr) setenv("GGML_METAL_MARLIN_COMPUTE", compute, 1);
    plugin_device();
    std::exit(0);
  };
  const auto ends = ::testing::ExitedWithCode(0);
  EXPECT_EXIT(load(nullptr), ends, "compute int8: activations are rounded to 8 bits");
  EXPECT_EXIT(load("int8"), ends, "compute int8: activations are rounded to 8 bits");
  EXPECT_EXIT(load("exact"), ends, "compute exact: activations stay float32");
  EXPECT_EXIT(load("fast"), ends,
              "expected \"exact\" or \"int8\", found \"fast\".*\n.*compute int8");
}

}  // namespace
}  // namespace ggml_test
