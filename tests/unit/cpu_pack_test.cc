#include "backends/cpu/pack.h"
#include "test.h"

#include "campaigns.h"
#include "core/slots.h"
#include "core/thread_pool.h"
#include "counting_new.h"
#include "fails.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "packed_place.h"
#include "problem/memory_source.h"

namespace metal_marlin::cpu {
namespace {

constexpr Order kOrders[] = {Order::plain, Order::regular_index, Order::shuffled, Order::shard, Order::offset};

class Packing : public testing::Test {
 protected:
  Packing()
      : seed_(std::random_device{}()), random_(seed_), trace_(__FILE__, __LINE__, testing::Message() << "seed " << seed_) {}

  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  /// Calls use(source) for every format, kind, group size and order of k, each with a small ragged shape. The short form takes
  /// a seventh: other sizes and orders for each kind. There are 6 sizes and 5 orders.
  template <class Use>
  void for_each_source(bool tame, const Use& use) {
    int turn = 0;
    for (const FormatRow& row : format_table())
      for_each_kind(row, [&](WeightMeta meta) {
        for (const int64_t group : {16, 32, 64, 128, 256, 1 << 20})
          for (const Order order : kOrders) {
            const bool two_level = meta.has_two_level_scales();
            const bool skipped = turn++ % 7 != 0 && !whole_campaigns();
            if (skipped || ((meta.sparse || two_level) && order != Order::plain)) continue;
            meta.n = pick(1, 3) == 1 ? 64 : pick(1, 150);
            meta.k = pick(1, 3) == 1 ? 256 : pick(1, 600);
            if (meta.sparse) meta.k = (meta.k + 3) / 4 * 4;
            const auto size = resolve_group_size(row, group, meta.k);
            if (!size.ok() || (two_level && kFactorSpan % size.value() != 0)) continue;
            meta.group_size = size.value();
            set_groups(meta, order, random_);
            MemorySource source;
            source.mutable_meta() = meta;
            if (meta.zero_kind != ZeroKind::additive && !row.has_codebook_of_floats() && pick(0, 1) == 1) {
              source.mutable_meta().tensor_scales = {{0, 0.37f, pick(0, 1) == 1}};
              if (meta.n > 1) source.mutable_meta().tensor_scales.push_back({pick(1, meta.n - 1), 3.7f, pick(0, 1) == 1});
            }
            ASSERT_TRUE(check_meta(source.meta()).ok()) << check_meta(source.meta()).message();
            fill_randomly(source, random_, tame);
            SCOPED_TRACE(testing::Message() << row.name << " " << scale_type_name(meta.scale_type) << " zeros "
                                            << int(meta.zero_kind) << (meta.sparse ? " sparse n " : " n ") << meta.n << " k "
                                            << meta.k << " group " << meta.group_size << " order " << int(order));
            use(source);
            if (HasFatalFailure()) return;
          }
      });
  }

  std::unique_ptr<CpuWeights> pack(const WeightSource& source) {
    return must(pack_weights(source, Allocator::system(), pool_));
  }

