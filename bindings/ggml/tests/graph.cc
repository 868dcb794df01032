#include "graph.h"

#include <ggml-cpu.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>

namespace ggml_test {

ggml_backend_dev_t plugin_device() {
  static const ggml_backend_reg_t reg = ggml_backend_load(PLUGIN);
  EXPECT_NE(reg, nullptr) << PLUGIN;
  return ggml_backend_reg_dev_get(reg, 0);
}
Backend plugin_backend() { return Backend(ggml_backend_dev_init(plugin_device(), nullptr)); }
bool set_compute(ggml_backend_t backend, const char* name) {
  const auto set =
      reinterpret_cast<bool (*)(ggml_backend_t, const char*)>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(plugin_device()), "ggml_backend_metal_marlin_set_compute"));
  return set(backend, name);
}
Backend exact_backend() {
  Backend backend = plugin_backend();
  EXPECT_TRUE(set_compute(backend.get(), "exact"));
  return backend;
}
Backend cpu_backend() {
  Backend backend(ggml_backend_cpu_init());
  ggml_backend_cpu_set_n_threads(backend.get(), 1);  // its threads spin
  return backend;
}

Context new_context() {
  return Context(ggml_init({.mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead(),
                            .mem_buffer = nullptr,
                            .no_alloc = true}));
}

Input random_input(ggml_type type, std::array<int64_t, 4> ne, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const int64_t rows = ne[1] * ne[2] * ne[3];
  std::vector<float> values(static_cast<size_t>(ne[0] * rows));
  for (float& value : values) value = uniform(random);
  Input input{type, ne, Bytes(ggml_row_size(type, ne[0]) * static_cast<size_t>(rows))};
  if (type == GGML_TYPE_F32) {
    std::memcpy(input.bytes.data(), values.data(), input.bytes.size());
  } else {
    ggml_quantize_chunk(type, values.data(), input.bytes.data(), 0, rows, ne[0], nullptr);
  }
  return input;
}

Graph product_of(Input weights, Input activations) {
  return {{std::move(weights), std::move(activations)},
          [](ggml_context* ctx, std::span<ggml_tensor* const> in) {
            return ggml_mul_mat(ctx, in[0], in[1]);
          }};
}

Input integers(std::array<int64_t, 4> ne, const std::vector<int32_t>& values) {
  Input input{GGML_TYPE_I32, ne, Bytes(values.size() * sizeof(int32_t))};
  std::memcpy(input.bytes.data(), values.data(), input.bytes.size());
  return input;
}

Placed::Placed(const Graph& graph, ggml_backend_t backend, ggml_backend_buffer_usage usage)
    : backend_(backend), context_(new_context()) {
  for (const Input& input : graph.inputs)
    inputs_.push_back(ggml_new_tensor(context_.get(), input.type, 4, input.ne.data()));
  output_ = graph.build(context_.get(), inputs_);
  graph_ = ggml_new_graph(context_.get());
  ggml_build_forward_expand(graph_, output_);
  buffer_.reset(ggml_backend_alloc_ctx_tensors(context_.get(), backend));
  ggml_backend_buffer_set_usage(buffer_.get(), usage);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    EXPECT_EQ(ggml_nbytes(inputs_[i]), graph.inputs[i].bytes.size());
    ggml_backend_tensor_set(inputs_[i], graph.inputs[i].bytes.data(), 0,
                            graph.inputs[i].bytes.size());
  }
}
ggml_status Placed::compute() { return ggml_backend_graph_compute(backend_, graph_); }
std::vector<float> Placed::result() const {
  std::vector<float> values(static_cast<size_t>(ggml_nelements(output_)));
  ggml_backend_tensor_get(output_, values.data(), 0, values.size() * sizeof(float));
  return values;
}

std::vector<float> run(const Graph& graph, ggml_backend_t backend) {
  Placed placed(graph, backend);
  EXPECT_EQ(placed.compute(), GGML_STATUS_SUCCESS);
  return placed.result();
}

