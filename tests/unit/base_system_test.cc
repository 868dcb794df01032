// The one place that asks the operating system: files under every kind of name and of more than 4 GiB, and threads, memory,
// libraries. The suite windows runs this program, too.
#include <cerrno>

#include "base/files.h"
#include "base/system.h"
#include "temporary_folder.h"
#include "test.h"

namespace metal_marlin {
namespace {

using files::Facts;
using files::File;
using files::Kind;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

class Files : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  void write(const std::string& name, std::string_view text, uint64_t offset = 0) const {
    File file;
    ASSERT_EQ(file.create(at(name)), 0);
    EXPECT_EQ(file.write(offset, bytes_of(text)), 0);
    EXPECT_EQ(file.sync(), 0);
  }
  std::string read(const std::string& name) const {
    File file;
    Facts facts;
    std::span<const std::byte> mapped;
    if (file.open(at(name)) != 0 || file.examine(facts) != 0) return "no such file";
    EXPECT_EQ(file.map(static_cast<size_t>(facts.bytes), mapped), 0);
    std::string text = text_of(mapped);
    files::release_pages(mapped);
    EXPECT_EQ(text_of(mapped), text) << "what was released is read again";
    files::unmap(mapped);
    return text;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    EXPECT_EQ(files::list(folder_.path(), all), 0);
    std::erase_if(all, [](const std::string& name) { return name == "." || name == ".."; });
    std::sort(all.begin(), all.end());
    return all;
  }

