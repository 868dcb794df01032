// Containers that were cut off, changed, written by another version, or made by an enemy: each is an error with words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "base/bits.h"
#include "base/checksum.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/container/directory.h"
#include "checkpoints/tensor_table.h"
#include "container_file.h"

namespace container_test {
namespace {

using metal_marlin::load;
using metal_marlin::store;

constexpr size_t kHead = metal_marlin::kContainerHeadBytes;
const bool kWhole = std::getenv("METAL_MARLIN_WHOLE") != nullptr;

uint64_t sum(const char* bytes, size_t size) { return metal_marlin::checksum(std::as_bytes(std::span(bytes, size))).take(); }

/// A file whose checksums of head and directory are right again.
std::string sealed(std::string bytes) {
  const auto at = load<uint64_t>(bytes.data() + 24), size = load<uint64_t>(bytes.data() + 32);
  if (at + size <= bytes.size()) store(bytes.data() + 40, sum(bytes.data() + at, size));
  store(bytes.data() + kHead - 8, sum(bytes.data(), kHead - 8));
  return bytes;
}

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
  store(newer.data() + 12, uint32_t{2});
  EXPECT_EQ(outcome(sealed(newer), &message), MARLIN_E_UNSUPPORTED);
  EXPECT_THAT(message, ::testing::HasSubstr("expected 1, found 2"));
  EXPECT_THAT(message, ::testing::HasSubstr("metal-marlin pack SOURCE -o OUT.marlin"));
}

TEST_F(Damage, AnotherFormNamesTheCommandThatPacksAnew) {
  const size_t directory = load<uint64_t>(bytes_.data() + 24);
  ASSERT_EQ(bytes_.substr(directory + 4, 3), "cpu");
  std::string message, other = bytes_;
  other.replace(directory + 4, 3, "gpu");
  EXPECT_EQ(outcome(sealed(other), &message), MARLIN_E_UNSUPPORTED);
  EXPECT_THAT(message, ::testing::HasSubstr("packed for the device gpu, expected cpu"));
  const char* const command = "metal-marlin pack SOURCE -o OUT.marlin (SOURCE: model.safetensors or its folder)";
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

}  // namespace
}  // namespace container_test
