// metal_marlin.hpp, as a C++17 program uses it.
#include "metal_marlin/metal_marlin.hpp"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace mm = metal_marlin;

namespace {

static_assert(!std::is_copy_constructible<mm::weights>::value, "one owner each");
static_assert(std::is_nothrow_move_constructible<mm::weights>::value, "moves cannot fail");
static_assert(sizeof(mm::context) == sizeof(marlin_context*), "an owner is a pointer");

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(static_cast<int>(i % 15)) - 7.0f;
  return values;
}

/// Small whole numbers: exact in INT4 with scale 1.
mm::weights make_weights(const mm::context& context, std::int64_t n, std::int64_t k, std::vector<float>& values) {
  values = ramp(static_cast<std::size_t>(n * k));
  auto desc = mm::make<marlin_pack_desc>();
  desc.format = MARLIN_FORMAT_INT4;
  desc.n = n;
  desc.k = k;
  desc.values = mm::matrix_view(values.data(), n, k);
  return mm::pack(context, desc);
}

TEST(Hpp, PacksMultipliesAndUnpacks) {
  const mm::context context(MARLIN_BACKEND_AUTO);
  std::vector<float> w;
  const mm::weights weights = make_weights(context, 6, 64, w);
  EXPECT_EQ(mm::info(weights).n, 6);
  EXPECT_EQ(mm::info(weights).format, MARLIN_FORMAT_INT4);

  std::vector<float> back(6 * 64);
  mm::unpack(weights, mm::matrix_view(back.data(), 6, 64));
  EXPECT_EQ(back, w);

  const std::vector<float> x(64, 1.0f);
  std::vector<float> y(6);
  auto desc = mm::make<marlin_gemm_desc>();
  desc.weights = weights.get();
  desc.a = mm::matrix_view(x.data(), 1, 64);
  desc.c = mm::matrix_view(y.data(), 1, 6);
  mm::gemm(desc);
  for (std::size_t j = 0; j < 6; ++j) {
    float sum = 0;
    for (std::size_t l = 0; l < 64; ++l) sum += w[j * 64 + l];
    EXPECT_EQ(y[j], sum);
  }
  EXPECT_EQ(mm::explain(desc).compare(0, 8, "kernel: "), 0);
}

TEST(Hpp, StreamsAndBuffers) {
  const mm::context context(MARLIN_BACKEND_AUTO);
  std::vector<float> w;
  const mm::weights weights = make_weights(context, 4, 32, w);
  mm::stream stream(context);
  const mm::buffer memory(context, 4096);
  ASSERT_NE(memory.data(), nullptr);
  static_cast<float*>(memory.data())[0] = 2.0f;
  auto desc = mm::make<marlin_gemm_desc>();
  desc.weights = weights.get();
  desc.a = memory.matrix<float>(1, 32);
  desc.c = memory.matrix<float>(1, 4, 1024);
  mm::gemm(stream, desc);
  stream.flush();
  stream.wait();
  EXPECT_TRUE(stream.wait_for(0));
  const float* y = static_cast<const float*>(memory.data()) + 256;
  for (std::size_t j = 0; j < 4; ++j) EXPECT_EQ(y[j], 2.0f * w[j * 32]);
}

TEST(Hpp, MemoryAndStreamsOfCuda) {
  const mm::context context(MARLIN_BACKEND_CPU);
  static const float memory[128] = {};
  const marlin_matrix view = mm::cuda_view(memory, 2, 32, 48);
  EXPECT_EQ(view.memory, MARLIN_MEM_CUDA);
  EXPECT_EQ(view.row_stride, 48);
  EXPECT_EQ(view.data, memory);
  try {
    mm::stream(context, MARLIN_NATIVE_CUDA_STREAM, nullptr);
    FAIL() << "the CPU took a stream of CUDA";
  } catch (const mm::error& error) {
    EXPECT_EQ(error.status(), MARLIN_E_ARGUMENT);
  }
}

TEST(Hpp, PartsProductsAndRowsAtOnce) {
  const mm::context context(MARLIN_BACKEND_AUTO);
  std::vector<float> w, x(32), y(4), z(4), rows(2 * 32);
  const mm::weights one = make_weights(context, 4, 32, w);
  auto part = mm::make<marlin_pack_desc>();
  part.format = MARLIN_FORMAT_MXFP4;
  part.n = 4, part.k = 32;
  part.values = mm::matrix_view(w.data(), 4, 32);
  EXPECT_EQ(mm::info(mm::pack(context, std::vector<marlin_pack_desc>{part, part})).n, 8);

  x[0] = 1;
  std::vector<marlin_gemm_desc> products(2, mm::make<marlin_gemm_desc>());
  for (auto& product : products) product.weights = one.get(), product.a = mm::matrix_view(x.data(), 1, 32);
  products[0].c = mm::matrix_view(y.data(), 1, 4);
  products[1].c = mm::matrix_view(z.data(), 1, 4);
  mm::prepare(products, 8);
  mm::gemm_many(products);
  EXPECT_EQ(y, z);
  EXPECT_EQ(y[3], w[3 * 32]);
  products[1].c = products[0].c;
  EXPECT_THROW(mm::gemm_many(products), mm::error);
  EXPECT_THROW(mm::prepare(products, -1), mm::error);

  const std::int32_t ids[] = {3, 1};
  mm::unpack_rows(one, mm::matrix_view(ids, 2, 1), mm::matrix_view(rows.data(), 2, 32));
  EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 32, w.begin() + 3 * 32));
  EXPECT_TRUE(std::equal(rows.begin() + 32, rows.end(), w.begin() + 32));
}

