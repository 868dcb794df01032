// The file of a profile: what is written is read, and whatever else lies there is ignored with a line in the log.
#include "core/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/cache_folder.h"
#include "temporary_folder.h"

namespace metal_marlin {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const ProfileKey kKey = {"cuda", "A GPU", "sm_90", "CUDA 13.0"};

ProductClass products_of(int64_t n) {
  ProductClass products{};
  for (size_t i = 0; i < kClassFields; ++i) products[i] = static_cast<int64_t>(i);
  products[static_cast<size_t>(ClassField::n)] = n;
  return products;
}

class ProfileFile : public testing::Test {
 protected:
  Profile open(const ProfileKey& key = kKey) {
    log_.clear();
    return Profile(folder_.path(), key, {write, &log_});
  }
  std::string path() { return open().path(); }
  std::string contents() {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& text) { std::ofstream(path(), std::ios::binary) << text; }
  /// The text with the checksum that belongs to it.
  static std::string sealed(const std::string& text) {
    Hash hash;
    hash.add(text);
    char line[32];
    std::snprintf(line, sizeof line, "end %016llx\n", static_cast<unsigned long long>(hash.value()));
    return text + line;
  }
  void fill() {
    Profile profile = open();
    profile.keep(products_of(4096), choice_);
    profile.keep(products_of(8192), {"usual", 0, 0, 5, "usual", 5});
    ASSERT_TRUE(profile.save().ok());
  }
  void expect_ignored(const std::string& why) {
    const Profile profile = open();
    EXPECT_TRUE(profile.empty()) << why;
    EXPECT_THAT(log_, HasSubstr("is ignored: ")) << why;
    EXPECT_THAT(log_, HasSubstr(why));
  }