  const unsigned seed_;
  std::mt19937 random_;
  testing::ScopedTrace trace_;
  ThreadPool pool_{3};
};

bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

TEST_F(Packing, PutsEveryElementWhereTheLayoutSays) {
  for_each_source(true, [&](const MemorySource& source) {
    const auto packed = pack(source);
    const WeightMeta& meta = source.meta();
    const PanelLayout& layout = packed->layout;
    ASSERT_EQ(layout.slots % 128, 0);
    ASSERT_GE(static_cast<int64_t>(packed->data.size()), layout.bytes());
    ASSERT_EQ(reinterpret_cast<uintptr_t>(packed->data.data()) % 64, 0u);
    std::vector<bool> seen(static_cast<size_t>(meta.k));
    for (int64_t slot = 0; slot < layout.slots; ++slot) {
      const int64_t k = !packed->slot_to_k.empty() ? packed->slot_to_k[slot] : slot < meta.k ? slot : -1;
      if (k >= 0) {
        ASSERT_FALSE(seen[k]);
        seen[k] = true;
      }
      const int64_t group = k < 0 ? -1 : meta.group_index.empty() ? k / meta.group_size : meta.group_index[k];
      for (int64_t n = 0; n < layout.panels() * 64; ++n) {
        const PackedWeight place = read_place(*packed, n, slot);
        if (k >= 0 && n < meta.n) {
          const GroupScale expected = decode_group(meta, source.all(), n, group);
          if (meta.sparse) {
            const uint8_t kept = source.all().kept[(n * meta.k + k) / 4];
            ASSERT_EQ(place.kept, (kept >> k % 4 & 1) != 0) << "n " << n << " slot " << slot;
          }
          if (place.kept) {
            ASSERT_EQ(place.code, code_of(source, n * meta.k + k)) << "n " << n << " slot " << slot;
          }
          ASSERT_TRUE(same_bits(place.group.scale, expected.scale)) << "n " << n << " slot " << slot;
          ASSERT_TRUE(same_bits(place.group.zero, expected.zero)) << "n " << n << " slot " << slot;
        } else if (place.kept) {
          // In a group that real elements share, some padding cannot decode to 0 and stays finite: with an additive zero, with
          // a zero point that no code equals, and in a codebook without 0.
          const float value = decode_value(meta, place.code, place.group, nullptr);
          const bool beyond =
              meta.zero_kind == ZeroKind::integer && place.group.zero == static_cast<float>(1 << layout.code_bits);
          const FormatRow& row = *format_row(meta.format);
          const bool no_zero = meta.format == MARLIN_FORMAT_IQ4 || row.has_codebook_of_floats();
          const bool none = meta.zero_kind == ZeroKind::additive || beyond || no_zero;
          const bool shared = n < meta.n && none;
          ASSERT_TRUE(shared ? std::isfinite(value) : value == 0) << "padding, n " << n << " slot " << slot << ": " << value;
        }
      }
    }
    ASSERT_TRUE(std::all_of(seen.begin(), seen.end(), [](bool b) { return b; }));
  });
}

TEST_F(Packing, UnpackGivesBackEveryBit) {
  for_each_source(false, [&](const MemorySource& source) {
    const auto packed = pack(source);
    const WeightMeta& meta = source.meta();
    std::vector<float> expected(static_cast<size_t>(meta.n * meta.k));
    decode_rows(meta, source.all(), 0, meta.n, expected.data());

    std::vector<int32_t> rows(static_cast<size_t>(pick(1, 2 * meta.n)));
    for (int32_t& r : rows) r = static_cast<int32_t>(pick(0, meta.n - 1));
    const RowSelection listed{0, {rows.data(), static_cast<int64_t>(rows.size()), 1, 1, MARLIN_I32}};
    const int64_t stride = meta.k + pick(0, 3);
    for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16}) {
      const size_t element = dtype == MARLIN_F32 ? 4 : 2;
      std::vector<uint8_t> out(rows.size() * stride * element, 0xa5), row(meta.k * element);
      const MatrixView view{out.data(), static_cast<int64_t>(rows.size()), meta.k, stride, dtype};
      ASSERT_TRUE(unpack_rows(*packed, listed, view, pool_).ok());
      for (size_t r = 0; r < rows.size(); ++r) {
        encode_floats(dtype, expected.data() + rows[r] * meta.k, meta.k, row.data());
        const uint8_t* const got = out.data() + r * stride * element;
        ASSERT_EQ(std::memcmp(got, row.data(), row.size()), 0) << "dtype " << dtype << " row " << rows[r];
        ASSERT_TRUE(std::all_of(got + row.size(), got + stride * element, [](uint8_t b) { return b == 0xa5; }));
      }
    }
  });
}

