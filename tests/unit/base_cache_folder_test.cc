// Where the library keeps files of its own, and how it names what is not complete.
#include "base/cache_folder.h"

#include "temporary_folder.h"
#include "test.h"

namespace metal_marlin {
namespace {

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

TEST(CacheFolder, NamesEachPartAnew) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(part_name("file"));
  EXPECT_EQ(names.size(), 1000u);
}

TEST(CacheFolder, IsMadeWithTheOneAboveIt) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a/b";
  EXPECT_TRUE(make_folders(path));
  EXPECT_TRUE(std::filesystem::is_directory(path));
  EXPECT_TRUE(make_folders(path)) << "it is there";
}

TEST(CacheFolder, MakesNoHome) {
  const TemporaryFolder folder;
  EXPECT_FALSE(make_folders(folder.path() + "/nobody/.cache/metal-marlin"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/nobody"));
}

}  // namespace
}  // namespace metal_marlin
