// Containers that were cut off, changed, written by another version, or made by an enemy: each is an error with words.
#include "checkpoints/checkpoint.h"
#include "checkpoints/tensor_table.h"
#include "container_file.h"
#include "sealed_file.h"
#include "test.h"

namespace container_test {
namespace {

const bool kWhole = std::getenv("METAL_MARLIN_WHOLE") != nullptr;

class Damage : public ::testing::Test {
 protected:
  Damage() : context_(MARLIN_BACKEND_CPU) {
    // 64 rows of 128: one panel, which is the smallest packed matrix, with act-order.
    const mm::checkpoint source(data("gptq-v1-asym-g64-actorder"));
    layer_ = source.layers()[0].name;
    const auto all = metal_marlin::Checkpoint::open(data("gptq-v1-asym-g64-actorder"), MARLIN_LAYOUT_AUTO).take();
    const auto parts = all->parts(0);
    for (size_t i = 0; i < all->tensors().size(); ++i) {
      const auto view = all->tensors().view(i);
      const bool packed = std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.data == view.data; });
      if (!packed) tensors_.emplace_back(view.name);
    }
    const char* const name = layer_.c_str();
    const marlin_shard shard = {{0, 0, 0}, {16, 128, 0}};
    auto one = mm::make<marlin_load_desc>();
    one.layers = &name;
    one.layer_count = 1;
    one.shards = &shard;
    const marlin_load_desc* const loads[] = {&one};
    auto desc = mm::make<marlin_save_desc>();
    desc.loads = loads;
    desc.load_count = 1;
    mm::save(context_, source, folder_ / "good.marlin", desc);
    bytes_ = read(folder_ / "good.marlin");
    expected_ = values(mm::load(context_, mm::checkpoint(folder_ / "good.marlin"), layer_));
  }

  /// Opens and loads all of a file.
  marlin_status outcome(const std::string& bytes, std::string* message, std::vector<float>* found = nullptr) {
    write(folder_ / "bad.marlin", bytes);
    return status_of(
        [&] {
          const mm::checkpoint file(folder_ / "bad.marlin");
          for (const marlin_layer_info& layer : file.layers()) {
            const mm::weights weights = mm::load(context_, file, layer.name);
            if (found != nullptr) *found = values(weights);
          }
          for (const marlin_value& value : file.values()) (void)value;
          for (const std::string& tensor : tensors_) (void)file.tensor(tensor);
        },
        message);
  }

  const Folder folder_;
  const mm::context context_;
  std::string layer_, bytes_;
  std::vector<std::string> tensors_;  // that are not packed
  std::vector<float> expected_;
};

TEST_F(Damage, EveryTruncationIsAnError) {
  ASSERT_LT(bytes_.size(), 32768u);
  for (size_t size = 0; size < bytes_.size(); ++size) {
    std::string message;
    ASSERT_EQ(outcome(bytes_.substr(0, size), &message), MARLIN_E_FORMAT) << size << ": " << message;
    ASSERT_NE(message.find("byte"), std::string::npos) << message;
    ASSERT_NE(message.find("found"), size == 0 ? 0 : std::string::npos) << message;
  }
  std::string message;
  EXPECT_EQ(outcome(bytes_ + '\0', &message), MARLIN_E_FORMAT) << message;
}

TEST_F(Damage, EveryBitOfTheHeadCounts) {
  for (size_t bit = 0; bit < 8 * kHead; ++bit) {
    std::string bad = bytes_, message;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    ASSERT_EQ(outcome(bad, &message), MARLIN_E_FORMAT) << bit << ": " << message;
    ASSERT_NE(message.find("expected"), std::string::npos) << message;
  }
}

// Only bytes between the blocks mean nothing. In the short form, one bit of every byte.
TEST_F(Damage, ABitIsAnErrorOrMeansNothing) {
  size_t errors = 0, harmless = 0;
  for (size_t byte = kHead; byte < bytes_.size(); ++byte) {
    for (unsigned bit = kWhole ? 0 : byte % 8; bit < (kWhole ? 8 : byte % 8 + 1); ++bit) {
      std::string bad = bytes_, message;
      std::vector<float> found;
      bad[byte] = static_cast<char>(bad[byte] ^ 1 << bit);
      if (outcome(bad, &message, &found) == MARLIN_OK) {
        ASSERT_EQ(bytes_[byte], '\0') << byte;
        ASSERT_TRUE(same_bits(found, expected_)) << byte;
        ++harmless;
      } else {
        ASSERT_NE(message.find("checksum"), std::string::npos) << byte << ": " << message;
        ++errors;
      }
    }
  }
  EXPECT_GT(errors, 4096u + 1000u);
  EXPECT_LT(harmless, 8 * 5000u);
}