  TemporaryFolder folder_;
};

TEST_F(Files, AreWrittenAndReadUnderNamesOfEveryScript) {
  const std::vector<std::string> all = {"plain", "with space", "ümläut", "модель", "模型", "\xf0\x9f\x90\x9f"};
  for (const std::string& name : all) {
    write(name, "text of " + name);
    EXPECT_EQ(read(name), "text of " + name);
    Facts facts;
    EXPECT_EQ(files::examine(at(name), facts), 0);
    EXPECT_EQ(facts.kind, Kind::regular);
    EXPECT_EQ(facts.bytes, ("text of " + name).size());
  }
  std::vector<std::string> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(names(), sorted);
}

TEST_F(Files, HavePathsThatAreLong) {
  std::string path = folder_.path();
  for (int i = 0; i < 6; ++i) {
    path += "/" + std::string(60, static_cast<char>('a' + i));
    ASSERT_EQ(files::make_folder(path, true), 0) << path;
  }
  File file;
  ASSERT_EQ(file.create(path + "/file"), 0);
  EXPECT_TRUE(files::exists(path + "/file"));
  std::vector<std::string> inside;
  EXPECT_EQ(files::list(path, inside), 0);
  EXPECT_THAT(inside, ::testing::Contains("file"));
}

TEST_F(Files, HoldMoreThanFourGigabytes) {
  constexpr uint64_t kBytes = (uint64_t{5} << 30) + 7;
  {
    File file;
    ASSERT_EQ(file.create(at("large")), 0);
    ASSERT_EQ(file.reserve(kBytes), 0);
    EXPECT_EQ(file.write(kBytes - 3, bytes_of("end")), 0);
    EXPECT_EQ(file.write((uint64_t{1} << 32) - 2, bytes_of("seam")), 0);
  }
  File file;
  Facts facts;
  std::span<const std::byte> mapped;
  ASSERT_EQ(file.open(at("large")), 0);
  ASSERT_EQ(file.examine(facts), 0);
  EXPECT_EQ(facts.bytes, kBytes);
  ASSERT_EQ(file.map(static_cast<size_t>(facts.bytes), mapped), 0);
  EXPECT_EQ(text_of(mapped.last(3)), "end");
  EXPECT_EQ(text_of(mapped.subspan((uint64_t{1} << 32) - 2, 4)), "seam");
  EXPECT_EQ(mapped[0], std::byte{0});
  files::unmap(mapped);
}

TEST_F(Files, AreTheSameUnderEachOfTheirNames) {
  write("one", "text");
  write("other", "text");
  ASSERT_EQ(files::link(at("one").c_str(), at("two").c_str()), 0);
  Facts one, two, other;
  ASSERT_EQ(files::examine(at("one"), one), 0);
  ASSERT_EQ(files::examine(at("two"), two), 0);
  ASSERT_EQ(files::examine(at("other"), other), 0);
  EXPECT_EQ(one.id, two.id);
  EXPECT_NE(one.id, other.id);
  EXPECT_EQ(files::link(at("one").c_str(), at("other").c_str()), EEXIST);
}

TEST_F(Files, TakeTheNameOfAnotherInOneStep) {
  write("new", "new");
  write("old", "old");
  ASSERT_EQ(files::rename(at("new").c_str(), at("old").c_str()), 0);
  EXPECT_EQ(read("old"), "new");
  EXPECT_EQ(files::remove(at("old").c_str()), 0);
  EXPECT_EQ(names(), std::vector<std::string>());
}

TEST_F(Files, MayBeRenamedAndRemovedWhileTheyAreOpen) {
  File file;
  ASSERT_EQ(file.create(at("part")), 0);
  EXPECT_EQ(files::rename(at("part").c_str(), at("whole").c_str()), 0);
  EXPECT_EQ(file.write(0, bytes_of("text")), 0);
  EXPECT_EQ(read("whole"), "text");
  EXPECT_EQ(files::remove(at("whole").c_str()), 0);
}

TEST_F(Files, SayWhatHinders) {
  File file;
  Facts facts;
  EXPECT_EQ(file.open(at("none")), ENOENT);
  EXPECT_EQ(files::examine(at("none/below"), facts), ENOENT);
  EXPECT_FALSE(files::exists(at("none")));
  write("file", "text");
  EXPECT_EQ(file.create(at("file")), EEXIST);
  EXPECT_EQ(files::make_folder(at("file"), false), EEXIST);
  ASSERT_EQ(file.open(folder_.path()), 0);
  EXPECT_EQ(file.examine(facts), 0);
  EXPECT_TRUE(facts.is_folder());
  const Status status = file_error(at("none"), "cannot open", ENOENT);
  EXPECT_EQ(status.code(), MARLIN_E_FILE);
  EXPECT_EQ(status.native_code(), ENOENT);
  EXPECT_STREQ(status.message(), (at("none") + ": cannot open: No such file or directory").c_str());
}

TEST_F(Files, HaveFoldersThatAreRemovedWhenTheyAreEmpty) {
  ASSERT_EQ(files::make_folder(at("folder/"), true), 0);
  write("folder/file", "text");
  EXPECT_NE(files::remove_folder(at("folder")), 0);
  EXPECT_EQ(files::remove(at("folder/file").c_str()), 0);
  EXPECT_EQ(files::remove_folder(at("folder")), 0);
  EXPECT_EQ(names(), std::vector<std::string>());
}

TEST(Paths, AreTakenApartAtSeparators) {
  EXPECT_EQ(files::folder_of("a/b/c"), "a/b/");
  EXPECT_EQ(files::name_of("a/b/c"), "c");
  EXPECT_EQ(files::folder_of("c"), "");
  EXPECT_EQ(files::as_folder(""), "");
  EXPECT_EQ(files::as_folder("a"), "a/");
  EXPECT_EQ(files::as_folder("a/"), "a/");
#if defined(_WIN32)
  EXPECT_EQ(files::folder_of("C:\\a\\c"), "C:\\a\\");
  EXPECT_EQ(files::as_folder("C:\\a\\"), "C:\\a\\");
  EXPECT_NE(std::string("C:x").find_first_of(files::kNotInNames), std::string::npos);
#else
  EXPECT_EQ(files::folder_of("a/b\\c"), "a/");
#endif
}

TEST(System, RunsThreads) {
  constexpr int kThreads = 4;
  std::atomic<int> ran{0};
  system::Thread threads[kThreads];
  for (system::Thread& thread : threads)
    ASSERT_TRUE(thread.start([](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &ran));
  for (system::Thread& thread : threads) thread.join();
  EXPECT_EQ(ran, kThreads);
}

TEST(System, GivesAlignedMemory) {
  for (const size_t align : {size_t{64}, size_t{4096}, size_t{2} << 20}) {
    void* const p = system::allocate(4 * align, align);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % align, 0u);
    std::memset(p, 1, 4 * align);
    system::release(p);
  }
}

TEST(System, KnowsTheMachine) {
  EXPECT_GT(system::memory_bytes(), uint64_t{64} << 20);
  EXPECT_GT(system::process_id(), 0u);
  EXPECT_EQ(system::process_id(), system::process_id());
}

TEST(System, OpensLibraries) {
  std::string why;
#if defined(_WIN32)
  void* const library = system::open_library("kernel32.dll", why);
  ASSERT_NE(library, nullptr) << why;
  EXPECT_NE(system::find_symbol(library, "GetTickCount64"), nullptr);
  EXPECT_EQ(system::find_symbol(library, "no_such_function"), nullptr);
#endif
  EXPECT_EQ(system::open_library("no-such-library.so", why), nullptr);
  EXPECT_THAT(why, HasSubstr("no-such-library.so"));
}

}  // namespace
}  // namespace metal_marlin
