// Packed containers on a GPU: used where they lie, or copied as they are to memory that only the device reaches. What a file
// holds are the bytes that the backend of the device would have packed.
#include "api/checkpoint.h"
#include "backends/cuda/policy.h"
#include "backends/gpu/pack.h"
#include "backends/gpu/packer.h"
#include "checkpoints/container/container.h"
#include "container/container_file.h"
#include "recorded.h"
#include "test.h"

namespace gpu_container_tests {
namespace {

using namespace device_test;
using ::testing::_;

/// A family of GPUs, and whether this one reaches memory of the host.
struct Family {
  const char* device;
  marlin_backend backend;
  const gpu::Policy& (*policy)();
  bool unified;
};
constexpr Family kMetal = {"metal", MARLIN_BACKEND_METAL, gpu::simdgroup_policy, true},
                 kCuda = {"cuda", MARLIN_BACKEND_CUDA, mm::cuda::policy, false};

struct On : World {
  explicit On(const Family& family) : World({.probe = false, .policy = &family.policy()}) {
    device->change().unified_memory = family.unified;
    device->change().page_bytes = 16 << 10;  // Apple's; files have blocks at multiples of 4096
  }
};

/// Packs with a context of the CPU, on a machine that has no GPU.
void save(const std::string& name, const Family& family, const std::string& path) {
  const mm::context cpu(MARLIN_BACKEND_CPU);
  auto desc = mm::make<marlin_save_desc>();
  desc.backend = family.backend;
  mm::save(cpu, mm::checkpoint(container_test::data(name)), path, desc);
}

const gpu::GpuWeights& expert_of(const mm::weights& w, size_t e) {
  return static_cast<const gpu::GpuWeights&>(*w.get()->experts[e]);
}
const std::byte* bytes_of(const gpu::GpuWeights& weights) {
  const gpu::DevicePointer at = weights.part(0);
  return static_cast<const HostBuffer&>(*at.buffer).data() + at.offset;
}

class Containers : public ::testing::TestWithParam<Family> {
 protected:
  const container_test::Folder folder_;
  const std::string path_ = folder_ / "model.marlin";
};
INSTANTIATE_TEST_SUITE_P(Gpu, Containers, ::testing::Values(kMetal, kCuda), [](const auto& info) { return info.param.device; });

TEST_P(Containers, OfEveryCheckpointHoldWhatTheBackendPacks) {
  size_t layers = 0, stacks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(container_test::data(""))) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename());
    save(entry.path().filename(), GetParam(), path_);
    On packing(GetParam()), loading(GetParam());
    const bool unified = GetParam().unified;
    // No memory but what is wrapped, of whole pages, which stays resident.
    EXPECT_CALL(*loading.mock, allocate).Times(unified ? ::testing::Exactly(0) : ::testing::AnyNumber());
    EXPECT_CALL(*loading.mock, wrap(_, _, dv::Placement::shared)).Times(0);
    EXPECT_CALL(*loading.mock, wrap(_, _, dv::Placement::device))
        .Times(unified ? ::testing::AnyNumber() : ::testing::Exactly(0));
    const mm::checkpoint source(entry.path().string()), packed(path_);
    for (const marlin_layer_info& layer : packed.layers()) {
      SCOPED_TRACE(layer.name);
      EXPECT_EQ(layer.status, MARLIN_OK);
      const mm::weights expected = mm::load(packing.context, source, layer.name);
      const mm::weights found = mm::load(loading.context, packed, layer.name);
      const auto parts = packed.get()->files->parts(*packed.get()->files->find_layer(layer.name));
      ASSERT_EQ(found.get()->experts.size(), expected.get()->experts.size());
      for (size_t e = 0; e < parts.size(); ++e) {
        const gpu::GpuWeights &a = expert_of(expected, e), &b = expert_of(found, e);
        ASSERT_EQ(a.layout, b.layout);
        EXPECT_EQ(a.plan_key(), b.plan_key());
        EXPECT_EQ(a.slot_to_k, b.slot_to_k);
        EXPECT_EQ(a.expert_stride != 0, b.expert_stride != 0);
        ASSERT_EQ(parts[e].bytes, a.layout.bytes);
        EXPECT_EQ(std::memcmp(bytes_of(a), bytes_of(b), a.layout.bytes), 0);
        EXPECT_EQ(bytes_of(b) == parts[e].data, unified);
        EXPECT_TRUE(!unified || b.part(0).buffer->address() % (16 << 10) == 0);
        if (b.expert_stride != 0) {
          EXPECT_EQ(bytes_of(b), bytes_of(expert_of(found, 0)) + e * b.expert_stride);
        }
      }
      const marlin_layer_info info = mm::info(expected), other = mm::info(found);
      EXPECT_EQ(std::tie(info.n, info.k, info.experts, info.format, info.layout, info.flags, info.dtype, info.bytes),
                std::tie(other.n, other.k, other.experts, other.format, other.layout, other.flags, other.dtype, other.bytes));
      ++layers;
      stacks += expert_of(found, 0).expert_stride != 0;
    }
    std::filesystem::remove(path_);
  }
  EXPECT_GT(layers, 100u);
  EXPECT_GT(stacks, 5u);
}