TEST_F(Damage, AnotherByteOrderOrVersionIsNamed) {
  std::string big = bytes_;
  std::reverse(big.begin() + 8, big.begin() + 12);
  std::string message;
  EXPECT_EQ(outcome(sealed(big), &message), MARLIN_E_FORMAT);
  EXPECT_THAT(message, ::testing::HasSubstr("expected little-endian, found big-endian"));
  std::string newer = bytes_;
  store(newer.data() + 12, uint32_t{3});
  EXPECT_EQ(outcome(sealed(newer), &message), MARLIN_E_UNSUPPORTED);
  EXPECT_THAT(message, ::testing::HasSubstr("expected 1 to 2, found 3"));
  EXPECT_THAT(message, ::testing::HasSubstr("metal-marlin pack SOURCE -o OUT.marlin"));
}

TEST_F(Damage, AnotherFormNamesTheCommandThatPacksAnew) {
  const size_t directory = load<uint64_t>(bytes_.data() + 24);
  ASSERT_EQ(bytes_.substr(directory + 4, 3), "cpu");
  std::string message, other = bytes_;
  other.replace(directory + 4, 3, "gpu");
  EXPECT_EQ(outcome(sealed(other), &message), MARLIN_E_UNSUPPORTED);
  EXPECT_THAT(message, ::testing::HasSubstr("packed for the device gpu, expected cpu"));
  const char* const command = "metal-marlin pack SOURCE -o OUT.marlin --backend cpu (SOURCE: model.safetensors or its folder)";
  EXPECT_THAT(message, ::testing::HasSubstr(command));
  other = bytes_;
  store(other.data() + directory + 7, uint32_t{9});
  EXPECT_EQ(outcome(sealed(other), &message), MARLIN_E_UNSUPPORTED);
  EXPECT_THAT(message, ::testing::HasSubstr("version 9 of the packed form, expected 1"));
  EXPECT_THAT(message, ::testing::HasSubstr(command));
}

// Whoever makes a file on purpose can make the checksums right, so nothing may rely on them.
TEST_F(Damage, AHostileDirectoryIsSafe) {
  const size_t directory = load<uint64_t>(bytes_.data() + 24), size = bytes_.size() - directory;
  constexpr uint64_t kNumbers[] = {0, 1, 0x7f, 0xff, 0xffff, 0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX, 4096, 64};
  std::mt19937 random(7);
  size_t errors = 0;
  const int rounds = kWhole ? 200000 : 10000;
  for (int round = 0; round < rounds; ++round) {
    std::string bad = bytes_, message;
    for (unsigned change = random() % 3 + 1; change != 0; --change) {
      const size_t at = directory + random() % size;
      if (random() % 2 == 0) {
        bad[at] = static_cast<char>(random());
      } else {
        const uint64_t number = kNumbers[random() % std::size(kNumbers)];
        std::memcpy(bad.data() + at, &number, std::min<size_t>(random() % 2 ? 4 : 8, bad.size() - at));
      }
    }
    if (outcome(sealed(bad), &message) != MARLIN_OK) {
      ++errors;
      ASSERT_FALSE(message.empty());
    }
  }
  EXPECT_GT(errors, static_cast<size_t>(rounds) / 4);
}

