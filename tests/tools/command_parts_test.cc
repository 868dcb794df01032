// The parts of the command that judge: floats, bounds, limits; and those that write: tables, tensors, drawings.
#include <fcntl.h>
#include <fnmatch.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/format_table.h"
#include "run_command.h"
#include "safetensors.h"
#include "test.h"
#include "tools/command.h"
#include "tools/host_matrix.h"
#include "tools/input_files.h"
#include "tools/library.h"
#include "tools/machine_limits.h"
#include "tools/measure.h"
#include "tools/names.h"
#include "tools/output_file.h"
#include "tools/recipes.h"
#include "tools/reference.h"
#include "tools/router.h"
#include "tools/safetensors_writer.h"
#include "tools/table.h"
#include "tools/wildcards.h"
#include "tools/workload.h"

namespace metal_marlin::tools {
namespace {

TEST(Floats, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = from_f16(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(from_f16(to_f16(value))));
    } else {
      EXPECT_EQ(to_f16(value), half);
      EXPECT_EQ(to_bf16(from_bf16(half)), std::isnan(from_bf16(half)) ? half | 0x40 : half);
    }
  }
}

TEST(Floats, TiesGoToEven) {
  EXPECT_EQ(to_bf16(1 + 0x1p-8f), to_bf16(1));
  EXPECT_EQ(to_bf16(1 + 3 * 0x1p-8f), to_bf16(1 + 0x1p-6f));
  EXPECT_EQ(to_f16(1 + 0x1p-11f), to_f16(1));
  EXPECT_EQ(to_f16(3 * 0x1p-25f), 2);  // a tie between subnormals
  EXPECT_EQ(to_f16(65519.99f), 0x7bff);
  EXPECT_EQ(to_f16(65520), 0x7c00);
}

TEST(Table, AlignsCharactersNotBytes) {
  Table table({{"name"}, {"n", Table::Align::right}});
  table.row({"…ab", "7"});
  table.row({"abcd", "123"});
  EXPECT_EQ(table.render(), "name    n\n----  ---\n…ab     7\nabcd  123\n");
}

TEST(Names, SizesAndTimesKeepThreeDigits) {
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(25.6e6), "25.6 MB");
  EXPECT_EQ(bytes_text(512e3), "512 kB");
  EXPECT_EQ(seconds_text(1.234e-6), "1.23 us");
  EXPECT_EQ(seconds_text(99.96e-3), "100 ms");
  EXPECT_EQ(seconds_text(0.9996), "1.00 s");
}

TEST(Names, FormatsAreThoseOfTheLibrary) {
  for (const FormatRow& row : format_table()) EXPECT_EQ(parse_format(format_name(row.format)), row.format) << row.name;
  EXPECT_EQ(format_name(MARLIN_FORMAT_BFLOAT16), "bfloat16");
  EXPECT_EQ(default_group(MARLIN_FORMAT_NVFP4), 16u);
  EXPECT_EQ(code_bits(MARLIN_FORMAT_INT3), 3);
  EXPECT_TRUE(has_sparse_form(MARLIN_FORMAT_MXFP4));
  EXPECT_FALSE(has_sparse_form(MARLIN_FORMAT_NF4));
  EXPECT_EQ(dtype_name(MARLIN_E4M3), "e4m3");
}

TEST(Names, AreTakenInAnyCase) {
  EXPECT_EQ(parse_format("Int4"), MARLIN_FORMAT_INT4);
  EXPECT_STREQ(parse_weight_type("Q4_K")->block, "Q4_K");
  EXPECT_STREQ(parse_weight_type("iq4_XS")->block, "IQ4_XS");
  EXPECT_FALSE(parse_weight_type("Q4_KK").has_value());
  EXPECT_TRUE(is_recipe("Q4_K_M"));
}

