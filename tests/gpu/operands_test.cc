// Operands in memory of the host: refused on streams, wrapped in whole pages, and otherwise copied on the ways that the device
// needs.
#include "test.h"
#include "world.h"

namespace {

using namespace device_test;

std::vector<std::string> what_of(const std::vector<Command>& commands) {
  std::vector<std::string> what;
  for (const Command& c : commands) what.push_back(c.what);
  return what;
}

TEST(HostOperands, NeedACallWithoutStream) {
  World world;
  Product p(world, 2);
  const mm::stream stream(world.context);
  std::vector<float> host(2 * 64, 1.0f);
  auto d = p.desc;
  d.c = mm::matrix_view(host.data(), 2, 64);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "c.memory is 0 (host)", marlin_gemm, stream.get(), &d);
  d = p.desc;
  d.a = mm::matrix_view(host.data(), 2, 64);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "a.memory is 0 (host)", marlin_gemm, stream.get(), &d);
  d = p.desc;
  d.bias = mm::matrix_view(host.data(), 1, 64);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "bias.memory is 0 (host)", marlin_gemm, stream.get(), &d);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "out.memory is 0 (host)", marlin_weights_unpack, stream.get(), p.w.get(), nullptr, int64_t{0},
               &d.bias);
  std::vector<int32_t> ids(2);
  const marlin_matrix list = mm::matrix_view(ids.data(), 2, 1), out = p.c.view;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "row_ids.memory is 0 (host)", marlin_weights_unpack, stream.get(), p.w.get(), &list,
               int64_t{0}, &out);
  EXPECT_OK(marlin_gemm, stream.get(), &p.desc);  // none of it stuck
  EXPECT_OK(marlin_gemm, nullptr, &d);
}

TEST(HostOperands, OfWholePagesAreWrapped) {
  World world;
  const mm::weights w = abi_test::quantized(world.context, 1024, 64);
  std::vector<std::byte> memory(3 * 4096);
  auto* page = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 4095) / 4096 * 4096);
  std::vector<float> a(64, 1.0f);
  auto d = mm::make<marlin_gemm_desc>();
  d.weights = w.get();
  d.a = mm::matrix_view(a.data(), 1, 64);
  d.c = mm::matrix_view(reinterpret_cast<float*>(page), 1, 1024);
  EXPECT_CALL(*world.mock, wrap(page, 4096, dv::Placement::shared)).Times(1);
  EXPECT_OK(marlin_gemm, nullptr, &d);
  testing::Mock::VerifyAndClearExpectations(world.mock.get());
  // A device that does not take this memory: it is copied.
  EXPECT_CALL(*world.mock, wrap(page, 4096, dv::Placement::shared)).WillOnce([](void*, uint64_t, dv::Placement) {
    return Result<dv::BufferRef>(Status::error(MARLIN_E_ARGUMENT, "read-only pages"));
  });
  EXPECT_OK(marlin_gemm, nullptr, &d);
}

class CopiedOperands : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Memory, CopiedOperands, testing::Bool(),
                         [](const auto& info) { return info.param ? "unified" : "discrete"; });

TEST_P(CopiedOperands, KeepTheirGaps) {
  World world;
  world.device->change().unified_memory = GetParam();
  const mm::weights w = abi_test::quantized(world.context, 64, 64);
  std::vector<float> a(2 * 70, 1.0f), c(2 * 67, 77.0f);
  auto d = mm::make<marlin_gemm_desc>();
  d.weights = w.get();
  d.a = mm::matrix_view(a.data(), 2, 64);
  d.a.row_stride = 70;
  d.c = mm::matrix_view(c.data(), 2, 64);
  d.c.row_stride = 67;
  d.flags = MARLIN_GEMM_ACCUMULATE;  // what C holds comes back, since the device computes nothing
  world.record.take();
  EXPECT_OK(marlin_gemm, nullptr, &d);
  auto commands = world.record.take();
  for (float x : c) EXPECT_EQ(x, 77.0f);
  if (!GetParam()) {
    // The copy from the host comes before the product and that to the host behind it; memory that is new is filled first.
    EXPECT_EQ(commands.at(0).what, "fill");
    EXPECT_EQ(commands.at(1).what, "barrier");
    EXPECT_OK(marlin_gemm, nullptr, &d);
    commands = world.record.take();
    const auto product = std::find_if(commands.begin(), commands.end(), [](const Command& o) { return o.what == "dispatch"; });
    EXPECT_EQ(what_of({commands.begin(), product}), (std::vector<std::string>{"copy", "barrier"}));
    EXPECT_EQ(what_of({product + 1, commands.end()}), (std::vector<std::string>{"barrier", "copy", "commit", "wait"}));
    commands = {product, commands.end()};
  }
  EXPECT_EQ(static_cast<const HostBuffer*>(commands.at(0).arguments.at(MARLIN_BUFFER_A).buffer)->visible, GetParam());
  // Rows are staged so that the fast path serves them.
  EXPECT_EQ(commands.at(0).constants.at(MARLIN_CONSTANT_ALIGNED), 1u);
  EXPECT_EQ(commands.back().what, "wait");
}

/// What needs no copy gets none: outputs on the way there, inputs on the way back.
TEST(HostOperands, AreCopiedOneWay) {
  World world;
  world.device->change().unified_memory = false;
  Product p(world, 2);
  std::vector<float> host(2 * 64, 1.0f);
  for (const bool input : {true, false}) {
    auto d = p.desc;
    (input ? d.a : d.c) = mm::matrix_view(host.data(), 2, 64);
    EXPECT_OK(marlin_gemm, nullptr, &d);  // fills what it stages in
    world.record.take();
    EXPECT_OK(marlin_gemm, nullptr, &d);
    const auto what = what_of(world.record.take());
    EXPECT_EQ(what, input ? (std::vector<std::string>{"copy", "barrier", "dispatch", "commit", "wait"})
                          : (std::vector<std::string>{"dispatch", "barrier", "copy", "commit", "wait"}));
  }
}

}  // namespace
