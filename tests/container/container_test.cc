// What a packed container holds: the same layers, tensors and key-values as its source, used in place.
#include <cerrno>

#include "container_file.h"
#include "failing_calls.h"
#include "test.h"

namespace container_test {
namespace {

marlin_load_desc load_of(const std::vector<const char*>& layers, const marlin_shard* shards = nullptr) {
  auto load = mm::make<marlin_load_desc>();
  load.layers = layers.data();
  load.layer_count = static_cast<uint32_t>(layers.size());
  load.shards = shards;
  return load;
}

void save(const mm::context& context, const mm::checkpoint& from, const std::string& path,
          const std::vector<marlin_load_desc>& loads, uint32_t rank = 0, uint32_t ranks = 0) {
  const auto each = mm::addresses(loads);
  auto desc = mm::make<marlin_save_desc>();
  desc.loads = each.data();
  desc.load_count = static_cast<uint32_t>(each.size());
  desc.rank = rank;
  desc.rank_count = ranks;
  mm::save(context, from, path, desc);
}

std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data("")))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Container : public ::testing::Test {
 protected:
  const Folder folder;
  const mm::context context{MARLIN_BACKEND_CPU};
};
class EveryCheckpoint : public Container, public ::testing::WithParamInterface<std::string> {};

TEST_P(EveryCheckpoint, HoldsTheSame) {
  const mm::checkpoint source(data(GetParam()));
  mm::save(context, source, folder / "model.marlin");
  const mm::checkpoint packed(folder / "model.marlin");
  std::map<std::string, marlin_layer_info> there;
  for (const marlin_layer_info& layer : packed.layers()) there[layer.name] = layer;
  size_t loaded = 0;
  for (const marlin_layer_info& layer : source.layers()) {
    mm::weights expected;
    if (status_of([&] { expected = mm::load(context, source, layer.name); }) != MARLIN_OK) continue;  // without a format
    ++loaded;
    ASSERT_EQ(there.count(layer.name), 1u) << layer.name;
    const marlin_layer_info& found = there[layer.name];
    const mm::weights got = mm::load(context, packed, layer.name);
    const marlin_layer_info a = mm::info(expected), b = mm::info(got);
    EXPECT_EQ(found.n, a.n);
    EXPECT_EQ(found.k, a.k);
    EXPECT_EQ(found.experts, a.experts);
    EXPECT_EQ(found.format, a.format);
    EXPECT_EQ(found.layout, a.layout);
    EXPECT_EQ(found.flags & ~MARLIN_PACK_DIVIDE_SCALE, a.flags & ~MARLIN_PACK_DIVIDE_SCALE) << layer.name;
    EXPECT_EQ(found.dtype, a.dtype);
    EXPECT_EQ(std::string(a.name), b.name);
    EXPECT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(a.flags, b.flags);
    EXPECT_TRUE(same_bits(values(expected), values(got))) << layer.name;
    EXPECT_TRUE(same_bits(product(expected), product(got))) << layer.name;
  }
  EXPECT_EQ(there.size(), loaded);
}
INSTANTIATE_TEST_SUITE_P(Container, EveryCheckpoint, ::testing::ValuesIn(folders()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

TEST_F(Container, HasTheOtherTensorsAndTheKeyValues) {
  for (const char* name : {"gguf-llama-q4km", "gptq-v1-sym-g128"}) {
    SCOPED_TRACE(name);
    const mm::checkpoint source(data(name));
    const std::string path = folder / (std::string(name) + ".marlin");
    const auto layers = source.layers();
    const std::vector<const char*> first = {layers[0].name};
    save(context, source, path, {load_of(first)});
    const mm::checkpoint packed(path);
    ASSERT_EQ(packed.layers().size(), 1u);
    std::map<std::string, marlin_value> there;
    for (const marlin_value& value : packed.values()) there[std::string(value.key, value.key_bytes)] = value;
    for (const marlin_value& value : source.values()) {
      const std::string key(value.key, value.key_bytes);
      if (key == "marlin.note") continue;  // of the folder
      ASSERT_EQ(there.count(key), 1u) << key;
      EXPECT_EQ(there[key].kind, value.kind) << key;
      EXPECT_EQ(there[key].u64, value.u64) << key;
      EXPECT_EQ(there[key].f64, value.f64) << key;
      ASSERT_EQ(there[key].bytes, value.bytes) << key;
      if (value.bytes != 0) EXPECT_EQ(std::memcmp(there[key].data, value.data, value.bytes), 0) << key;
    }
    EXPECT_EQ(packed.value("marlin.rank").u64, 0u);
    EXPECT_EQ(packed.value("marlin.ranks").u64, 1u);
    EXPECT_NE(packed.value("marlin.source_fingerprint").u64, 0u);
    const marlin_value device = packed.value("marlin.device");
    EXPECT_EQ(std::string(static_cast<const char*>(device.data), device.bytes), "cpu");
  }
  // A tensor that no load names, and one that was packed.
  const mm::checkpoint source(data("gguf-llama-q4km")), packed(folder / "gguf-llama-q4km.marlin");
  const char* const norm = "output_norm.weight";
  const marlin_matrix a = source.tensor(norm), b = packed.tensor(norm);
  ASSERT_EQ(a.rows * a.cols, b.rows * b.cols);
  EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<size_t>(a.cols) * 4), 0);
  EXPECT_ERROR(MARLIN_E_NOT_FOUND, "container", packed.tensor(source.layers()[0].name));
}