/// Of every type that bench and explain take.
TEST(Wildcards, FitWhatTheSystemSaysThatFits) {
  const std::string parts[] = {"a", "b", "*", "?", "[ab]", "[!a]", "[a-c]", "[]b]", "\\*", "[", "-"};
  std::vector<std::string> patterns = {""};
  for (size_t begin = 0, round = 0; round < 3; ++round) {
    const size_t end = patterns.size();
    for (size_t i = begin; i < end; ++i)
      for (const std::string& part : parts) patterns.push_back(patterns[i] + part);
    begin = end;
  }
  for (const std::string& pattern : patterns) {
    for (const char* name : {"", "a", "b", "d", "]", "[", "*", "-", "ab", "aab", "abab", "a[b", "a.b"})
      EXPECT_EQ(fits(pattern.c_str(), name), fnmatch(pattern.c_str(), name, 0) == 0) << pattern << " and " << name;
  }
}

TEST(RandomWeights, AreFiniteAndOfEveryType) {
  const Context context = make_context({.backend = MARLIN_BACKEND_CPU, .threads = 1});
  std::istringstream names(weight_types());
  size_t types = 0;
  for (std::string name; names >> name; ++types) {
    if (name.ends_with(',')) name.pop_back();
    const WeightType type = parse_weight_type(name).value();
    const Weights weights =
        RandomWeights({.format = type.format, .n = 3, .k = 256, .block = type.block}, 1).pack(context.get());
    const marlin_layer_info info = info_of(weights.get());
    EXPECT_EQ(info.format, type.format) << name;
    if (type.block != nullptr) {
      EXPECT_EQ(block_type_of(info.format, info.flags), type.block);
    }
    std::vector<float> values(size_t{3 * 256});
    unpack_rows(weights.get(), 0, 3, 256, values.data());
    for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << name;
    EXPECT_GT(std::set<float>(values.begin(), values.end()).size(), 3u) << name;
  }
  EXPECT_EQ(types, format_table().size() + block_types().size());
}

struct Kind {
  marlin_format format;
  uint32_t group;
  Zeros zeros;
  marlin_compute compute;
};

/// One product by the library, right as it is.
class Judged : public testing::TestWithParam<Kind> {
 protected:
  static constexpr int64_t kM = 3, kN = 70, kK = 97;
  Judged() : a_(HostMatrix::random(kM, kK, MARLIN_F32, 7)), c_(kM, kN, MARLIN_F32) {
    const Kind& kind = GetParam();
    weights_ = RandomWeights({kind.format, kN, kK, kind.group, kind.zeros}, 3).pack(context_.get());
    multiply(product(weights_.get(), a_, c_, kM, kind.compute));
  }
  Verdict judge() {
    Product products[] = {{&a_, &c_, kM, GetParam().compute}};
    check_products(weights_.get(), products, every_row(kN), 2);
    return products[0].verdict;
  }

  Context context_ = make_context({.backend = MARLIN_BACKEND_CPU, .threads = 1});
  Weights weights_;
  HostMatrix a_, c_;
};