// Write none of these files anew (tests/container/container_test.cc).
TEST(Adoption, ReadsTheSecondVersionForEver) {
  const std::pair<const Family&, const char*> files[] = {{kMetal, "bnb-nf4-b64-double"}, {kCuda, "gptq-v1-asym-g64-actorder"}};
  for (const auto& [family, name] : files) {
    SCOPED_TRACE(name);
    On packing(family), loading(family);
    const mm::checkpoint source(container_test::data(name)),
        packed(container_test::data(std::string("container-v2-") + family.device + "-" + name + ".marlin"));
    ASSERT_EQ(packed.layers().size(), 1u);
    const std::string layer = packed.layers()[0].name;
    const mm::weights expected = mm::load(packing.context, source, layer), found = mm::load(loading.context, packed, layer);
    const gpu::GpuWeights &a = expert_of(expected, 0), &b = expert_of(found, 0);
    ASSERT_EQ(a.layout, b.layout);
    EXPECT_EQ(std::memcmp(bytes_of(a), bytes_of(b), a.layout.bytes), 0);
  }
}

TEST_P(Containers, AreMappedUntilTheLastWorkIsDone) {
  save("gptq-v1-sym-g128", GetParam(), path_);
  On world(GetParam());
  mm::checkpoint packed(path_);
  mm::weights w = mm::load(world.context, packed, packed.layers()[0].name);
  packed = {};
  const auto mapped = [&] { return container_test::read("/proc/self/maps").find(path_) != std::string::npos; };
  EXPECT_EQ(mapped(), GetParam().unified);
  mm::stream stream = stream_of(world);
  const Matrix row(world.context, 1, mm::info(w).k, MARLIN_F32);
  mm::unpack(stream, w, row.view);
  w = {};
  EXPECT_EQ(mapped(), GetParam().unified);
  EXPECT_EQ(marlin_stream_wait(stream.get(), UINT64_MAX, nullptr), MARLIN_OK);
  EXPECT_FALSE(mapped());
}

TEST(Adoption, GoToADeviceOfItsOwnByOneStreamInPieces) {
  On world(kCuda);
  const std::vector<std::byte> from((20 << 20) + 5, std::byte{7});
  gpu::Memory memory(*world.device);
  gpu::StreamCache streams(*world.device, nullptr);
  auto stream = streams.take().take();
  const auto to = memory.allocate(from.size(), dv::Placement::device, "weights").take();
  world.record.take();
  ASSERT_TRUE(stream->upload(memory, from, to).ok());
  EXPECT_EQ(std::memcmp(static_cast<const HostBuffer&>(*to).data(), from.data(), from.size()), 0);
  std::string order;  // a half is filled again when its copy is done
  for (const Command& command : world.record.take())
    if (command.what == "copy" || command.what == "wait") order += command.what + ' ';
  EXPECT_EQ(order, "copy wait copy wait copy wait ");
  EXPECT_EQ(memory.used(), from.size() + (16 << 20));
  stream.reset();
  EXPECT_EQ(memory.used(), from.size());
}