std::atomic<size_t> allocated{0};

TEST_F(Container, IsUsedInPlace) {
  auto desc = mm::make<marlin_context_desc>();
  desc.backend = MARLIN_BACKEND_CPU;
  desc.alloc = [](void*, size_t size, size_t align) {
    allocated += size;
    return std::aligned_alloc(align, size);
  };
  desc.release = [](void*, void* p, size_t) { std::free(p); };
  const mm::context counting(desc);
  mm::checkpoint source(data("gptq-v1-sym-g128"));
  const std::string layer = source.layers()[0].name;
  allocated = 0;
  const mm::weights expected = mm::load(counting, source, layer);
  EXPECT_GE(allocated, mm::info(expected).bytes);  // the counter counts
  mm::save(counting, source, folder / "model.marlin");
  mm::checkpoint packed(folder / "model.marlin");
  allocated = 0;
  const mm::weights weights = mm::load(counting, packed, layer);
  EXPECT_EQ(allocated, 0u);
  // The mapping lives as long as the weights, whatever becomes of the checkpoint and the file.
  packed.reset();
  source.reset();
  std::filesystem::remove(folder / "model.marlin");
  EXPECT_TRUE(same_bits(product(expected), product(weights)));
}

TEST_F(Container, LayersThatArePackedTogetherAreLoadedTogether) {
  const mm::checkpoint source(data("sharded-gptq"));
  const auto layers = source.layers();
  const std::vector<const char*> pair = {layers[1].name, layers[0].name}, one = {layers[2].name},
                                 apart = {layers[0].name, layers[2].name};
  const std::string joined = std::string(pair[0]) + "+" + pair[1];
  save(context, source, folder / "a.marlin", {load_of(pair), load_of(one)});
  const mm::checkpoint packed(folder / "a.marlin");
  EXPECT_EQ(packed.layers()[0].name, joined);
  const mm::weights expected = mm::load(context, source, load_of(pair));
  EXPECT_TRUE(same_bits(values(expected), values(mm::load(context, packed, load_of(pair)))));
  EXPECT_TRUE(same_bits(values(expected), values(mm::load(context, packed, joined))));
  EXPECT_ERROR(MARLIN_E_NOT_FOUND, pair[0], mm::load(context, packed, pair[0]));
  mm::save(context, source, folder / "b.marlin");
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "packed apart", mm::load(context, mm::checkpoint(folder / "b.marlin"), load_of(apart)));
}

TEST_F(Container, HoldsTheShardsOfRanks) {
  const mm::checkpoint source(data("gptq-v1-sym-g128"));
  const marlin_layer_info layer = source.layers()[0];
  const std::vector<const char*> names = {layer.name};
  std::vector<float> all;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const int64_t half = layer.n / 2;
    const marlin_shard shard = {{rank * half, 0, 0}, {half, 0, 0}};
    const std::string path = folder / ("rank" + std::to_string(rank) + ".marlin");
    save(context, source, path, {load_of(names, &shard)}, rank, 2);
    const mm::checkpoint packed(path);
    EXPECT_EQ(packed.value("marlin.rank").u64, rank);
    EXPECT_EQ(packed.value("marlin.ranks").u64, 2u);
    EXPECT_EQ(packed.value("marlin.source_fingerprint").u64,
              mm::checkpoint(folder / "rank0.marlin").value("marlin.source_fingerprint").u64);
    const auto part = values(mm::load(context, packed, layer.name));
    all.insert(all.end(), part.begin(), part.end());
  }
  EXPECT_TRUE(same_bits(all, values(mm::load(context, source, layer.name))));
}