TEST_P(Judged, ARightResultPassesAndAWrongElementIsFound) {
  const Verdict right = judge();
  EXPECT_TRUE(right.ok()) << right.worst << " " << right.nmse;
  EXPECT_EQ(right.checked, kM * kN);
  EXPECT_LT(right.nmse, right.limit_nmse);

  // One weight wrong by about one step: far less than any of the sums, and it must not pass.
  const bool int8 = GetParam().compute == MARLIN_COMPUTE_INT8;
  const float was = c_.at(1, 64);
  c_.set(1, 64, was + (int8 ? 0.3f : 0.003f));
  const Verdict wrong = judge();
  EXPECT_FALSE(wrong.ok());
  if (!int8) {
    EXPECT_EQ(wrong.wrong, 1);
    EXPECT_EQ(wrong.m, 1);
    EXPECT_EQ(wrong.n, 64);
  }

  c_.set(1, 64, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(judge().wrong, 1);
  EXPECT_THAT(judge().complaint(), HasSubstr("1 of 210 elements out of bounds, worst inf x at [1, 64]"));
}

constexpr Kind kKinds[] = {{MARLIN_FORMAT_INT4, 32, Zeros::none, MARLIN_COMPUTE_DEFAULT},
                           {MARLIN_FORMAT_INT4, 64, Zeros::integer, MARLIN_COMPUTE_DEFAULT},
                           {MARLIN_FORMAT_INT4, 32, Zeros::additive, MARLIN_COMPUTE_DEFAULT},
                           {MARLIN_FORMAT_INT4, 128, Zeros::integer, MARLIN_COMPUTE_INT8},
                           {MARLIN_FORMAT_FP4, 32, Zeros::none, MARLIN_COMPUTE_DEFAULT},
                           {MARLIN_FORMAT_MXFP4, 32, Zeros::none, MARLIN_COMPUTE_DEFAULT},
                           {MARLIN_FORMAT_NVFP4, 16, Zeros::none, MARLIN_COMPUTE_DEFAULT},
                           {MARLIN_FORMAT_INT8, 32, Zeros::none, MARLIN_COMPUTE_DEFAULT}};
INSTANTIATE_TEST_SUITE_P(Kinds, Judged, testing::ValuesIn(kKinds));

/// However few elements are checked, and however small they are beside the terms of their sums.
TEST(Judged, RightResultsPassWhateverTheSeed) {
  const Context context = make_context({.backend = MARLIN_BACKEND_CPU, .threads = 1});
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const int64_t n = 1 + static_cast<int64_t>(seed % 4), m = 1 + static_cast<int64_t>(seed % 3);
    constexpr int64_t kK = 256;
    const marlin_format format = measured_formats()[seed % measured_formats().size()];
    const Weights weights = RandomWeights({.format = format, .n = n, .k = kK}, seed).pack(context.get());
    for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
      const HostMatrix a = HostMatrix::random(m, kK, MARLIN_BF16, seed), c(m, n, MARLIN_F32);
      multiply(product(weights.get(), a, c, m, compute));
      Product products[] = {{&a, &c, m, compute}};
      check_products(weights.get(), products, every_row(n), 1);
      EXPECT_TRUE(products[0].verdict.ok()) << "seed " << seed << ": " << products[0].verdict.complaint();
    }
  }
}

TEST(Judged, SamplesAsManyRowsAsAskedFor) {
  for (const int64_t count : {1, 2, 3, 4, 48, 99, 100, 200}) {
    std::set<int64_t> rows;
    for (const RowRange& range : sampled_rows(100, count))
      for (int64_t i = 0; i < range.count; ++i) EXPECT_TRUE(rows.insert(range.first + i).second) << count;
    EXPECT_EQ(static_cast<int64_t>(rows.size()), std::min<int64_t>(count - (count < 100 && count >= 3 ? count % 3 : 0), 100));
    EXPECT_LT(*rows.rbegin(), 100);
  }
}

TEST(Judged, SaysWhichLimitIsExceeded) {
  const Verdict verdict = {.nmse = 6.5e-4, .limit_nmse = 5e-4};
  EXPECT_FALSE(verdict.ok());
  EXPECT_EQ(verdict.complaint(), "nmse 6.5e-04, at most 5.0e-04");
}

