// Thousands of damaged files, each opened and all its layers read: a typed error that names the file, or success; never a
// crash, and under the address sanitizer never a byte outside the file (the files end where their heap blocks end).
#include "backends/gpu/kernels.h"
#include "backends/gpu/pack.h"
#include "base/bits.h"
#include "campaigns.h"
#include "checkpoint_files.h"
#include "core/parallel.h"
#include "formats/widen.h"
#include "must.h"
#include "test.h"
#include "under_sanitizer.h"

namespace metal_marlin::testing {
namespace {

/// One of so many damaged files is tried. AddressSanitizer makes each fifteen times as slow, so that the short form tries a
/// seventh of them there: files of every kind of damage, because 7 divides neither the bits of a byte nor the nasty values. The
/// suite levels tries all of them without it, and the fuzz targets try others under it.
size_t step() {
#if defined(MARLIN_UNDER_ASAN)
  return whole_campaigns() ? 1 : 7;
#else
  return 1;
#endif
}

struct Tally {
  size_t files = 0, refused = 0, layers_refused = 0, packed = 0;
};

/// Packs a source that is `read` as Metal's backend does: the error of reading, or none.
void pack_for_metal(const WeightSource& source, const Status& read, Tally& tally) {
  constexpr uint64_t kMostBytes = 1 << 20;  // a header may promise more than the test wants to allocate
  const gpu::Policy& policy = gpu::simdgroup_policy();
  std::unique_ptr<WidenedSource> widened;
  if (!policy.reads(source.meta())) {
    ASSERT_TRUE(is_narrow(source.meta()));
    widened = std::make_unique<WidenedSource>(source);
  }
  const WeightSource& packed = widened != nullptr ? *widened : source;
  for (const gpu::Exponents exponents : {gpu::Exponents::bytes, gpu::Exponents::floats}) {
    const auto plan = gpu::plan_packing(packed.meta(), exponents, policy.order);
    if (!plan.ok()) {
      ASSERT_TRUE(plan.status().code() == MARLIN_E_UNSUPPORTED || plan.status().code() == MARLIN_E_SHAPE)
          << plan.status().message();
      return;
    }
    if (plan.value().layout.bytes > kMostBytes) return;
    SequentialRunner runner;
    std::vector<std::byte> memory(plan.value().layout.bytes);  // the sanitizers see its end
    const auto done = gpu::pack_weights(packed, plan.value(), memory, runner);
    ASSERT_EQ(done.status().code(), read.code()) << done.status().message();
    ASSERT_STREQ(done.status().message(), read.message());
    ++tally.packed;
    if (!done.ok() || done.value()) return;
  }
  FAIL() << "exponents do not fit as floats either";
}

/// Opens the file, reads every layer, packs it for Metal, and checks the form of every error.
void try_file(const std::string& name, const std::string& content, const std::string& config, Tally& tally) {
  if (tally.files++ % step() != 0) return;
  auto opened = open_memory({{name, content}, {"config.json", config}});
  if (!opened.ok()) {
    ++tally.refused;
    const std::string message = opened.status().message();
    const marlin_status code = opened.status().code();
    ASSERT_TRUE(code == MARLIN_E_FORMAT || code == MARLIN_E_UNSUPPORTED) << message;
    ASSERT_NE(message.find(name + ": byte "), std::string::npos) << message;
    return;
  }
  const Checkpoint& checkpoint = *opened.value();
  Stripe stripe;
  for (size_t i = 0; i < checkpoint.layers().size(); ++i) {
    const Layer& layer = checkpoint.layers()[i];
    for (uint32_t e = 0; e < std::min<uint32_t>(std::max(layer.experts, 1u), 4u); ++e) {
      const auto source = checkpoint.source(i, e, {MARLIN_FORMAT_MXFP4});
      Status status = source.status();
      if (source.ok()) status = source.value()->read(0, source.value()->meta().n, stripe);
      if (source.ok()) pack_for_metal(*source.value(), status, tally);
      if (!status.ok()) ++tally.layers_refused;
      ASSERT_NE(status.code(), MARLIN_E_INTERNAL) << status.message();
    }
  }
}

void expect_many(const Tally& tally) {
  ::testing::Test::RecordProperty("cases", std::to_string(tally.files / step()));
  EXPECT_GE(tally.files, 10'000u);
  EXPECT_GE(tally.packed, 10'000u / step());
  EXPECT_GT(tally.refused, 1'000u / step());
}

/// Calls attempt(text) with each beginning of a text, and with each bit of it changed.
template <class Attempt>
void damage_text(const std::string& good, const Attempt& attempt) {
  for (size_t size = 0; size < good.size(); ++size) attempt(good.substr(0, size));
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string text = good;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
    attempt(text);
  }
  ::testing::Test::RecordProperty("cases", std::to_string(good.size() * 9));
}

/// Small files with every kind of tensor that has a reader.
std::vector<TestTensor> small_tensors() {
  const std::string z(256, '\x11');
  return {{"g.qweight", "I32", "2,8", z.substr(0, 64)},
          {"g.qzeros", "I32", "1,1", z.substr(0, 4)},
          {"g.scales", "F16", "1,8", z.substr(0, 16)},
          {"h.qweight", "I32", "3,4", z.substr(0, 48)},
          {"h.qzeros", "I32", "2,1", z.substr(0, 8)},
          {"h.scales", "F16", "2,4", z.substr(0, 16)},
          {"h.g_idx", "I32", "32", std::string(128, '\0')},
          {"m.weight", "U8", "2,16", z.substr(0, 32)},
          {"m.weight_scale", "U8", "2,1", z.substr(0, 2)},
          {"v.weight_packed", "U8", "1,8", z.substr(0, 8)},
          {"v.weight_scale", "F8_E4M3", "1,1", z.substr(0, 1)},
          {"v.weight_global_scale", "F32", "1", z.substr(0, 4)},
          {"c.weight_packed", "I32", "1,1", z.substr(0, 4)},
          {"c.weight_scale", "F32", "1,1", z.substr(0, 4)},
          {"c.weight_shape", "I64", "2", bytes_of<int64_t>({1, 8})},
          {"t.weight_packed", "I32", "2,3", z.substr(0, 24)},
          {"t.weight_scale", "F16", "2,1", z.substr(0, 4)},
          {"t.weight_zero_point", "I32", "1,1", z.substr(0, 4)},
          {"t.weight_shape", "I64", "2", bytes_of<int64_t>({2, 32})},
          {"e.weight", "F8_E4M3", "2,8", z.substr(0, 16)},
          {"e.weight_scale_inv", "F32", "1,1", z.substr(0, 4)},
          {"n.weight", "U8", "8,1", z.substr(0, 8)},
          {"n.weight.absmax", "F32", "1", z.substr(0, 4)},
          {"n.weight.quant_map", "F32", "16", z.substr(0, 64)},
          {"n.weight.quant_state.bitsandbytes__nf4", "U8", "32", R"({"blocksize": 16,"shape":[1,16]})"},
          {"i.weight", "I8", "2,8", z.substr(0, 16)},
          {"i.weight_scale", "F32", "1", z.substr(0, 4)},
          {"x.e_blocks", "U8", "2,1,1,16", z.substr(0, 32)},
          {"x.e_scales", "U8", "2,1,1", z.substr(0, 2)},
          {"l.weight", "U32", "1,4", z.substr(0, 16)},
          {"l.scales", "U8", "1,1", z.substr(0, 1)},
          {"q.W_q", "U8", "1,16", z.substr(0, 16)},
          {"q.scale", "F16", "2,1", z.substr(0, 4)},
          {"q.zero", "F16", "2,1", z.substr(0, 4)},
          {"q.shape", "I64", "2", bytes_of<int64_t>({2, 16})},
          {"q.nbits", "I32", "", bytes_of<int32_t>({4})},
          {"q.axis", "I32", "", bytes_of<int32_t>({1})},
          {"q.group_size", "I32", "", bytes_of<int32_t>({16})},
          {"o._weight_qdata", "I8", "2,8", z.substr(0, 16)},
          {"o._weight_scale", "BF16", "1,2", z.substr(0, 4)},
          {"o._weight_zero_point", "BF16", "1,2", z.substr(0, 4)},
          {"u._weight_qdata", "I8", "2,8", z.substr(0, 16)},
          {"u._weight_scale", "F32", "2,1", z.substr(0, 8)},
          {"u._weight_zero_point", "I8", "2,1", z.substr(0, 2)},
          {"experts.0.w.weight", "F32", "1,2", z.substr(0, 8)},
          {"experts.1.w.weight", "F32", "1,2", z.substr(0, 8)},
          {"f.weight", "F32", "1,2", z.substr(0, 8)}};
}
std::string small_safetensors() { return safetensors(small_tensors()); }

/// The same for layouts in blocks, which need more data; damaged in fewer places.
std::vector<TestTensor> blocks_tensors() {
  const std::string z(512, '\x11'), meta(256, '\x44');
  return {{"d.B", "I32", "1,128", z},
          {"d.s", "F16", "1,64", z.substr(0, 128)},
          {"i.B", "I32", "1,128", z},
          {"i.s", "F16", "1,64", z.substr(0, 128)},
          {"i.meta", "I16", "64,2", meta},
          {"m.weight_packed", "I32", "1,128", z},
          {"m.scale_packed", "F16", "1,64", z.substr(0, 128)},
          {"m.meta", "I16", "1,128", meta},
          {"b.compressed", "F16", "1,4", z.substr(0, 8)},
          {"b.bitmask", "U8", "1,1", "\x33"},
          {"b.shape", "I64", "2,1", bytes_of<int64_t>({1, 8})},
          {"f.qweight", "I16", "1,64", z.substr(0, 128)},
          {"f.scaled_zeros", "F16", "1,4", z.substr(0, 8)},
          {"f.scales", "F16", "1,4", z.substr(0, 8)},
          {"g.qweight", "I32", "1,16", z.substr(0, 64)},
          {"g.qzeros", "I32", "1,1", z.substr(0, 4)},
          {"g.scales", "F16", "1,8", z.substr(0, 16)}};
}
std::string blocks_safetensors() { return safetensors(blocks_tensors()); }

constexpr const char* kBlocksConfig = R"({"quantization_config":{"quant_method":"","bits":4,"group_size":128}})";

std::string small_gguf() {
  const std::string z(256, '\x11');
  GgufWriter writer;
  writer.key("general.alignment", 4, bytes_of<uint32_t>({32}));
  writer.key("a", 8, GgufWriter::text("b"));
  writer.key("c", 9, bytes_of<uint32_t>({8}) + bytes_of<uint64_t>({2}) + GgufWriter::text("d") + GgufWriter::text("e"));
  writer.tensor("q.weight", {32, 2}, 2, z.substr(0, 36));
  writer.tensor("r.weight", {32, 1}, 3, z.substr(0, 20));
  writer.tensor("m.weight", {32, 1, 2}, 39, z.substr(0, 34));
  writer.tensor("n.weight", {64, 1}, 40, z.substr(0, 36));
  writer.tensor("n.scale", {1}, 0, z.substr(0, 4));
  writer.tensor("f.weight", {2, 1}, 1, z.substr(0, 4));
  // Q5_0, Q5_1, IQ4_NL, Q2_K to Q6_K and IQ4_XS, a block each.
  constexpr struct {
    uint32_t type, elements, bytes;
  } kBlocks[] = {{6, 32, 22},    {7, 32, 24},    {20, 32, 18},   {10, 256, 84}, {11, 256, 110},
                 {12, 256, 144}, {13, 256, 176}, {14, 256, 210}, {23, 256, 136}};
  for (const auto& block : kBlocks)
    writer.tensor("t" + std::to_string(block.type) + ".weight", {block.elements, 1}, block.type, z.substr(0, block.bytes));
  return writer.file();
}

constexpr const char* kConfig = R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":16}})";

/// A cheap way to have a few thousand files: every place of a few sizes gets every nasty value.
template <class T>
void damage_integers(const std::string& name, const std::string& good, size_t begin, size_t end, Tally& tally) {
  for (size_t at = begin; at + sizeof(T) <= end; ++at) {
    T old;
    std::memcpy(&old, good.data() + at, sizeof old);
    const auto u = static_cast<uint64_t>(old);
    for (const uint64_t value : {u + 1, u - 1, u + (uint64_t{1} << 31), u + (uint64_t{1} << 32), u + (uint64_t{1} << 63),
                                 (uint64_t{1} << 31) - 1, uint64_t{1} << 31, (uint64_t{1} << 32) - 1, uint64_t{1} << 32,
                                 (uint64_t{1} << 63) - 1, uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 31}) {
      const auto damaged = static_cast<T>(value);
      if (damaged == old) continue;
      std::string file = good;
      std::memcpy(file.data() + at, &damaged, sizeof damaged);
      try_file(name, file, kConfig, tally);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

void damage_everywhere(const std::string& name, const std::string& good, Tally& tally) {
  for (size_t size = 0; size < good.size(); ++size) {
    try_file(name, good.substr(0, size), kConfig, tally);
    if (::testing::Test::HasFatalFailure()) return;
  }
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string file = good;
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ 1 << bit % 8);
    try_file(name, file, kConfig, tally);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(CheckpointMalformed, TheSmallFilesAreGood) {
  for (const auto& [name, content, layers] :
       {std::tuple{"f.safetensors", small_safetensors(), 16u}, std::tuple{"f.gguf", small_gguf(), 14u}}) {
    auto opened = must(open_memory({{name, content}, {"config.json", kConfig}}));
    EXPECT_EQ(opened->layers().size(), layers);
    for (const Layer& layer : opened->layers()) EXPECT_TRUE(layer.status.ok()) << layer.status.message();
  }
}

/// Tensors without elements may have any other dimensions, and a tensor may give any shape of its layer. Under UBSan nothing
/// that is computed of them overflows.
TEST(CheckpointMalformed, GiantDimensions) {
  std::mt19937 random(20261128);
  const auto dimension = [&] {
    constexpr int64_t kAround[] = {1, 32, INT64_C(1) << 31, INT64_C(1) << 47, INT64_C(1) << 58, INT64_C(1) << 61, INT64_MAX};
    return kAround[random() % 7] - static_cast<int64_t>(random() % 2);
  };
  const std::string configs[] = {"{}", kConfig, kBlocksConfig, R"({"quantization":{"bits":4,"group_size":64}})",
                                 R"({"quantization":{"bits":8,"group_size":32,"mode":"mxfp8"}})"};
  Tally tally;
  for (int i = 0; i < 600; ++i) {
    std::vector<TestTensor> tensors = i % 3 == 0 ? blocks_tensors() : small_tensors();
    for (TestTensor& tensor : tensors) {
      if (random() % 2 == 0) continue;
      if (tensor.dtype == "I64") {  // the shape of a layer
        tensor.data = bytes_of<int64_t>({dimension(), dimension()});
        continue;
      }
      std::vector<std::string> dims(1 + random() % 3);
      for (std::string& d : dims) d = std::to_string(dimension());
      dims[random() % dims.size()] = "0";
      tensor.shape = dims[0];
      for (size_t d = 1; d < dims.size(); ++d) tensor.shape += "," + dims[d];
      tensor.data = "";
    }
    try_file("f.safetensors", safetensors(tensors), configs[random() % 5], tally);
    GgufWriter writer;
    for (int t = 0; t < 20; ++t)
      writer.tensor("t" + std::to_string(t) + ".weight", {dimension(), random() % 4 == 0 ? dimension() : 0, 0}, random() % 41,
                    "");
    try_file("f.gguf", writer.file(), "{}", tally);
    if (HasFatalFailure()) return;
  }
  RecordProperty("cases", std::to_string(tally.files / step()));
  EXPECT_LT(tally.refused, tally.files) << "some are opened";
  EXPECT_GT(tally.layers_refused, 1'000u / step());
}

TEST(CheckpointMalformed, Gguf) {
  Tally tally;
  const std::string good = small_gguf();
  damage_everywhere("f.gguf", good, tally);
  const size_t header = good.find("f.weight") + 40;
  damage_integers<uint32_t>("f.gguf", good, 4, header, tally);
  damage_integers<uint64_t>("f.gguf", good, 8, header, tally);
  expect_many(tally);
}

TEST(CheckpointMalformed, Safetensors) {
  Tally tally;
  const std::string good = small_safetensors();
  damage_everywhere("f.safetensors", good, tally);
  damage_integers<uint64_t>("f.safetensors", good, 0, 8, tally);
  // Every number of the header, as text.
  for (size_t at = 8; at < good.size() - 8; ++at) {
    if (good[at] < '0' || good[at] > '9' || (good[at - 1] != '[' && good[at - 1] != ',')) continue;
    size_t end = at;
    while (good[end] >= '0' && good[end] <= '9') ++end;
    const uint64_t old = std::strtoull(good.c_str() + at, nullptr, 10);
    for (const uint64_t value : {old + 1, old - 1, old + (uint64_t{1} << 31), old + (uint64_t{1} << 32),
                                 old + (uint64_t{1} << 63), uint64_t{0}, uint64_t{1} << 61, uint64_t{1} << 62, UINT64_MAX}) {
      std::string file = good;
      file.replace(at, end - at, std::to_string(value));
      const uint64_t length = load<uint64_t>(reinterpret_cast<const std::byte*>(good.data())) + file.size() - good.size();
      std::memcpy(file.data(), &length, 8);
      try_file("f.safetensors", file, kConfig, tally);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
  expect_many(tally);
}

TEST(CheckpointMalformed, SafetensorsOfBlocks) {
  Tally tally;
  const std::string good = blocks_safetensors();
  auto opened = must(open_memory({{"f.safetensors", good}, {"config.json", kBlocksConfig}}));
  EXPECT_EQ(opened->layers().size(), 6u);
  for (const Layer& layer : opened->layers()) EXPECT_TRUE(layer.status.ok()) << layer.status.message();
  const size_t header = 8 + load<uint64_t>(reinterpret_cast<const std::byte*>(good.data()));
  for (size_t at = 8; at < good.size(); at += at < header ? 1 : 23) {
    for (const int bit : {0, 3, 4, 7}) {
      std::string file = good;
      file[at] = static_cast<char>(file[at] ^ 1 << bit);
      try_file("f.safetensors", file, kBlocksConfig, tally);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
  // Shapes that the data still fits, but that the layers do not.
  const std::pair<const char*, const char*> swaps[] = {
      {"[1,128]", "[128,1]"}, {"[64,2]", "[2,64]"}, {"[1,64]", "[64,1]"}, {"[1,64]", "[64]"}, {"[1,128]", "[1,1,128]"},
      {"[2,1]", "[1,2]"},     {"[1,4]", "[4,1]"},   {"[1,4]", "[2,2]"},   {"[1,1]", "[]"},    {"[1,16]", "[16]"}};
  for (const auto& [from, to] : swaps) {
    for (size_t at = good.find(from); at < header; at = good.find(from, at + 1)) {
      std::string file = good;
      file.replace(at, std::strlen(from), to);
      const uint64_t length = header - 8 + std::strlen(to) - std::strlen(from);
      std::memcpy(file.data(), &length, 8);
      try_file("f.safetensors", file, kBlocksConfig, tally);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
  RecordProperty("cases", std::to_string(tally.files / step()));
  EXPECT_GT(tally.layers_refused, 100u / step());
}

TEST(CheckpointMalformed, Index) {
  const std::string shard = safetensors({{"a.weight", "F32", "1,1", "1234"}});
  damage_text(R"({"metadata":{"total_size":4},"weight_map":{"a.weight":"a.safetensors"}})", [&](const std::string& index) {
    const auto opened = open_memory({{"m.safetensors.index.json", index}, {"a.safetensors", shard}});
    const marlin_status code = opened.status().code();
    EXPECT_TRUE(code == MARLIN_OK || code == MARLIN_E_FORMAT || code == MARLIN_E_FILE) << opened.status().message();
  });
}

TEST(CheckpointMalformed, Configs) {
  const std::string weights = small_safetensors();
  const std::string good =
      R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":16,"sym":true,"desc_act":false},
    "quantization":{"group_size":32,"bits":4,"l":{"bits":4}}})";
  damage_text(good, [&](const std::string& config) {
    const auto opened = open_memory({{"f.safetensors", weights}, {"config.json", config}});
    EXPECT_TRUE(opened.ok() || opened.status().code() == MARLIN_E_FORMAT) << opened.status().message();
  });
}

}  // namespace
}  // namespace metal_marlin::testing