TEST_F(Container, AShardOfOneChoosesExpertsOnly) {
  const mm::checkpoint source(data("mxfp4-gpt-oss-experts"));
  mm::save(context, source, folder / "model.marlin");
  const mm::checkpoint packed(folder / "model.marlin");
  for (const marlin_layer_info& layer : packed.layers()) {
    if (layer.experts == 1) continue;
    const std::vector<const char*> names = {layer.name};
    const marlin_shard last = {{0, 0, layer.experts - 1}, {0, 0, 1}}, rows = {{0, 0, 0}, {layer.n / 2, 0, 0}},
                       columns = {{0, 0, 0}, {0, layer.k / 2, 0}}, outside = {{0, 0, layer.experts}, {0, 0, 1}};
    EXPECT_TRUE(same_bits(values(mm::load(context, packed, load_of(names, &last))),
                          values(mm::load(context, source, load_of(names, &last)))));
    EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "shard: expected all N and K", mm::load(context, packed, load_of(names, &rows)));
    EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "shard: expected all N and K", mm::load(context, packed, load_of(names, &columns)));
    EXPECT_ERROR(MARLIN_E_SHAPE, "experts", mm::load(context, packed, load_of(names, &outside)));
  }
}

TEST_F(Container, KeepsWhatWasPacked) {
  const mm::checkpoint source(data("float-f16"));
  const std::vector<const char*> names = {source.layers()[0].name};
  auto quantize = load_of(names);
  quantize.format = MARLIN_FORMAT_INT4;
  quantize.group_size = 64;
  save(context, source, folder / "int4.marlin", {quantize});
  save(context, source, folder / "float.marlin", {load_of(names)});
  const mm::checkpoint int4(folder / "int4.marlin"), floats(folder / "float.marlin");
  EXPECT_EQ(int4.layers()[0].format, MARLIN_FORMAT_INT4);
  EXPECT_TRUE(same_bits(values(mm::load(context, int4, quantize)), values(mm::load(context, source, quantize))));
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "packed as FLOAT16", mm::load(context, floats, quantize));
  auto prune = load_of(names);
  prune.flags = MARLIN_LOAD_PRUNE_2_4;
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "packed dense", mm::load(context, int4, prune));
  auto cancelled = load_of(names);
  cancelled.progress = [](void*, uint64_t, uint64_t) -> int32_t { return 1; };
  EXPECT_ERROR(MARLIN_E_CANCELLED, "cancelled", mm::load(context, int4, cancelled));
  auto experts = load_of(names);
  experts.expert_count = 2;
  EXPECT_ERROR(MARLIN_E_SHAPE, "expert_count", mm::load(context, int4, experts));
  auto open = mm::make<marlin_open_desc>();
  open.layout = MARLIN_LAYOUT_ROWS;
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "packed", mm::checkpoint(folder / "int4.marlin", open));
  auto convert = mm::make<marlin_convert_desc>();
  convert.format = MARLIN_FORMAT_MXFP4;
  convert.layers = names.data();
  convert.layer_count = 1;
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "source file", mm::convert(int4, folder / "out.gguf", convert));
}