/// Sums overflow on the way only where their terms do, and only there may C be infinite.
TEST(Judged, InfinityIsRightWhereTheTermsExceedFloat32) {
  constexpr int64_t kK = 64;
  const Context context = make_context({.backend = MARLIN_BACKEND_CPU, .threads = 1});
  const std::vector<uint8_t> codes(kK / 2, 0x77), signs(kK / 2, 0xf7);  // 6; 6 and -6 in turn
  for (const uint8_t exponent : {252, 120}) {
    std::vector<uint8_t> values(codes), scales(2 * kK / 32, exponent);
    values.insert(values.end(), signs.begin(), signs.end());
    auto desc = make<marlin_pack_desc>();
    desc.format = MARLIN_FORMAT_MXFP4;
    desc.n = 2;
    desc.k = kK;
    desc.values = {values.data(), 0, 2, kK / 2, 0, MARLIN_U8, MARLIN_MEM_HOST};
    desc.scales = {scales.data(), 0, 2, kK / 32, 0, MARLIN_E8M0, MARLIN_MEM_HOST};
    const marlin_pack_desc* const part = &desc;
    marlin_weights* packed = nullptr;
    ASSERT_EQ(marlin_weights_pack(context.get(), &part, 1, 1, &packed, nullptr), MARLIN_OK);
    const Weights weights(packed);
    HostMatrix a(1, kK, MARLIN_F32), c(1, 2, MARLIN_F32);
    for (int64_t k = 0; k < kK; ++k) a.set(0, k, 0.1f);
    for (int64_t n = 0; n < 2; ++n) c.set(0, n, std::numeric_limits<float>::infinity());
    Product products[] = {{&a, &c, 1, MARLIN_COMPUTE_DEFAULT}};
    check_products(weights.get(), products, every_row(2), 1);
    EXPECT_EQ(products[0].verdict.wrong, exponent == 252 ? 0 : 2);
    c.set(0, 1, 0);  // the second row's true value
    c.set(0, 0, 1);  // and not the first row's
    check_products(weights.get(), products, every_row(2), 1);
    EXPECT_EQ(products[0].verdict.wrong, 1);
  }
}

TEST(Experts, EachRowIsJudgedByItsOwn) {
  constexpr int64_t kTokens = 3, kTopK = 2, kN = 40, kK = 64, kExperts = 4;
  const Context context = make_context({.backend = MARLIN_BACKEND_CPU, .threads = 1});
  const Weights weights =
      RandomWeights({.format = MARLIN_FORMAT_MXFP4, .n = kN, .k = kK, .experts = kExperts}, 3).pack(context.get());
  const HostMatrix a = HostMatrix::random(kTokens, kK, MARLIN_F32, 7), c(kTokens * kTopK, kN, MARLIN_F32);
  std::vector<int32_t> ids = {3, 1, 1, 0, 2, 3};
  auto desc = product(weights.get(), a, c, kTokens, MARLIN_COMPUTE_DEFAULT);
  desc.c = c.view(kTokens * kTopK);
  desc.expert_ids.data = ids.data();
  desc.expert_ids.rows = kTokens;
  desc.expert_ids.cols = kTopK;
  desc.expert_ids.dtype = MARLIN_I32;
  multiply(desc);
  const auto judge = [&] {
    Product products[] = {{&a, &c, kTokens, MARLIN_COMPUTE_DEFAULT, ids}};
    check_products(weights.get(), products, every_row(kExperts * kN), 2);
    return products[0].verdict;
  };
  EXPECT_TRUE(judge().ok());
  EXPECT_EQ(judge().checked, kTokens * kTopK * kN);
  std::swap(ids[4], ids[5]);  // the last token's: its rows of C are now the other's
  EXPECT_GT(judge().wrong, kN);
}

TEST(Router, GivesATokenExpertsThatDiffer) {
  int64_t seen[5] = {};
  const std::vector<int32_t> ids = Router(5, 0, 5).draw(1000, 3);
  ASSERT_EQ(ids.size(), 3000u);
  for (size_t t = 0; t < ids.size(); t += 3) {
    EXPECT_TRUE(ids[t] != ids[t + 1] && ids[t] != ids[t + 2] && ids[t + 1] != ids[t + 2]) << t;
    for (size_t s = 0; s < 3; ++s) ++seen[ids[t + s]];
  }
  for (const int64_t count : seen) EXPECT_NEAR(count, 600, 80);  // five standard deviations
}