TEST(Adoption, AreCopiedWhereTheSystemWrapsNone) {
  const container_test::Folder folder;
  save("gptq-v1-sym-g128", kMetal, folder / "f.marlin");
  On world(kMetal);
  EXPECT_CALL(*world.mock, wrap).WillOnce([](void*, uint64_t, dv::Placement) {
    return Status::error(MARLIN_E_MEMORY, "a mapping of another kind");
  });
  const mm::checkpoint packed(folder / "f.marlin");
  const mm::weights w = mm::load(world.context, packed, packed.layers()[0].name);
  const auto part = packed.get()->files->parts(0)[0];
  EXPECT_NE(bytes_of(expert_of(w, 0)), part.data);
  EXPECT_EQ(std::memcmp(bytes_of(expert_of(w, 0)), part.data, part.bytes), 0);
  world.device->change().most_bytes = 4096;
  EXPECT_ERROR(MARLIN_E_MEMORY, "of the 4096 that the device may have",
               mm::load(world.context, packed, packed.layers()[0].name));
}

TEST_P(Containers, FailAsTheDeviceDoesAndLeakNothing) {
  save("mxfp4-gpt-oss-experts", GetParam(), path_);
  const mm::checkpoint packed(path_);
  for (const Fault fault : {Fault::error, Fault::memory, Fault::lost, Fault::late}) {
    int failures = 0;
    for (bool through = false; !through; ++failures) {
      ASSERT_LT(failures, 100);
      On world(GetParam());
      world.faults.arm(fault, failures + 1);
      mm::weights w;
      const marlin_status status =
          container_test::status_of([&] { w = mm::load(world.context, packed, packed.layers()[0].name); });
      through = world.faults.calls < world.faults.at && !world.faults.lost;
      const bool copied = GetParam().unified && fault != Fault::lost && failures == 0;  // instead of wrapped
      EXPECT_EQ(status, !world.faults.struck || copied ? MARLIN_OK
                        : fault == Fault::memory       ? MARLIN_E_MEMORY
                                                       : MARLIN_E_DEVICE)
          << failures;
      w = {};
      world.context = {};
      EXPECT_EQ(world.record.buffers, 0);
    }
    EXPECT_GE(failures, GetParam().unified ? 2 : 7);
  }
}

TEST(Adoption, AreRefusedOnAnotherDevice) {
  const container_test::Folder folder;
  save("gptq-v1-sym-g128", kMetal, folder / "metal.marlin");
  save("gptq-v1-sym-g128", kCuda, folder / "cuda.marlin");
  const On metal(kMetal), cuda(kCuda);
  const mm::context cpu(MARLIN_BACKEND_CPU);
  const auto load = [&](const mm::context& context, const std::string& path) {
    const mm::checkpoint packed(path);
    mm::load(context, packed, packed.layers()[0].name);
  };
  const std::string of_cpu = container_test::data("container-v1-gguf-kquants.marlin");
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "packed for the device cpu, expected metal", load(metal.context, of_cpu));
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "packed for the device cuda, expected metal", load(metal.context, folder / "cuda.marlin"));
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "packed for the device metal, expected cuda", load(cuda.context, folder / "metal.marlin"));
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED,
               "metal-marlin pack SOURCE -o OUT.marlin --backend cpu (SOURCE: ", load(cpu, folder / "metal.marlin"));
}

/// Packed matrices of a file in memory that a test may change.
class Copies {
 public:
  Copies(const std::string& path, const Family& family) : backend_(gpu::make_packer({}, family.policy()).take()) {
    const mm::checkpoint packed(path);
    const metal_marlin::Checkpoint& files = *packed.get()->files;
    for (size_t i = 0; i < files.layer_count(); ++i)
      for (mm::PackedMatrix& one : files.container()->matrices(i, 0, files.layer(i).experts).take()) {
        auto block = mm::Block::allocate(mm::Allocator::system(), one.data.size() + 256, 256).take();
        std::memcpy(block.data(), one.data.data(), one.data.size());
        one.data = {block.data(), one.data.size()};
        all.push_back(std::move(one));
        blocks_.push_back(std::move(block));
      }
  }
  Status adopt(const mm::PackedMatrix& matrix) const { return backend_->adopt({&matrix, 1}, nullptr).status(); }
  std::byte* bytes(size_t i) const { return blocks_[i].data(); }
  std::vector<mm::PackedMatrix> all;