  static void write(void* user, int32_t level, const char* message) {
    EXPECT_EQ(level, static_cast<int32_t>(LogLevel::warning));
    static_cast<std::string*>(user)->append(message).append("\n");
  }
  TemporaryFolder folder_;
  std::string log_;
  const KernelChoice choice_ = {"fast_kernel", 4, 3, 1234, "usual", 2345};
};

TEST_F(ProfileFile, IsReadAsItWasWritten) {
  fill();
  const Profile again = open();
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_EQ(again.size(), 2u);
  ASSERT_NE(again.find(products_of(4096)), nullptr);
  EXPECT_EQ(*again.find(products_of(4096)), choice_);
  EXPECT_EQ(again.find(products_of(8192))->kernel, "usual");
  EXPECT_EQ(again.find(products_of(1)), nullptr);
  struct stat found{};
  ASSERT_EQ(stat(path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(ProfileFile, IsOneForEachDeviceDriverAndArchitecture) {
  fill();
  for (const ProfileKey& other : {ProfileKey{"metal", "A GPU", "sm_90", "CUDA 13.0"},
                                  {"cuda", "B GPU", "sm_90", "CUDA 13.0"},
                                  {"cuda", "A GPU", "sm_80", "CUDA 13.0"},
                                  {"cuda", "A GPU", "sm_90", "CUDA 13.1"}}) {
    const Profile profile = open(other);
    EXPECT_TRUE(profile.empty());
    EXPECT_NE(profile.path(), path());
    EXPECT_THAT(log_, IsEmpty()) << "there is no file of that device";
  }
}

TEST_F(ProfileFile, OfAnotherDeviceUnderThisNameIsIgnored) {
  fill();
  const std::string mine = path();
  Profile other = open({"cuda", "B GPU", "sm_90", "CUDA 13.0"});
  other.keep(products_of(4096), choice_);
  ASSERT_TRUE(other.save().ok());
  std::filesystem::rename(other.path(), mine);
  expect_ignored("another device, driver, system or version");
}

TEST_F(ProfileFile, WithAnyByteChangedOrCutIsIgnored) {
  fill();
  const std::string good = contents();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    put(bad);
    expect_ignored("damaged");
    put(good.substr(0, i));
    EXPECT_TRUE(open().empty()) << i;
    EXPECT_THAT(log_, HasSubstr("is ignored: ")) << i;
  }
  put(good + "x");
  expect_ignored("damaged");
  put(good);
  EXPECT_EQ(open().size(), 2u);
}

TEST_F(ProfileFile, WithOtherLinesIsIgnored) {
  fill();
  const std::string good = contents(), text = good.substr(0, good.rfind("end "));
  const struct {
    std::string from, to;
  } kChanges[] = {{" n=4096", " n=-1"},
                  {" n=4096", " n=4096x"},
                  {" n=4096", ""},
                  {" n=4096", " k=4096"},
                  {" splits=4", " splits=1000"},
                  {" team=3", " team=9"},
                  {"kernel=usual", "kernel="},
                  {"kernel=usual", "kernel=usual\x1b[31m"},
                  {"usual=", "usual=\xe2\x80\xae"},
                  {" n=4096", " n=99999999999999999999"},
                  {"product", "produce"},
                  {"usual_ns=5", "usual_ns=5 more=1"},
                  {" n=8192", " n=4096"}};
  for (const auto& [from, to] : kChanges) {
    std::string bad = text;
    const size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    put(sealed(bad));
    expect_ignored("is not as this version writes it");
  }
  put(sealed(text));
  EXPECT_EQ(open().size(), 2u) << "the checksum of the test is the right one";
}

/// Products of a class have the same bytes to load, and zeros have a type where they are no integers.
TEST(ClassOfProducts, TellsZerosApart) {
  struct Packed final : PackedWeights {
    uint64_t bytes() const override { return 0; }
    PlanKey plan_key() const override { return {}; }
    WeightMeta& of() { return meta_; }
  } weights;
  weights.of().format = MARLIN_INT4;
  GemmProblem problem;
  problem.weights = &weights;
  std::vector<ProductClass> classes;
  for (const ZeroKind kind : {ZeroKind::none, ZeroKind::integer, ZeroKind::additive})
    for (const ScaleType type : {ScaleType::f32, ScaleType::f16}) {
      weights.of().zero_kind = kind;
      weights.of().zero_type = type;
      classes.push_back(class_of(problem, 1));
    }
  EXPECT_EQ(classes[0], classes[1]) << "what has no zeros has no type of zeros";
  EXPECT_EQ(classes[2], classes[3]) << "integers have none either";
  EXPECT_NE(classes[4], classes[5]);
  EXPECT_NE(classes[0], classes[2]);
}

TEST_F(ProfileFile, NamesTheSystem) {
  fill();
  struct utsname system{};
  ASSERT_EQ(uname(&system), 0);
  EXPECT_THAT(contents(),
              HasSubstr(std::string("\nsystem ") + system.sysname + " " + system.release + " " + system.machine + "\n"));
}

TEST_F(ProfileFile, ThatIsNoFileIsIgnored) {
  const std::string name = path();
  std::filesystem::create_directory(name);
  expect_ignored("cannot be read");
  std::filesystem::remove(name);
  ASSERT_EQ(mkfifo(name.c_str(), 0600), 0);
  expect_ignored("cannot be read");
  std::filesystem::remove(name);
  put("");
  expect_ignored("cannot be read");
  std::filesystem::resize_file(name, 5 << 20);
  expect_ignored("cannot be read");
}

TEST_F(ProfileFile, ThatOthersCanWriteIsIgnored) {
  fill();
  for (const mode_t mode : {0606, 0620, 0666}) {
    ASSERT_EQ(chmod(path().c_str(), mode), 0);
    expect_ignored("expected a file that only this user can write");
  }
  ASSERT_EQ(chmod(path().c_str(), 0644), 0);
  EXPECT_EQ(open().size(), 2u);
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(chown(path().c_str(), 65534, static_cast<gid_t>(-1)), 0);
  expect_ignored("expected a file that only this user can write");
}

TEST_F(ProfileFile, KeepsWhatAnotherProcessWrote) {
  Profile one = open(), two = open();
  one.keep(products_of(1), choice_);
  one.keep(products_of(3), choice_);
  two.keep(products_of(2), choice_);
  two.keep(products_of(1), {"other", 0, 0, 1, "usual", 2});
  ASSERT_TRUE(one.save().ok());
  ASSERT_TRUE(two.save().ok());
  EXPECT_EQ(open().size(), 3u);
  EXPECT_EQ(open().find(products_of(1))->kernel, "other") << "the last to write";
  EXPECT_EQ(one.find(products_of(2)), nullptr) << "a context does not change by what others do";
}

TEST_F(ProfileFile, IsNotTouchedWithoutNeed) {
  Profile profile = open();
  EXPECT_TRUE(profile.save().ok());
  EXPECT_FALSE(std::filesystem::exists(profile.path()));
  profile.keep(products_of(1), choice_);
  profile.keep(products_of(1), {"other", 0, 0, 1, "usual", 2});
  EXPECT_EQ(*profile.find(products_of(1)), choice_) << "the first stays";
  EXPECT_TRUE(profile.save().ok());
  std::filesystem::remove(profile.path());
  EXPECT_TRUE(profile.save().ok());
  EXPECT_FALSE(std::filesystem::exists(profile.path()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 0) << "nothing is left behind";
}

TEST_F(ProfileFile, WithoutAFolderIsInMemoryAlone) {
  Profile profile("", kKey, {});
  profile.keep(products_of(1), choice_);
  EXPECT_EQ(profile.size(), 1u);
  EXPECT_TRUE(profile.save().ok());
  EXPECT_EQ(profile.path(), "");
  Profile nowhere("/dev/null/below", kKey, {write, &log_});
  EXPECT_THAT(log_, IsEmpty());
  nowhere.keep(products_of(1), choice_);
  EXPECT_EQ(nowhere.save().code(), MARLIN_E_FILE);
}

TEST_F(ProfileFile, HasOneLineForEachNameWhateverTheSystemSays) {
  const ProfileKey odd = {"cuda", "A\nGPU\x7f\tof two lines", "", std::string(1000, 'x')};
  Profile profile = open(odd);
  profile.keep(products_of(1), choice_);
  ASSERT_TRUE(profile.save().ok());
  EXPECT_EQ(open(odd).size(), 1u);
}

TEST(ProfileThreads, FindAndKeepAtOnce) {
  Profile profile("", kKey, {});
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t)
    threads.emplace_back([&profile, t] {
      for (int64_t n = 0; n < 500; ++n) {
        if (t < 2) profile.keep(products_of(n), {"kernel", 0, 0, n, "usual", n});
        const KernelChoice* const found = profile.find(products_of(n));
        EXPECT_TRUE(found == nullptr || found->ns == n);
        EXPECT_LE(profile.size(), 500u);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(profile.size(), 500u);
}

TEST(ClassOfRows, IsExactUpTo8AndDoublesAbove) {
  for (const auto& [m, top] : {std::pair<int64_t, int64_t>{-1, 1},
                               {0, 1},
                               {1, 1},
                               {5, 5},
                               {8, 8},
                               {9, 16},
                               {16, 16},
                               {17, 32},
                               {513, 1024},
                               {INT64_MAX, int64_t{1} << 40}})
    EXPECT_EQ(top_of_class(m), top) << m;
}

TEST(CacheFolder, IsWhereTheSystemHasIt) {
  const char* const names[] = {"HOME", "XDG_CACHE_HOME"};
  std::vector<std::string> before;
  for (const char* name : names) before.emplace_back(std::getenv(name) != nullptr ? std::getenv(name) : "");
  setenv("HOME", "/somebody", 1);
  unsetenv("XDG_CACHE_HOME");
#if defined(__APPLE__)
  EXPECT_EQ(user_cache_folder(), "/somebody/Library/Caches/metal-marlin");
#else
  EXPECT_EQ(user_cache_folder(), "/somebody/.cache/metal-marlin");
  setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(user_cache_folder(), "/caches/metal-marlin");
  setenv("XDG_CACHE_HOME", "/caches//", 1);
  EXPECT_EQ(user_cache_folder(), "/caches/metal-marlin");
  setenv("XDG_CACHE_HOME", "/", 1);
  EXPECT_EQ(user_cache_folder(), "/somebody/.cache/metal-marlin") << "the root is no folder of caches";
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(user_cache_folder(), "/somebody/.cache/metal-marlin") << "a relative path is none";
  unsetenv("XDG_CACHE_HOME");
#endif
  unsetenv("HOME");
  EXPECT_EQ(user_cache_folder(), "");
  for (size_t i = 0; i < 2; ++i)
    if (!before[i].empty()) setenv(names[i], before[i].c_str(), 1);
}

TEST(CacheFolder, ReplacesAFileWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a/b/file";
  ASSERT_TRUE(replace_file(path, "one").ok());
  ASSERT_TRUE(replace_file(path, "two").ok());
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "two");
  std::filesystem::create_directory(folder.path() + "/folder");
  const Status s = replace_file(folder.path() + "/folder", "text");
  EXPECT_EQ(s.code(), MARLIN_E_FILE);
  EXPECT_NE(s.native_code(), 0);
  const auto entries = std::distance(std::filesystem::directory_iterator(folder.path()), {});
  EXPECT_EQ(entries, 2) << "the part is gone";
}

TEST(CacheFolder, NamesEachPartAnew) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(part_name("file"));
  EXPECT_EQ(names.size(), 1000u);
}

TEST(CacheFolder, ReplacesAFileFromManyThreads) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(replace_file(path, std::string(1000, static_cast<char>('a' + t))).ok());
    });
  for (std::thread& thread : threads) thread.join();
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, std::string(1000, text.at(0)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

// What others put where a part used to be, by the number of the process, is neither followed nor waited for.
TEST(CacheFolder, TakesNoNameThatSomebodyHas) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file", victim = folder.path() + "/victim",
                    part = path + "." + std::to_string(getpid()) + ".part";
  std::ofstream(victim) << "whole";
  std::filesystem::create_symlink(victim, part);
  EXPECT_TRUE(replace_file(path, "text").ok());
  std::string text;
  std::ifstream(victim) >> text;
  EXPECT_EQ(text, "whole");
  std::filesystem::remove(part);
  ASSERT_EQ(mkfifo(part.c_str(), 0600), 0);
  EXPECT_TRUE(replace_file(path, "text").ok());
}

TEST(CacheFolder, MakesNoHome) {
  const TemporaryFolder folder;
  EXPECT_EQ(replace_file(folder.path() + "/nobody/.cache/metal-marlin/file", "text").code(), MARLIN_E_FILE);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/nobody"));
}

}  // namespace
}  // namespace metal_marlin