TEST(Router, FollowsZipfsLaw) {
  std::vector<int64_t> seen(3);
  for (const int32_t id : Router(3, 1, 6).draw(11000, 1)) ++seen[static_cast<size_t>(id)];
  std::sort(seen.rbegin(), seen.rend());
  EXPECT_NEAR(seen[0], 6000, 260);  // of 11, 6, 3 and 2 parts
  EXPECT_NEAR(seen[1], 3000, 240);
  EXPECT_NEAR(seen[2], 2000, 210);
}

TEST(Router, ShufflesAllExperts) {
  Router router(40, 1, 7);
  std::vector<int32_t> first = router.shuffled(), second = router.shuffled();
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  EXPECT_EQ(count_distinct(first), 40);
}

TEST(MachineLimits, EveryDeviceHasAnInstructionThatRunsHere) {
  for (const char* isa :
       {"generic", "avx2", "avx512", "avx512-vnni-bf16", "avx512-vnni-bf16-amx", "neon", "dotprod", "i8mm", "something new"}) {
    for (marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
      for (marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16}) {
        EXPECT_NE(find_dot_loop(instruction_for(isa, compute, dtype)), nullptr) << isa;
      }
    }
  }
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({}), 0);
}

#ifdef __linux__
TEST(MachineLimits, ThreadsAreThoseOfTheLibraryNow) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_GE(usable_threads(), 1u);
  EXPECT_LE(usable_threads(), static_cast<unsigned>(CPU_COUNT(&all)));
  CPU_ZERO(&one);
  for (size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_threads(), 1u);
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}
#endif

TEST(SafetensorsWriter, AppearsOnlyWhenComplete) {
  const test::ScratchFolder scratch;
  const float values[] = {1, 2, 3, 4, 5, 6};
  {
    OutputFile file(scratch.at("x"));
    SafetensorsWriter writer(file, {{"a", {2, 3}}});
    writer.write(values, 5);
    EXPECT_THROW(writer.write(values, 2), Failure);
    EXPECT_THROW(writer.commit(), Failure);
  }
  EXPECT_EQ(scratch.entries(), 0u);
  {
    OutputFile file(scratch.at("x"));
    SafetensorsWriter writer(file, {{"a \"quoted\" name", {2, 2}}, {"b", {2}}});
    writer.write(values, 6);
    writer.commit();
  }
  EXPECT_EQ(scratch.entries(), 1u);
  const auto tensors = test::read_safetensors(scratch.at("x"));
  EXPECT_EQ(tensors.at("a \"quoted\" name").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(tensors.at("b").bytes, std::string(reinterpret_cast<const char*>(values + 4), 8));
}

TEST(OutputFile, AKilledProcessLeavesNothing) {
#if defined(O_TMPFILE)
  const test::ScratchFolder scratch;
  test::write_file(scratch.at("old"), "precious");
  if (const int probe = open(scratch.at("").c_str(), O_TMPFILE | O_WRONLY, 0600); probe < 0) {
    GTEST_SKIP() << "skipped: this disk has no files without a name";
  } else {
    close(probe);
  }
  for (const char* name : {"new", "old"}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      OutputFile file(scratch.at(name), true);
      file.write(std::string(1 << 20, 'x'));
      (void)raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(scratch.entries(), 1u) << name;
  }
  EXPECT_EQ(test::read_file(scratch.at("old")), "precious");
#else
  GTEST_SKIP() << "skipped: this system has no files without a name";
#endif
}

TEST(OutputFile, HasATemporaryNameOfItsOwn) {
  const test::ScratchFolder scratch;
  for (const bool nameless : {false, true}) {
    OutputFile one(scratch.at("x"), true, {}, nameless), other(scratch.at("x"), true, {}, nameless);
    one.write("one");
    other.write("other");
    one.commit();
    other.commit();
    EXPECT_EQ(test::read_file(scratch.at("x")), "other");
  }
  EXPECT_EQ(scratch.entries(), 1u);
}

TEST(OutputFile, WithoutNamelessFilesItIsWrittenAllTheSame) {
  const test::ScratchFolder scratch;
  for (const bool nameless : {true, false}) {
    for (const bool force : {false, true}) {
      {
        OutputFile file(scratch.at("x"), force, {}, nameless);
        file.write("never committed");
      }
      EXPECT_EQ(scratch.entries(), 0u);
      const std::string text = std::string("text ") + (force ? "forced" : "new");
      {
        OutputFile file(scratch.at("x"), force, {}, nameless);
        if (force) test::write_file(scratch.at("x"), "old");
        file.write(text);
        file.commit();
      }
      EXPECT_EQ(test::read_file(scratch.at("x")), text);
      EXPECT_EQ(scratch.entries(), 1u);
      std::filesystem::remove(scratch.at("x"));
    }
  }
}

TEST(OutputFile, WhatComesWhileItIsWrittenStays) {
  const test::ScratchFolder scratch;
  for (const bool force : {false, true}) {
    {
      OutputFile file(scratch.at("x"), force);
      file.write("new");
      std::filesystem::create_directory(scratch.at("x"));
      EXPECT_THROW(file.commit(), Failure);
    }
    EXPECT_TRUE(std::filesystem::is_directory(scratch.at("x")));
    EXPECT_EQ(scratch.entries(), 1u);
    std::filesystem::remove(scratch.at("x"));
  }
  OutputFile file(scratch.at("x"));
  test::write_file(scratch.at("x"), "precious");
  EXPECT_THROW(file.commit(), Failure);
  EXPECT_EQ(test::read_file(scratch.at("x")), "precious");
}

/// Files that the process has mapped, by the system's own list; empty where there is none.
std::set<std::string> mapped_files() {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (const size_t slash = line.find('/'); slash != std::string::npos) found.insert(line.substr(slash));
  }
  return found;
}