TEST_F(Container, RefusesWhatItCannotWrite) {
  const mm::checkpoint source(data("gptq-v1-sym-g128"));
  const std::string path = folder / "model.marlin";
  const std::vector<const char*> names = {source.layers()[0].name}, wrong = {"no.such.layer"};
  mm::save(context, source, path);
  const std::string before = read(path);
  EXPECT_ERROR(MARLIN_E_FILE, "is there already", mm::save(context, source, path));
  auto desc = mm::make<marlin_save_desc>();
  desc.flags = MARLIN_SAVE_OVERWRITE;
  mm::save(context, source, path, desc);
  EXPECT_EQ(read(path), before);  // the same input, the same bytes
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "is packed already", mm::save(context, mm::checkpoint(path), folder / "again.marlin"));
  EXPECT_ERROR(MARLIN_E_NOT_FOUND, "desc->loads[1]", save(context, source, folder / "c", {load_of(names), load_of(wrong)}));
  EXPECT_ERROR(MARLIN_E_ARGUMENT, "loaded twice", save(context, source, folder / "c", {load_of(names), load_of(names)}));
  EXPECT_ERROR(MARLIN_E_ARGUMENT, "rank", save(context, source, folder / "c", {load_of(names)}, 2, 2));
  EXPECT_ERROR(MARLIN_E_FILE, "No such file", mm::save(context, source, folder / "no/such/folder.marlin"));
  EXPECT_ERROR(MARLIN_E_FILE, "directory", mm::save(context, source, folder / ""));
  desc.flags = 2;
  EXPECT_ERROR(MARLIN_E_UNSUPPORTED, "unknown bits", mm::save(context, source, path, desc));
  desc.flags = MARLIN_SAVE_OVERWRITE;
  desc.backend = 4;
  EXPECT_ERROR(MARLIN_E_ARGUMENT, "backend is 4, expected 1 (CPU), 2 (Metal) or 3", mm::save(context, source, path, desc));
  desc.backend = MARLIN_BACKEND_AUTO;
  desc.load_count = 1;
  EXPECT_ERROR(MARLIN_E_ARGUMENT, "desc->loads is NULL", mm::save(context, source, path, desc));
  const marlin_load_desc* none = nullptr;
  desc.loads = &none;
  EXPECT_ERROR(MARLIN_E_ARGUMENT, "desc->loads[0]", mm::save(context, source, path, desc));
  EXPECT_EQ(read(path), before);
  desc.loads = nullptr;
  desc.load_count = 0;
  std::filesystem::copy(data("gptq-v1-sym-g128"), folder / "input");
  const mm::checkpoint own(folder / "input");
  for (const auto& entry : std::filesystem::directory_iterator(folder / "input"))
    if (entry.path().filename() == "model.safetensors")
      EXPECT_ERROR(MARLIN_E_ARGUMENT, "part of the input", mm::save(context, own, entry.path().string(), desc));
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
}

TEST_F(Container, AWriteThatFailsLeavesNoFile) {
  const mm::checkpoint source(data("gptq-v1-asym-g64-actorder"));  // with group indices and other tensors
  const std::string path = folder / "model.marlin";
  for (const char* call : {"pwrite", "fsync"}) {
    int failures = 0;
    for (bool through = false; !through; ++failures) {
      SCOPED_TRACE(::testing::Message() << call << " " << failures);
      ASSERT_LT(failures, 100);
      const mm::testing::FailingCall failing(call, failures, EIO);
      std::string message;
      const marlin_status status = status_of([&] { mm::save(context, source, path); }, &message);
      through = status == MARLIN_OK;
      if (through) break;
      EXPECT_EQ(status, MARLIN_E_FILE);
      EXPECT_THAT(message, HasSubstr("model.marlin: cannot write"));
      EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
    }
    EXPECT_GE(failures, call[0] == 'p' ? 5 : 1);  // matrix, group index, tensor, key-values, directory, head
    std::filesystem::remove(path);
  }
}

TEST_F(Container, IsFoundInAFolder) {
  const mm::checkpoint source(data("gptq-v1-sym-g128"));
  mm::save(context, source, folder / "model.marlin");
  EXPECT_EQ(mm::checkpoint(folder / "").layers().size(), source.layers().size());
}

// The files of version 1 that every later version has to read. Write none of them anew: a version that cannot read them adds
// its own beside them, or says in a typed error which source file to pack.
TEST_F(Container, ReadsTheFirstVersionForEver) {
  for (const char* name : {"gptq-v1-asym-g64-actorder", "ct-nvfp4", "gguf-kquants"}) {
    SCOPED_TRACE(name);
    const mm::checkpoint packed(data(std::string("container-v1-") + name + ".marlin")), source(data(name));
    ASSERT_FALSE(packed.layers().empty());
    for (const marlin_layer_info& layer : packed.layers()) {
      const mm::weights expected = mm::load(context, source, layer.name), got = mm::load(context, packed, layer.name);
      EXPECT_TRUE(same_bits(values(expected), values(got))) << layer.name;
      EXPECT_TRUE(same_bits(product(expected), product(got))) << layer.name;
    }
  }
}

}  // namespace
}  // namespace container_test