TEST_F(Damage, NamesTheFieldOfTheDirectoryThatIsWrong) {
  using Directory = metal_marlin::ContainerDirectory;
  const Directory good = directory_of(bytes_).take();
  ASSERT_FALSE(good.tensors.empty());
  ASSERT_EQ(good.entries.size(), 1u);
  struct Change {
    const char* words;
    std::function<void(Directory&)> make;
  };
  const auto matrix = [](Directory& d) -> metal_marlin::ContainerMatrix& { return d.entries[0].experts[0]; };
  const auto second = [&](const auto& change) {
    return [&matrix, change](Directory& d) {
      d.entries[0].experts.push_back(matrix(d));
      change(d.entries[0].experts[1].matrix.meta);
    };
  };
  const char *const kPlaces = "ascending places inside their block",
                    *const kBetween = "bytes between the head and the directory",
                    *const kAlike = "experts: expected one format and shape";
  const Change changes[] = {
      {"'container': rank: expected below the number of ranks, found 0", [](auto& d) { d.ranks = 0; }},
      {"'container': rank: expected below the number of ranks, found 1", [](auto& d) { d.rank = 1; }},
      {kPlaces, [](auto& d) { std::swap(d.value_begins[0], d.value_begins[1]); }},
      {kPlaces, [](auto& d) { ++d.value_begins.back(); }},
      {"dimensions: expected at most 64, found 65", [](auto& d) { d.tensors[0].dims.assign(65, 1); }},
      {"layers and experts: expected one or more, found 0", [](auto& d) { d.entries[0].layers.clear(); }},
      {"layers and experts: expected one or more, found 0", [](auto& d) { d.entries[0].experts.clear(); }},
      {kAlike, second([](auto& meta) { meta.format = MARLIN_FORMAT_INT8; })},
      {kAlike, second([](auto& meta) { meta.n *= 2; })},
      {kAlike, second([](auto& meta) { meta.k *= 2; })},
      {"data: expected one byte or more, found 0", [&](auto& d) { matrix(d).data = {}; }},
      {kBetween, [&](auto& d) { matrix(d).data.offset = UINT64_MAX; }},
      {kBetween, [&](auto& d) { matrix(d).data.offset = 8; }},
      {"a multiple of 4096 as its place", [&](auto& d) { matrix(d).data.offset += 4, matrix(d).data.bytes -= 4; }},
      {"group index: expected four bytes for each k", [&](auto& d) { matrix(d).group_index.bytes -= 4; }},
      {kBetween, [&](auto& d) { matrix(d).group_index.offset = UINT64_MAX; }},
      {kBetween, [](auto& d) { d.tensors[0].data.offset = 0; }},
      {kBetween, [](auto& d) { d.values.offset = 0; }},
      {"' occurs twice", [](auto& d) { d.entries.push_back(d.entries[0]); }},
      {"' occurs twice", [](auto& d) { d.tensors.push_back(d.tensors[0]); }},
      {"type: 'F99' is none of this version", [](auto& d) { d.tensors[0].type = "F99"; }},
      {"type: 'F99' is none of this version", [](auto& d) { d.tensors[0].type = "F99", d.tensors[0].is_gguf = true; }},
      {"expected 18446744073709551615 bytes by its dimensions", [](auto& d) { d.tensors[0].dims = {-1}; }},
      {"bytes by its dimensions, found", [](auto& d) { d.tensors[0].dims = {1, 1, 3}; }},
      {"a text without NUL", [](auto& d) { d.source = std::string("a\0b", 3); }},
      {"source: expected at most 65535 bytes, found 65536", [](auto& d) { d.source.assign(65536, 'a'); }},
      {"type of scales: expected a value of this version, found 200",
       [&](auto& d) { matrix(d).matrix.meta.scale_type = static_cast<metal_marlin::ScaleType>(200); }},
      {"kind of zeros: expected a value of this version, found 200",
       [&](auto& d) { matrix(d).matrix.meta.zero_kind = static_cast<metal_marlin::ZeroKind>(200); }},
  };
  std::string message;
  EXPECT_EQ(outcome(with_directory(bytes_, good), &message), MARLIN_OK) << message;
  for (const Change& change : changes) {
    Directory bad = good;
    change.make(bad);
    EXPECT_EQ(outcome(with_directory(bytes_, bad), &message), MARLIN_E_FORMAT) << change.words;
    EXPECT_THAT(message, ::testing::HasSubstr(change.words));
  }
}