TEST(Hpp, AMixtureOfExpertsIsTheSumOfItsProducts) {
  const mm::context context(MARLIN_BACKEND_CPU);
  std::vector<float> w, x(32), y(4), c(4);
  const mm::weights one = make_weights(context, 4, 32, w);
  std::vector<float> doubled = w;
  for (float& value : doubled) value *= 2;
  auto part = mm::make<marlin_pack_desc>();
  part.format = MARLIN_FORMAT_INT4;
  part.n = 4, part.k = 32;
  std::vector<marlin_pack_desc> parts(2, part);
  parts[0].values = mm::matrix_view(w.data(), 4, 32);
  parts[1].values = mm::matrix_view(doubled.data(), 4, 32);
  const mm::weights mixture = mm::pack(context, parts, 2);
  EXPECT_EQ(mm::info(mixture).experts, 2u);
  EXPECT_EQ(mm::info(mixture).n, 4);

  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  auto product = mm::make<marlin_gemm_desc>();
  product.weights = one.get();
  product.a = mm::matrix_view(x.data(), 1, 32);
  product.c = mm::matrix_view(y.data(), 1, 4);
  mm::gemm(product);
  const std::int32_t ids[] = {1, 0};
  const float scales[] = {0.5f, 3.0f};
  product.weights = mixture.get();
  product.c = mm::matrix_view(c.data(), 1, 4);
  product.expert_ids = mm::matrix_view(ids, 1, 2);
  product.expert_scales = mm::matrix_view(scales, 1, 2);
  mm::prepare({product}, 1);
  mm::gemm(product);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(c[i], (0.5f * 2 + 3) * y[i]);  // whole numbers: exact
  product.expert_scales = {};
  EXPECT_THROW(mm::gemm(product), mm::error);  // without a sum, c has two rows
}

TEST(Hpp, FailuresAreExceptionsWithAllThereIsToKnow) {
  const mm::context context(MARLIN_BACKEND_AUTO);
  try {
    const mm::buffer none(context, 0);
    FAIL() << "expected an exception";
  } catch (const mm::error& e) {
    EXPECT_EQ(e.status(), MARLIN_E_ARGUMENT);
    EXPECT_EQ(e.native_code(), 0);
    EXPECT_NE(std::string(e.what()).find("bytes is 0"), std::string::npos) << e.what();
  }
  EXPECT_THROW(mm::checkpoint("/nonexistent/model.safetensors"), mm::error);
  EXPECT_THROW(mm::context(marlin_backend{77}), mm::error);
}

TEST(Hpp, OwnersMoveAndLetGo) {
  mm::context context(MARLIN_BACKEND_AUTO);
  std::vector<float> w;
  mm::weights first = make_weights(context, 2, 32, w), second;
  EXPECT_TRUE(first);
  EXPECT_FALSE(second);
  marlin_weights* const handle = first.get();
  second = std::move(first);
  EXPECT_EQ(second.get(), handle);
  EXPECT_FALSE(first);           // NOLINT(bugprone-use-after-move): empty, as the header says
  second = std::move(*&second);  // to itself: still there
  EXPECT_EQ(second.get(), handle);
  mm::weights third(second.release());
  EXPECT_FALSE(second);
  context.reset();  // the weights keep it alive
  EXPECT_EQ(mm::info(third).n, 2);

  mm::context filled;
  EXPECT_EQ(marlin_context_create(nullptr, filled.out(), nullptr), MARLIN_OK);
  EXPECT_TRUE(filled);
  EXPECT_EQ(marlin_context_create(nullptr, filled.out(), nullptr), MARLIN_OK);  // the first one is destroyed, not leaked
}

TEST(Hpp, Devices) {
  bool cpu = false;
  for (const marlin_device_info& device : mm::devices())
    cpu |= device.backend == MARLIN_BACKEND_CPU && device.why_not[0] == '\0';
  EXPECT_TRUE(cpu);
}

TEST(Hpp, MatrixViews) {
  const std::vector<float> values(12);
  const marlin_matrix m = mm::matrix_view(values.data(), 2, 3, 6);
  EXPECT_EQ(m.data, values.data());
  EXPECT_EQ(m.rows, 2);
  EXPECT_EQ(m.cols, 3);
  EXPECT_EQ(m.row_stride, 6);
  EXPECT_EQ(m.dtype, MARLIN_F32);
  EXPECT_EQ(m.memory, MARLIN_MEM_HOST);
  mm::bf16 half{0x3f80};
  EXPECT_EQ(mm::matrix_view(&half, 1, 1).dtype, MARLIN_BF16);
}

}  // namespace
