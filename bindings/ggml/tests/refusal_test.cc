// A ggml that is not the one the plugin was built for. What this program defines comes before
// libggml-base's own.
#include <dlfcn.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "../src/gpu.h"

namespace {

struct Lie {
  const char* name;
  const char* version = PLUGIN_GGML;
  ggml_type type = GGML_TYPE_COUNT;  // of this one a block has a byte, or an element, more
  size_t more_bytes = 0;
  int64_t more_elements = 0;
  size_t more_overhead = 0;
  const char* mul_mat = "MUL_MAT";
  int interface = 2;
  const char* says;
};
Lie lie;

template <auto function>
auto original(const char* name) {
  return reinterpret_cast<decltype(function)>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) const char* ggml_version(void) { return lie.version; }
__attribute__((visibility("default"))) size_t ggml_type_size(ggml_type type) {
  return original<&ggml_type_size>("ggml_type_size")(type) +
         (type == lie.type ? lie.more_bytes : 0);
}
__attribute__((visibility("default"))) int64_t ggml_blck_size(ggml_type type) {
  return original<&ggml_blck_size>("ggml_blck_size")(type) +
         (type == lie.type ? lie.more_elements : 0);
}
__attribute__((visibility("default"))) size_t ggml_tensor_overhead(void) {
  return original<&ggml_tensor_overhead>("ggml_tensor_overhead")() + lie.more_overhead;
}
__attribute__((visibility("default"))) const char* ggml_op_name(ggml_op op) {
  return op == GGML_OP_MUL_MAT ? lie.mul_mat : original<&ggml_op_name>("ggml_op_name")(op);
}
// A registry begins with the number of its interface.
__attribute__((visibility("default"))) ggml_backend_reg_t
ggml_backend_dev_backend_reg(ggml_backend_dev_t device) {
  const ggml_backend_reg_t reg =
      original<&ggml_backend_dev_backend_reg>("ggml_backend_dev_backend_reg")(device);
  *reinterpret_cast<int*>(reg) = lie.interface;
  return reg;
}
}

namespace {

const Lie kLies[] = {
    {.name = "MinorBelow", .version = "0.9.11", .says = "expected ggml 0.10 to 0.25"},
    {.name = "InterfaceOfANewerOne",
     .version = "0.99.0",
     .interface = 3,
     .says = "found ggml 0.99.0 with version 3: not used"},
    {.name = "NoVersion",
     .version = "unknown",
     .says = "found ggml unknown with version 2: not used"},
    {.name = "BlockBytes",
     .type = GGML_TYPE_NVFP4,
     .more_bytes = 1,
     .says = "found 64 in 37: not used"},
    {.name = "BlockElements",
     .type = GGML_TYPE_Q4_0,
     .more_elements = 32,
     .says = "found 64 in 18: not used"},
    {.name = "Tensor",
     .more_overhead = 8,
     .says = "tensors or operations are not those of its headers"},
    {.name = "Operation",
     .mul_mat = "ADD",
     .says = "tensors or operations are not those of its headers"},
};

class Refusal : public ::testing::TestWithParam<Lie> {};

int score() {
  return reinterpret_cast<int (*)()>(
      dlsym(dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL), "ggml_backend_score"))();
}
ggml_backend_reg_t init() {
  return reinterpret_cast<ggml_backend_reg_t (*)()>(
      dlsym(dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL), "ggml_backend_init"))();
}

TEST(Acceptance, OfTheGgmlThatItWasBuiltFor) {
  lie = {};
  EXPECT_GT(score(), 0);
  EXPECT_NE(init(), nullptr);
}

TEST(Acceptance, OfANewerOneWithTheSameInterface) {
  lie = {.name = "", .version = "1.2.3", .says = ""};
  EXPECT_GT(score(), 0);
  lie = {};
}

TEST_P(Refusal, IsALineOfTheLog) {
  lie = GetParam();
  std::string log;
  ggml_log_set(
      [](ggml_log_level, const char* text, void* to) { *static_cast<std::string*>(to) += text; },
      &log);
  EXPECT_EQ(score(), 0);
  EXPECT_THAT(log, ::testing::HasSubstr(lie.says));
  EXPECT_EQ(init(), nullptr);
  ggml_log_set(nullptr, nullptr);
  lie = {};
}
TEST(Gpus, ThatCouldBeUsedAreALineOfTheLog) {
  marlin_device_info device{};
  device.backend = MARLIN_BACKEND_CUDA;
  std::snprintf(device.name, sizeof device.name, "NVIDIA H200");
  EXPECT_THAT(marlin_ggml::why_unused(device),
              ::testing::StartsWith("NVIDIA H200 is not used: the products run on the CPU"));
  EXPECT_LE(marlin_ggml::why_unused(device).size(), 400u) << "a line of the log";
  std::snprintf(device.why_not, sizeof device.why_not, "there is no driver");
  EXPECT_EQ(marlin_ggml::why_unused(device), "") << "the library could not use it either";
  device = {};
  device.backend = MARLIN_BACKEND_CPU;
  EXPECT_EQ(marlin_ggml::why_unused(device), "");
}

INSTANTIATE_TEST_SUITE_P(Ggml, Refusal, ::testing::ValuesIn(kLies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