 private:
  std::vector<mm::Block> blocks_;
  const std::unique_ptr<mm::Backend> backend_;
};

bool lies_before(const mm::PackedMatrix& a, const mm::PackedMatrix& b) { return a.data.data() < b.data.data(); }

// Kernels load activations by the order of columns, and find factors by their quads.
TEST_P(Containers, ThatLieInNumbersThatBecomeAddressesAreRefused) {
  save("gptq-v1-asym-g64-actorder", GetParam(), path_);
  const Copies order(path_, GetParam());
  const auto layout_of = [](const mm::PackedMatrix& one, const Family& family) {
    return gpu::plan_of_packed(one, family.policy()).take().layout;
  };
  const gpu::RowBlockLayout permuted = layout_of(order.all[0], GetParam());
  ASSERT_TRUE(permuted.permuted);
  for (const int64_t slot : {int64_t{0}, permuted.slots - 1}) {
    std::byte& number = order.bytes(0)[permuted.slot_to_k_at + static_cast<uint64_t>(slot) * 4 + 2];
    number ^= std::byte{1};
    const Status status = order.adopt(order.all[0]);
    EXPECT_EQ(status.code(), MARLIN_E_FORMAT);
    EXPECT_THAT(status.message(), HasSubstr("order of columns: expected that of the group index"));
    number ^= std::byte{1};
  }
  mm::PackedMatrix moved = order.all[0];
  EXPECT_TRUE(order.adopt(moved).ok());
  moved.data = {moved.data.data() + 64, moved.data.size()};
  EXPECT_THAT(order.adopt(moved).message(), HasSubstr("expected an address that is a multiple of 256"));
  if (GetParam().backend != MARLIN_BACKEND_METAL) return;  // the other has no nested scales
  save("bnb-nf4-b64-double", GetParam(), folder_ / "nested.marlin");
  const Copies nested(folder_ / "nested.marlin", GetParam());
  const gpu::RowBlockLayout layout = layout_of(nested.all[0], GetParam());
  ASSERT_TRUE(layout.nested());
  nested.bytes(0)[layout.zeros_at + 4 * kFactorQuadsAt] ^= std::byte{3};
  EXPECT_THAT(nested.adopt(nested.all[0]).message(), HasSubstr("quads of a factor: expected"));
}

TEST(Adoption, OfExpertsThatLieApartIsOfEachAlone) {
  const container_test::Folder folder;
  save("mxfp4-gpt-oss-experts", kMetal, folder / "f.marlin");
  const Copies copies(folder / "f.marlin", kMetal);
  On world(kMetal);
  const mm::PackedMatrix backwards[] = {std::max(copies.all[0], copies.all[1], lies_before),
                                        std::min(copies.all[0], copies.all[1], lies_before)};
  const mm::PackedMatrix twice[] = {copies.all[0], copies.all[0]};
  for (const std::span<const mm::PackedMatrix> experts : {std::span(backwards), std::span(twice)}) {
    const auto stack = world.context.get()->backend->adopt(experts, nullptr);
    ASSERT_TRUE(stack.ok()) << stack.status().message();
    for (size_t e = 0; e < 2; ++e) {
      const auto& expert = static_cast<const gpu::GpuWeights&>(*stack.value()[e]);
      EXPECT_EQ(expert.expert_stride, 0u);
      EXPECT_EQ(bytes_of(expert), experts[e].data.data());
    }
  }
}

TEST(Packer, PacksAndDoesNothingElse) {
  const auto packer = gpu::make_packer({}, gpu::simdgroup_policy()).take();
  EXPECT_EQ(packer->create_stream({}).status().code(), MARLIN_E_UNSUPPORTED);
  EXPECT_EQ(packer->native_memory(nullptr).status().code(), MARLIN_E_UNSUPPORTED);
  On cuda(kCuda);
  const mm::weights w = pack(cuda.context, 64, 64, 1);
  EXPECT_EQ(cuda.context.get()->backend->packed_matrix(expert_of(w, 0)).status().code(), MARLIN_E_UNSUPPORTED);
}

}  // namespace
}  // namespace gpu_container_tests