TEST_F(Packing, SparseTakesThreeQuartersOfTheCodes) {
  PanelLayout layout;
  layout.n = 64;
  layout.slots = 128;
  EXPECT_EQ(layout.code_bytes(), 4096);
  layout.sparse = true;
  EXPECT_EQ(layout.code_bytes(), 3072);
  EXPECT_EQ(layout.super_bytes() % 64, 0);
}

MemorySource sparse_source(marlin_format format, int64_t n, int64_t k, std::mt19937& random) {
  MemorySource source;
  WeightMeta& meta = source.mutable_meta();
  meta.format = format;
  meta.n = n;
  meta.k = k;
  meta.group_size = 32;
  meta.sparse = true;
  set_groups(meta, Order::plain, random);
  fill_randomly(source, random, true);
  return source;
}

std::vector<float> unpack_all(const CpuWeights& weights, TaskRunner& runner) {
  const WeightMeta& meta = weights.meta();
  std::vector<float> out(static_cast<size_t>(meta.n * meta.k));
  EXPECT_TRUE(unpack_rows(weights, {}, {out.data(), meta.n, meta.k, meta.k, MARLIN_F32}, runner).ok());
  return out;
}

/// A kept 0 is a 0 with its own sign; what is not kept is +0 whatever its code, also with the zero point that no code has.
TEST_F(Packing, KeptZerosKeepTheirSignAndPrunedOnesHaveNone) {
  for (const uint8_t pattern : kKeptPatterns) {
    MemorySource source = sparse_source(MARLIN_FORMAT_FP4, 3, 36, random_);
    std::fill(source.all().codes.begin(), source.all().codes.end(), uint8_t{8});  // -0
    std::fill(source.all().kept.begin(), source.all().kept.end(), pattern);
    const auto packed = pack(source);
    const std::vector<float> values = unpack_all(*packed, pool_);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], 0.0f);
      ASSERT_EQ(std::signbit(values[i]), (pattern >> i % 4 & 1) != 0) << "pattern " << int(pattern) << " element " << i;
    }
  }
  MemorySource source = sparse_source(MARLIN_FORMAT_INT4, 70, 132, random_);
  source.mutable_meta().zero_kind = ZeroKind::integer;
  fill_randomly(source, random_, true);
  std::fill(source.all().zeros.begin(), source.all().zeros.end(), uint8_t{16});
  const auto packed = pack(source);
  const std::vector<float> values = unpack_all(*packed, pool_);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool kept = (source.all().kept[i / 4] >> i % 4 & 1) != 0;
    ASSERT_EQ(values[i] != 0, kept) << i;
    ASSERT_FALSE(!kept && std::signbit(values[i])) << i;
  }
}

TEST_F(Packing, RejectsMasksThatDoNotKeepTwo) {
  for (const int bad : {0, 1, 2, 4, 8, 7, 11, 13, 14, 15, 0x13, 0x30, 0xff}) {
    MemorySource source = sparse_source(MARLIN_FORMAT_INT4, 200, 36, random_);
    source.all().kept[150 * 9 + 7] = static_cast<uint8_t>(bad);
    const auto packed = pack_weights(source, Allocator::system(), pool_);
    ASSERT_EQ(packed.status().code(), MARLIN_E_FORMAT) << bad;
    EXPECT_THAT(packed.status().message(), testing::HasSubstr("row 150, block 7 of 4"));
  }
  MemorySource source = sparse_source(MARLIN_FORMAT_INT4, 2, 36, random_);
  source.all().kept.pop_back();
  source.all().kept.pop_back();
  EXPECT_EQ(pack_weights(source, Allocator::system(), pool_).status().code(), MARLIN_E_FORMAT);
}

