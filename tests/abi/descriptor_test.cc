// The reader and writer of structs with a struct_size, at every length, for today's structs and for one that has grown.
#include "api/descriptor.h"
#include "test.h"

namespace metal_marlin::api {
namespace {

/// A struct whose version 1 ended behind `b`; this library knows `c` too, and a later one may know more.
struct Grown {
  uint32_t struct_size;
  uint32_t a;
  uint64_t b;
  uint64_t c;
};

}  // namespace

template <>
inline constexpr uint32_t kVersion1Size<Grown> = 16;

namespace {

template <class T>
class Descriptor : public testing::Test {};
using Structs = testing::Types<marlin_error, marlin_device_info, marlin_context_desc, marlin_stream_desc, marlin_pack_desc,
                               marlin_gemm_desc, marlin_load_desc, marlin_open_desc, marlin_layer_info, Grown>;
TYPED_TEST_SUITE(Descriptor, Structs);

/// `size` bytes of a caller, all 0xAB behind the struct_size; one more byte at each end shows that nobody goes there.
class Caller {
 public:
  Caller(uint32_t size, uint32_t struct_size, size_t misalign = 0)
      : bytes_(size + 64, 0xCD), at_(bytes_.data() + 16 + misalign) {
    std::memset(at_, 0xAB, size);
    std::memcpy(at_, &struct_size, sizeof struct_size);
  }
  unsigned char* data() { return at_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(at_);
  }
  void zero(uint32_t from, uint32_t to) { std::memset(at_ + from, 0, to - from); }
  bool intact(uint32_t size) const {
    for (const unsigned char* p = bytes_.data(); p < bytes_.data() + bytes_.size(); ++p)
      if ((p < at_ || p >= at_ + size) && *p != 0xCD) return false;
    return true;
  }