TEST_F(Damage, NamesTheByteOfTheDirectoryThatIsWrong) {
  // With an entry that has everything, cut off behind each byte.
  metal_marlin::ContainerDirectory full = directory_of(bytes_).take();
  metal_marlin::WeightMeta& meta = full.entries[0].experts[0].matrix.meta;
  meta.codebook.assign(16, 1.0f);
  meta.tensor_scales.assign(8, {0, 1, true});
  // One more expert: the first is so long that the count fits where the second is cut off at its first field.
  full.entries[0].experts.push_back(full.entries[0].experts[0]);
  const std::string whole = with_directory(bytes_, full);
  ASSERT_TRUE(directory_of(whole).ok()) << directory_of(whole).status().message();
  const size_t at = load<uint64_t>(whole.data() + 24);
  const std::string directory = whole.substr(at);
  for (size_t size = 0; size < directory.size(); ++size) {
    const auto status = directory_of(with_directory(bytes_, directory.substr(0, size))).status();
    ASSERT_EQ(status.code(), MARLIN_E_FORMAT) << size;
    ASSERT_THAT(status.message(), ::testing::HasSubstr("f.marlin: byte "));
    ASSERT_THAT(status.message(), ::testing::HasSubstr(": directory: "));
  }
  struct Patch {
    size_t at;
    std::string bytes;
    const char* words;
  };
  const std::string ones(8, '\xff'), name = full.tensors[0].name;
  const Patch patches[] = {
      {directory.size(), "x", "end: expected the end of the directory"},
      {0, std::string("\x60\xea\0\0", 4), "device: expected 60000 bytes, found"},
      {4 + 3 + 4 * 4 + 4 + full.source.size() + 8 + 24, ones, "key-values: expected a count that fits the directory"},
      {directory.find(name) + name.size(), "\x02", "of GGUF: expected 0 or 1, found 2"},
  };
  for (const Patch& patch : patches) {
    std::string bad = directory;
    bad.replace(patch.at, patch.bytes.size(), patch.bytes);
    EXPECT_THAT(directory_of(with_directory(bytes_, bad)).status().message(), ::testing::HasSubstr(patch.words));
  }
}

TEST_F(Damage, ThePartsOfALayerAreItsPackedBytes) {
  const auto packed = metal_marlin::Checkpoint::open(folder_ / "good.marlin", MARLIN_LAYOUT_AUTO).take();
  const auto parts = packed->parts(0);
  ASSERT_EQ(parts.size(), 1u);
  const auto directory = directory_of(bytes_).take();
  EXPECT_EQ(parts[0].file_offset, directory.entries[0].experts[0].data.offset);
  EXPECT_EQ(parts[0].bytes, packed->layer(0).bytes);
  EXPECT_EQ(std::memcmp(parts[0].data, bytes_.data() + parts[0].file_offset, parts[0].bytes), 0);
  packed->release({parts[0].data, parts[0].bytes});  // the bytes stay readable
  EXPECT_EQ(std::memcmp(parts[0].data, bytes_.data() + parts[0].file_offset, parts[0].bytes), 0);
  EXPECT_FALSE(packed->origin().is_gguf);
  EXPECT_FALSE(packed->has_read({}));
  EXPECT_EQ(packed->tensors().size(), tensors_.size());
}

TEST_F(Damage, NamesTheByteOfTheHeadThatIsWrong) {
  const uint64_t size = bytes_.size(), at = load<uint64_t>(bytes_.data() + 24);
  const auto with = [&](std::initializer_list<std::pair<size_t, uint64_t>> numbers) {
    std::string bad = bytes_;
    for (const auto& [place, number] : numbers) store(bad.data() + place, number);
    store(bad.data() + kHead - 8, sum(bad.data(), kHead - 8));
    return bad;
  };
  const uint64_t order_and_version = load<uint64_t>(bytes_.data() + 8);
  const std::pair<std::string, const char*> files[] = {
      {with({{0, 0}}), "byte 0: magic: expected 89 'MRL'"},
      {with({{8, order_and_version ^ 1}}), "byte 8: byte order: expected 0x0a0b0c0d, found 0x0a0b0c0c"},
      {with({{16, size + 1}}), "byte 16: size of the file: expected"},
      {with({{24, at + 1}}), "byte 24: directory: expected it to end with the file"},
      {with({{24, UINT64_MAX}}), "byte 24: directory: expected it to end with the file"},
      {with({{24, 8}, {32, size - 8}}), "byte 24: directory: expected it to end with the file"},
      {with({{40, 0}}), "checksum of the directory: expected 0x0000000000000000"},
  };
  for (const auto& [file, words] : files) {
    const auto status = directory_of(file).status();
    EXPECT_EQ(status.code(), MARLIN_E_FORMAT) << words;
    EXPECT_THAT(status.message(), ::testing::HasSubstr(words));
  }
}

}  // namespace
}  // namespace container_test