TEST_F(Packing, EveryPartitionGivesTheSameBytes) {
  MemorySource source;
  WeightMeta& meta = source.mutable_meta();
  meta.format = MARLIN_FORMAT_INT4;
  meta.n = 777;
  meta.k = 300;
  meta.group_size = 64;
  meta.zero_kind = ZeroKind::integer;
  set_groups(meta, Order::shuffled, random_);
  fill_randomly(source, random_, false);
  const auto packed = pack(source);
  HostRunner serial(
      [](void*, uint32_t tasks, void (*task)(void*, uint32_t), void* user) {
        for (uint32_t i = tasks; i-- > 0;) task(user, i);
      },
      nullptr, 5);
  for (uint32_t threads = 0; threads < 5; ++threads) {
    ThreadPool pool(threads);
    TaskRunner* const runner = threads == 0 ? static_cast<TaskRunner*>(&serial) : &pool;
    const auto other = must(pack_weights(source, Allocator::system(), *runner));
    EXPECT_EQ(std::memcmp(packed->data.data(), other->data.data(), static_cast<size_t>(packed->layout.bytes())), 0);
  }
}

TEST_F(Packing, IndexThatSaysNothingIsDropped) {
  MemorySource source;
  WeightMeta& meta = source.mutable_meta();
  meta.format = MARLIN_FORMAT_INT4;
  meta.n = 3;
  meta.k = 300;
  meta.group_size = 128;
  set_groups(meta, Order::regular_index, random_);
  fill_randomly(source, random_, true);
  const auto regular = pack(source);
  EXPECT_TRUE(regular->meta().group_index.empty());
  EXPECT_TRUE(regular->slot_to_k.empty());
  set_groups(meta, Order::offset, random_);
  fill_randomly(source, random_, true);
  const auto offset = pack(source);
  EXPECT_FALSE(offset->meta().group_index.empty());
  EXPECT_TRUE(offset->slot_to_k.empty());
  EXPECT_EQ(offset->layout.slot_group, 128);
}

TEST_F(Packing, SlotGroupKeepsPaddingSmall) {
  WeightMeta meta;
  meta.format = MARLIN_FORMAT_INT4;
  meta.n = 1;
  meta.k = 1024;
  meta.group_size = 128;
  set_groups(meta, Order::shuffled, random_);
  const SlotCosts costs = PanelLayout{}.slot_costs();
  Result<Slots> slots = assign_slots(meta, costs);
  ASSERT_TRUE(slots.ok());
  EXPECT_EQ(slots.value().group, 128);
  EXPECT_EQ(slots.value().count, 1024);
  // 16 elements of each of 64 groups: no slot is wasted.
  for (int64_t k = 0; k < meta.k; ++k) meta.group_index[k] = static_cast<int32_t>(k % 64);
  meta.groups = 64;
  slots = assign_slots(meta, costs);
  ASSERT_TRUE(slots.ok());
  EXPECT_EQ(slots.value().group, 16);
  EXPECT_EQ(slots.value().count, 1024);
}

TEST_F(Packing, RejectsGroupsThatDoNotFit) {
  MemorySource source;
  WeightMeta& meta = source.mutable_meta();
  meta.format = MARLIN_FORMAT_INT4;
  meta.n = 2;
  meta.k = 96;
  meta.group_size = 48;
  meta.groups = 2;
  const auto packed = pack_weights(source, Allocator::system(), pool_);
  EXPECT_THAT(packed.status(), Fails(MARLIN_E_UNSUPPORTED, testing::HasSubstr("group_size is 48")));
}

