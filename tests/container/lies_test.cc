// Containers with right checksums whose directories lie: each number is proven against the bytes that are there, so that a lie
// costs an error, and never memory, time or a byte outside its block.
#include "checkpoints/checkpoint.h"
#include "container_file.h"
#include "directory_integers.h"
#include "sealed_file.h"
#include "test.h"
#include "unit/counting_new.h"

namespace container_test {
namespace {

using metal_marlin::ContainerDirectory;
using metal_marlin::ContainerMatrix;

/// Does everything with a file that a host does. Returns how many layers load.
int use(const mm::context& context, const std::string& path) {
  int loaded = 0;
  const marlin_status all = status_of([&] {
    const mm::checkpoint file(path);
    for (const marlin_layer_info& layer : file.layers()) {
      EXPECT_GE(layer.n, 0);
      EXPECT_GE(layer.k, 0);
      mm::weights weights;
      const marlin_status status = status_of([&] { weights = mm::load(context, file, layer.name); });
      if (status == MARLIN_OK) EXPECT_EQ(layer.status, MARLIN_OK) << layer.name;
      if (status != MARLIN_OK) continue;
      ++loaded;
      const int64_t rows = layer.n * layer.experts;
      std::vector<float> row(static_cast<size_t>(layer.k));
      std::vector<std::byte> blocks(static_cast<size_t>(layer.k * 4 * layer.experts));
      mm::unpack(weights, mm::matrix_view(row.data(), 1, layer.k), rows - 1);
      (void)status_of([&] {  // one row of blocks of each expert, at any length that a type has
        for (const int64_t block : {18, 20, 22, 24, 34, 84, 110, 144, 176, 210})
          for (uint32_t e = 0; e < layer.experts; ++e) {
            const int64_t bytes = layer.k / (block < 40 ? 32 : 256) * block;
            marlin_matrix out = {};
            out.data = blocks.data();
            out.rows = 1;
            out.cols = out.row_stride = bytes;
            out.dtype = MARLIN_U8;
            (void)marlin_weights_unpack(nullptr, weights.get(), nullptr, e * layer.n, &out, nullptr);
          }
      });
      (void)status_of([&] { (void)product(weights); });
    }
    for (const marlin_value& value : file.values()) (void)value;
  });
  EXPECT_NE(all, MARLIN_E_MEMORY);
  return loaded;
}

class Lies : public ::testing::TestWithParam<const char*> {};

TEST_P(Lies, CostNoMoreThanTheFile) {
  const Folder folder;
  auto desc = mm::make<marlin_context_desc>();
  desc.backend = MARLIN_BACKEND_CPU;
  desc.threads = 1;
  const mm::context context(desc);
  pack_smallest(context, GetParam(), folder / "good.marlin");
  const std::string good = read(folder / "good.marlin");
  ContainerDirectory directory = directory_of(good).take();
  ASSERT_EQ(use(context, folder / "good.marlin"), 1);
  constexpr uint64_t kExtremes[] = {0, 1, 2, 16, 128, 0x7fffffff, 0x80000000, INT64_MAX, 1ull << 63, 1ull << 61, UINT64_MAX};
  size_t harmless = 0;
  const size_t count = integers_of(directory).size();
  const auto try_lies = [&](const std::vector<std::pair<size_t, uint64_t>>& lies) {
    ContainerDirectory bad = directory;
    for (const auto& [field, value] : lies) integers_of(bad)[field](value);
    write(folder / "bad.marlin", with_directory(good, bad));
    counting_new::peak = counting_new::live.load();
    const size_t before = counting_new::live;
    harmless += use(context, folder / "bad.marlin");
    ASSERT_LE(counting_new::peak - before, 4 * good.size() + (1 << 20)) << "field " << lies[0].first << " = " << lies[0].second;
  };
  for (size_t field = 0; field < count; ++field)
    for (const uint64_t extreme : kExtremes) try_lies({{field, extreme}});
  std::mt19937 random(5);
  const auto lie = [&] { return std::pair(random() % count, kExtremes[random() % std::size(kExtremes)]); };
  for (int pair = 0; pair < 500; ++pair) try_lies({lie(), lie()});
  EXPECT_LT(harmless, count * std::size(kExtremes) / 4);
}
INSTANTIATE_TEST_SUITE_P(Container, Lies,
                         ::testing::Values("gptq-v1-asym-g64-actorder", "mlx-experts", "gguf-experts-q4k", "nvfp4-modelopt",
                                           "bnb-nf4-b64-double", "ct-marlin-24-g128"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// A container of two experts, and changes that no writer makes.
class Experts : public ::testing::Test {
 protected:
  Experts()
      : context_(MARLIN_BACKEND_CPU),
        good_((pack_smallest(context_, "mxfp4-gpt-oss-experts", folder_ / "good.marlin"), read(folder_ / "good.marlin"))) {
    directory_ = directory_of(good_).take();
    for (size_t i = 0; i < directory_.entries.size(); ++i)
      if (directory_.entries[i].experts.size() == 2) entry_ = i;
  }
  ContainerMatrix& expert(ContainerDirectory& d, size_t e) { return d.entries[entry_].experts[e]; }
  std::string outcome(const ContainerDirectory& d) {
    write(folder_ / "bad.marlin", with_directory(good_, d));
    std::string message;
    const marlin_status status = status_of([&] { mm::checkpoint(folder_ / "bad.marlin"); }, &message);
    EXPECT_EQ(status, message.empty() ? MARLIN_OK : MARLIN_E_FORMAT) << message;
    return message;
  }

  const Folder folder_;
  const mm::context context_;
  const std::string good_;
  ContainerDirectory directory_;
  size_t entry_ = 0;
};

TEST_F(Experts, OfOneHandleAreOfOneKind) {
  using metal_marlin::ScaleType;
  using metal_marlin::WeightMeta;
  using metal_marlin::ZeroKind;
  ASSERT_EQ(outcome(directory_), "");
  const std::function<void(WeightMeta&)> changes[] = {
      [](auto& meta) { meta.group_size *= 2; },
      [](auto& meta) { meta.scale_type = ScaleType::bf16; },
      [](auto& meta) { meta.zero_kind = ZeroKind::integer; },
      [](auto& meta) { meta.sparse = true; },
      [](auto& meta) { meta.gate_up_interleaved = !meta.gate_up_interleaved; },
      [](auto& meta) { meta.codebook.assign(16, 1.0f); },
  };
  for (const auto& change : changes) {
    ContainerDirectory bad = directory_;
    change(expert(bad, 1).matrix.meta);
    EXPECT_THAT(outcome(bad), ::testing::HasSubstr("experts: expected one format and shape, and scales"));
  }
}

TEST_F(Experts, BlocksDoNotOverlap) {
  ContainerDirectory bad = directory_;
  expert(bad, 1).data = expert(bad, 0).data;
  EXPECT_THAT(outcome(bad), ::testing::HasSubstr("block: expected it behind the end of another"));
  bad = directory_;
  expert(bad, 0).data.offset = expert(bad, 1).data.offset;
  EXPECT_THAT(outcome(bad), ::testing::HasSubstr("block: expected it behind the end of another"));
  bad = directory_;
  bad.values.offset = expert(bad, 0).data.offset;
  EXPECT_THAT(outcome(bad), ::testing::HasSubstr("block: expected it behind the end of another"));
}

TEST_F(Experts, ALayerSaysWhatItsLoadWouldSay) {
  const std::function<void(ContainerMatrix&)> changes[] = {
      [](auto& one) { one.matrix.meta.format = 99; }, [](auto& one) { one.matrix.meta.n = -1; },
      [](auto& one) { one.matrix.meta.k = 0; },       [](auto& one) { one.matrix.meta.k = INT64_MAX; },
      [](auto& one) { one.matrix.meta.n += 64; },     [](auto& one) { one.matrix.slots += 128; },
      [](auto& one) { one.matrix.slot_group = 7; },   [](auto& one) { one.matrix.meta.groups = INT32_MAX; },
      [](auto& one) { one.data.bytes -= 64; },
  };
  for (const auto& change : changes) {
    ContainerDirectory bad = directory_;
    change(expert(bad, 0)), change(expert(bad, 1));
    ASSERT_EQ(outcome(bad), "");
    const mm::checkpoint file(folder_ / "bad.marlin");
    for (const marlin_layer_info& layer : file.layers()) {
      EXPECT_NE(layer.status, MARLIN_OK);
      EXPECT_GE(layer.n, 0);
      EXPECT_GE(layer.k, 0);
      if (layer.experts == 2) EXPECT_NE(status_of([&] { mm::load(context_, file, layer.name); }), MARLIN_OK);
    }
  }
}

TEST_F(Experts, KeysOccurOnce) {
  ContainerDirectory bad = directory_;
  ASSERT_GT(bad.value_begins.size(), 2u);
  std::string file = good_;
  char* const values = file.data() + bad.values.offset;
  // Two keys of one length, which "marlin.device" and "marlin.source" have, become one.
  const auto key_of = [&](std::string_view name) { return values + std::string_view(values, bad.values.bytes).find(name); };
  std::memcpy(key_of("marlin.device"), "marlin.source", 13);
  bad.values.checksum = sum(values, bad.values.bytes);
  write(folder_ / "bad.marlin", with_directory(file, bad));
  EXPECT_ERROR(MARLIN_E_FORMAT, "a key that occurs twice", mm::checkpoint(folder_ / "bad.marlin"));
  // A text that is longer than its value.
  file = good_;
  store(file.data() + bad.values.offset, uint64_t{1} << 60);
  bad.values.checksum = sum(file.data() + bad.values.offset, bad.values.bytes);
  write(folder_ / "bad.marlin", with_directory(file, bad));
  EXPECT_ERROR(MARLIN_E_FORMAT, "found neither", mm::checkpoint(folder_ / "bad.marlin"));
}

TEST_F(Experts, AMillionNamesTakeFewBytes) {
  ContainerDirectory names = directory_, tensors = directory_;
  for (int i = 0; i < 200'000; ++i) names.entries[entry_].layers.push_back("");
  for (int i = 0; i < 100'000; ++i) tensors.tensors.push_back({std::to_string(i), "U8", false, {0}, {}});
  for (const ContainerDirectory* const bad : {&names, &tensors}) {
    write(folder_ / "bad.marlin", with_directory(good_, *bad));
    const size_t size = read(folder_ / "bad.marlin").size();
    counting_new::peak = counting_new::live.load();
    const size_t before = counting_new::live;
    EXPECT_EQ(mm::checkpoint(folder_ / "bad.marlin").layers().size(), directory_.entries.size());
    EXPECT_LE(counting_new::peak - before, 4 * size + (1 << 20));
  }
}

/// A safetensors file of one float32 tensor of 64 x 64 and another tensor.
void write_floats(const std::string& path, const std::string& other) {
  const std::string header = R"({"w.weight":{"dtype":"F32","shape":[64,64],"data_offsets":[0,16384]},")" + other +
                             R"(":{"dtype":"F32","shape":[1],"data_offsets":[16384,16388]}})";
  const uint64_t length = header.size();
  write(path, std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(16388, '\0'));
}

TEST(Written, CanBeRead) {
  const Folder folder;
  const mm::context context(MARLIN_BACKEND_CPU);
  const auto save = [&] { mm::save(context, mm::checkpoint(folder / "f.safetensors"), folder / "f.marlin"); };
  write_floats(folder / "f.safetensors", std::string(65535, 'a'));
  save();
  EXPECT_EQ(mm::checkpoint(folder / "f.marlin").tensor(std::string(65535, 'a').c_str()).cols, 1);
  std::filesystem::remove(folder / "f.marlin");
  write_floats(folder / "f.safetensors", std::string(65536, 'a'));
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "up to 65535 bytes", save());
  EXPECT_FALSE(std::filesystem::exists(folder / "f.marlin"));
  // Two paths of a config may be spelled alike.
  write_floats(folder / "f.safetensors", "a");
  write(folder / "config.json", R"({"a.b":1,"a":{"b":2},"marlin.rank":7,"marlin":{"source":"x"}})");
  save();
  const mm::checkpoint packed(folder / "f.marlin");
  EXPECT_EQ(packed.value("a.b").u64, 1u);
  EXPECT_EQ(packed.value("marlin.rank").u64, 0u);
  const marlin_value source = packed.value("marlin.source");
  EXPECT_EQ(std::string(static_cast<const char*>(source.data), source.bytes), "f.safetensors");
}

}  // namespace
}  // namespace container_test