 private:
  std::vector<unsigned char> bytes_;
  unsigned char* at_;
};

TYPED_TEST(Descriptor, EveryLengthFromNothingToVersion1IsRefused) {
  for (uint32_t size = 0; size < kVersion1Size<TypeParam>; ++size) {
    Caller caller(std::max<uint32_t>(size, 4), size);
    EXPECT_EQ(read_descriptor(caller.as<TypeParam>(), "desc").status().code(), MARLIN_E_STRUCT_SIZE) << size;
    EXPECT_EQ(check_output(caller.as<TypeParam>(), "out").code(), MARLIN_E_STRUCT_SIZE) << size;
    EXPECT_EQ(write_descriptor(caller.as<TypeParam>(), TypeParam{}, "out").code(), MARLIN_E_STRUCT_SIZE) << size;
    EXPECT_TRUE(caller.intact(std::max<uint32_t>(size, 4)));
  }
}

// A length that ends inside a pointer would leave half of an address.
TYPED_TEST(Descriptor, ALengthThatEndsInsideAFieldIsRefused) {
  for (uint32_t size = kVersion1Size<TypeParam>; size <= sizeof(TypeParam) + 40; ++size) {
    if (size % 8 == 0) continue;
    Caller caller(size, size);
    const Status read = read_descriptor(caller.as<TypeParam>(), "desc").status();
    EXPECT_EQ(read.code(), MARLIN_E_STRUCT_SIZE);
    EXPECT_EQ(std::string(read.message()),
              "desc->struct_size is " + std::to_string(size) + ", expected a multiple of 8 (sizeof the struct)");
    EXPECT_EQ(check_output(caller.as<TypeParam>(), "out").code(), MARLIN_E_STRUCT_SIZE) << size;
    EXPECT_EQ(write_descriptor(caller.as<TypeParam>(), TypeParam{}, "out").code(), MARLIN_E_STRUCT_SIZE) << size;
    EXPECT_TRUE(caller.intact(size)) << size;
  }
}

TYPED_TEST(Descriptor, EveryLegalLengthIsReadAndTheRestIsZero) {
  for (uint32_t size = kVersion1Size<TypeParam>; size <= sizeof(TypeParam) + 40; size += 8) {
    Caller caller(size, size, size / 8 % 8);
    const uint32_t known = std::min<uint32_t>(size, sizeof(TypeParam));
    caller.zero(known, size);
    auto read = read_descriptor(caller.as<TypeParam>(), "desc");
    ASSERT_TRUE(read.ok()) << size << ": " << read.status().message();
    const auto* got = reinterpret_cast<const unsigned char*>(&read.value());
    EXPECT_EQ(read.value().struct_size, sizeof(TypeParam));
    for (uint32_t i = 4; i < sizeof(TypeParam); ++i) ASSERT_EQ(got[i], i < known ? 0xAB : 0) << "byte " << i << " of " << size;
  }
}

TYPED_TEST(Descriptor, AnyByteOfAnUnknownTailIsUnsupported) {
  for (uint32_t tail = 8; tail <= 40; tail += 8)
    for (uint32_t byte = 0; byte < tail; ++byte) {
      const uint32_t size = sizeof(TypeParam) + tail;
      Caller caller(size, size);
      caller.zero(sizeof(TypeParam), size);
      caller.data()[sizeof(TypeParam) + byte] = 1;
      EXPECT_EQ(read_descriptor(caller.as<TypeParam>(), "desc").status().code(), MARLIN_E_UNSUPPORTED);
    }
}

TYPED_TEST(Descriptor, AnOutputIsFilledUpToTheCallersLengthAndNoFurther) {
  TypeParam from;
  std::memset(&from, 0x5A, sizeof from);
  for (uint32_t size = kVersion1Size<TypeParam>; size <= sizeof(TypeParam) + 40; size += 8) {
    Caller caller(size, size, size / 8 % 8);
    ASSERT_TRUE(check_output(caller.as<TypeParam>(), "out").ok());
    ASSERT_TRUE(write_descriptor(caller.as<TypeParam>(), from, "out").ok());
    EXPECT_TRUE(caller.intact(size)) << size;
    uint32_t kept;
    std::memcpy(&kept, caller.data(), sizeof kept);
    EXPECT_EQ(kept, size);
    for (uint32_t i = 4; i < size; ++i) ASSERT_EQ(caller.data()[i], i < sizeof(TypeParam) ? 0x5A : 0) << i << " of " << size;
  }
}

TYPED_TEST(Descriptor, UninitializedLengthsAreRefusedWithoutReadingThatFar) {
  for (const uint32_t size : {kMaxStructSize + 1, 0x7fffffffu, 0xcdcdcdcdu, 0xffffffffu}) {
    Caller caller(sizeof(TypeParam), size);
    EXPECT_EQ(read_descriptor(caller.as<TypeParam>(), "desc").status().code(), MARLIN_E_STRUCT_SIZE);
    EXPECT_EQ(write_descriptor(caller.as<TypeParam>(), TypeParam{}, "out").code(), MARLIN_E_STRUCT_SIZE);
    EXPECT_TRUE(caller.intact(sizeof(TypeParam)));
  }
  Caller longest(kMaxStructSize, kMaxStructSize);
  longest.zero(4, kMaxStructSize);
  EXPECT_TRUE(read_descriptor(longest.as<TypeParam>(), "desc").ok());
}

TEST(DescriptorOptional, NullMeansAllDefaults) {
  auto read = read_optional_descriptor(static_cast<const marlin_context_desc*>(nullptr), "desc");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().struct_size, sizeof(marlin_context_desc));
  EXPECT_EQ(read.value().backend, MARLIN_BACKEND_AUTO);
  EXPECT_EQ(read.value().alloc, nullptr);
  EXPECT_EQ(check_output(static_cast<marlin_layer_info*>(nullptr), "out").code(), MARLIN_E_ARGUMENT);
}

}  // namespace
}  // namespace metal_marlin::api