TEST_F(Packing, TensorScalesBecomeColumns) {
  MemorySource source;
  WeightMeta& meta = source.mutable_meta();
  meta.format = MARLIN_FORMAT_NVFP4;
  meta.scale_type = ScaleType::e4m3;
  meta.n = 70;
  meta.k = 32;
  meta.group_size = 16;
  meta.groups = 2;
  fill_randomly(source, random_, true);
  meta.tensor_scales = {{0, 1.0f, true}, {5, 1.0f, false}};
  EXPECT_TRUE(pack(source)->column_multiplier.empty());
  meta.tensor_scales = {{0, 3.0f, true}, {5, 7.0f, false}};
  const auto packed = pack(source);
  ASSERT_EQ(packed->column_multiplier.size(), 128u);
  ASSERT_EQ(packed->column_divisor.size(), 128u);
  for (size_t n = 0; n < 128; ++n) {
    EXPECT_EQ(packed->column_divisor[n], n < 5 ? 3.0f : 1.0f);
    EXPECT_EQ(packed->column_multiplier[n], n >= 5 && n < 70 ? 7.0f : 1.0f);
  }
}

/// Fails from some row on, by Status or by exception.
class FailingSource final : public WeightSource {
 public:
  FailingSource(int64_t bad_row, bool throws) : bad_row_(bad_row), throws_(throws) {
    meta_.format = MARLIN_FORMAT_INT4;
    meta_.n = 1000;
    meta_.k = 32;
    meta_.group_size = 32;
    meta_.groups = 1;
  }
  Status read(int64_t first, int64_t count, Stripe& out) const override {
    if (first + count > bad_row_) {
      if (throws_) throw std::bad_alloc();
      return Status::error(MARLIN_E_FILE, "row %lld", static_cast<long long>(first));
    }
    out.codes.assign(static_cast<size_t>(count * 32), 3);
    out.scales.assign(static_cast<size_t>(count * 2), 0);
    return {};
  }

 private:
  int64_t bad_row_;
  bool throws_;
};

TEST_F(Packing, ReportsTheFirstFailureOfTheSource) {
  for (int round = 0; round < 50; ++round) {
    const auto packed = pack_weights(FailingSource(300, false), Allocator::system(), pool_);
    ASSERT_EQ(packed.status().code(), MARLIN_E_FILE);
    ASSERT_STREQ(packed.status().message(), "row 256");
  }
  EXPECT_EQ(pack_weights(FailingSource(300, true), Allocator::system(), pool_).status().code(), MARLIN_E_MEMORY);
}

TEST_F(Packing, AllocatorThatRefusesIsAnError) {
  const Allocator refusing{[](void*, size_t, size_t) -> void* { return nullptr; }, [](void*, void*, size_t) {}, nullptr};
  EXPECT_EQ(pack_weights(FailingSource(2000, false), refusing, pool_).status().code(), MARLIN_E_MEMORY);
}

/// Makes its rows up.
class EndlessSource final : public WeightSource {
 public:
  EndlessSource() {
    meta_.format = MARLIN_FORMAT_MXFP4;
    meta_.scale_type = ScaleType::e8m0;
    meta_.n = 4096;
    meta_.k = 8192;
    meta_.group_size = 32;
    meta_.groups = 256;
  }
  Status read(int64_t, int64_t count, Stripe& out) const override {
    out.codes.assign(static_cast<size_t>(count * meta_.k), 5);
    out.scales.assign(static_cast<size_t>(count * meta_.groups), 127);
    return {};
  }
};

TEST_F(Packing, HoldsOneStripeAThread) {
  const EndlessSource source;
  std::atomic<size_t> given{0};
  const Allocator host{[](void* user, size_t size, size_t align) {
                         *static_cast<std::atomic<size_t>*>(user) += size;
                         return std::aligned_alloc(align, size);
                       },
                       [](void*, void* p, size_t) { std::free(p); }, &given};
  const size_t before = counting_new::live;
  counting_new::peak = before;
  const auto packed = must(pack_weights(source, host, pool_));
  EXPECT_EQ(given.load(), static_cast<size_t>(packed->layout.bytes()));
  EXPECT_LT(counting_new::peak - before, size_t{pool_.width()} * 64 * (8192 + 256) + (size_t{1} << 16));
  EXPECT_LT(counting_new::live - before, size_t{1} << 16);
}

}  // namespace
}  // namespace metal_marlin::cpu