namespace {

const char* at(const ggml_tensor& t, int64_t i1, int64_t i2, int64_t i3) {
  return static_cast<const char*>(t.data) + i1 * static_cast<int64_t>(t.nb[1]) +
         i2 * static_cast<int64_t>(t.nb[2]) + i3 * static_cast<int64_t>(t.nb[3]);
}

// One element of the product, for a row of weights and one of activations. A term is worth up to
// the largest weight of its block, and an additive zero as much again: what is summed is bounded by
// three times that.
void add_element(const ggml_tensor& w, const std::vector<float>& row, const char* a, size_t step,
                 Expected& out) {
  double value = 0, size = 0;
  constexpr size_t kBlock = 16;
  for (size_t k = 0; k < row.size(); k += kBlock) {
    float largest = 0, all = 0;
    for (size_t i = k; i < k + kBlock; ++i) {
      float x;
      std::memcpy(&x, a + i * step, sizeof x);
      value += static_cast<double>(row[i]) * x;
      out.power += std::pow(static_cast<double>(row[i]) * x, 2);
      largest = std::max(largest, std::abs(row[i]));
      all += std::abs(x);
    }
    size += 3.0 * largest * all;
  }
  out.value.push_back(value);
  out.bound.push_back(size * static_cast<double>(w.ne[0]) * 0x1p-24);
}

}  // namespace

Expected expected(const Graph& product) {
  const Backend cpu = cpu_backend();
  const Placed placed(product, cpu.get());
  const ggml_tensor &c = *placed.output(), &w = *c.src[0], &a = *c.src[1];
  const ggml_tensor* ids = c.src[2];
  std::vector<float> row(static_cast<size_t>(w.ne[0]));
  Expected out;
  for (int64_t i3 = 0; i3 < c.ne[3]; ++i3)
    for (int64_t i2 = 0; i2 < c.ne[2]; ++i2)
      for (int64_t i1 = 0; i1 < c.ne[1]; ++i1)
        for (int64_t i0 = 0; i0 < c.ne[0]; ++i0) {
          int64_t w2 = i2 * w.ne[2] / c.ne[2];
          if (ids != nullptr)
            w2 = *reinterpret_cast<const int32_t*>(at(*ids, i2, 0, 0) +
                                                   i1 * static_cast<int64_t>(ids->nb[0]));
          ggml_get_type_traits(w.type)->to_float(at(w, i0, w2, i3 * w.ne[3] / c.ne[3]), row.data(),
                                                 w.ne[0]);
          add_element(w, row, at(a, ids != nullptr ? i1 % a.ne[1] : i1, i2, i3), a.nb[0], out);
        }
  return out;
}

void check_product(const Graph& product, bool cpu_takes_it) {
  const Backend exact = exact_backend(), plugin = plugin_backend(), cpu = cpu_backend();
  const std::vector<float> found = run(product, exact.get());
  const Expected right = expected(product);
  ASSERT_EQ(found.size(), right.value.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], right.value[i], right.bound[i]) << "element " << i;
  // Both round activations to 8 bits; ggml's own tests of backends allow this much for it.
  const double allowed = 5e-4 * right.power;
  EXPECT_LE(squared_distance(run(product, plugin.get()), right.value), allowed);
  if (!cpu_takes_it) return;
  EXPECT_LE(squared_distance(run(product, cpu.get()), right.value), allowed);
}

Log::Log() {
  ggml_log_set(
      [](ggml_log_level, const char* text, void* self) { static_cast<Log*>(self)->text_ += text; },
      this);
}
Log::~Log() { ggml_log_set(nullptr, nullptr); }

int64_t resident_kilobytes(const void* address) {
  char begin[32];
  std::snprintf(begin, sizeof begin, "%" PRIxPTR "-", reinterpret_cast<uintptr_t>(address));
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(begin)) here = true;
    if (here && line.starts_with("Rss:")) return std::stoll(line.substr(4));
  }
  ADD_FAILURE() << "no mapping " << begin;
  return 0;
}

}  // namespace ggml_test