TEST(InputFiles, AreAllThatTheLibraryReads) {
  const std::set<std::string> before = mapped_files();
  if (before.empty()) GTEST_SKIP() << "skipped: the system does not say what is mapped";
  const test::ScratchFolder scratch;
  std::filesystem::create_symlink(MARLIN_TEST_DATA, scratch.at("data"));
  int checkpoints = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MARLIN_TEST_DATA)) {
    auto error = make<marlin_error>();
    marlin_checkpoint* opened = nullptr;
    if (marlin_checkpoint_open(entry.path().c_str(), nullptr, &opened, &error) != MARLIN_OK) continue;
    const Checkpoint owned(opened);
    ++checkpoints;
    InputFiles inputs;
    inputs.add_checkpoint(scratch.at("data/" + entry.path().filename().string()));
    size_t read = 0;
    for (const std::string& file : mapped_files()) {
      if (before.contains(file)) continue;
      ++read;
      EXPECT_TRUE(inputs.has(file)) << file;
    }
    EXPECT_GE(read, 1u) << entry.path();
    EXPECT_FALSE(inputs.has((entry.path() / "decoded.safetensors").string())) << entry.path();
  }
  EXPECT_GT(checkpoints, 10);
}

TEST(Measurements, AreJudgedByTheLimitsOfTheirRace) {
  Measurement m{};
  m.job = {1, MARLIN_COMPUTE_DEFAULT};
  m.format = MARLIN_FORMAT_MXFP4;
  m.n = m.k = 1000;
  m.bytes = 500000;
  m.read_rate = 50e9;
  m.reading = "in a test";
  m.instruction = "vdpbf16ps";
  m.peak = 1e12;
  m.seconds = 2 * 500000 / 50e9;  // twice as long as reading takes
  EXPECT_TRUE(m.read_bound());
  EXPECT_DOUBLE_EQ(m.fraction_of_limit(), 0.5);
  EXPECT_EQ(limits_text(std::vector{m, m}), "reading memory 50.0 GB/s (in a test), vdpbf16ps 1000 Gop/s");
}

}  // namespace
}  // namespace metal_marlin::tools
