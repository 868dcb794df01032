// Planted mistakes: each changes one place of the shaders or of the packer, and the check that the tests make must notice.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "campaigns.h"
#include "planted.h"

namespace shaders {
namespace {

std::string text_of(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(std::string(MARLIN_ROOT "/") + file).rdbuf();
  return text.str();
}

/// A packer compiled from the library's source with the mistake in it, as a library of its own.
class MutatedPacker {
 public:
  explicit MutatedPacker(const Mutation& mutation)
      : folder_(testing::TempDir() + "/packer-" + mutation.name + "-" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    std::string source = text_of(mutation.file);
    // With the words of codes in it, which are mutated, too, and with the plan, whose object in the archive has a packer.
    replace(source, "#include \"backends/gpu/code_words.h\"", text_of("src/backends/gpu/code_words.h"));
    replace(source, mutation.from, mutation.to);
    std::ofstream(folder_ + "/pack.cc") << text_of("src/backends/gpu/pack_plan.cc") << source << kExport;
    const std::string root = MARLIN_ROOT, compile = std::string(MARLIN_CXX) + " -std=c++20 -fPIC -shared -w -I" + root + " -I" +
                                                    root + "/src -I" + root + "/include -o " + folder_ + "/pack.so " + folder_ +
                                                    "/pack.cc " MARLIN_ARCHIVE;
    EXPECT_EQ(std::system(compile.c_str()), 0) << compile;
    library_ = dlopen((folder_ + "/pack.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  ~MutatedPacker() {
    if (library_ != nullptr) dlclose(library_);
    std::filesystem::remove_all(folder_);
  }
  MutatedPacker(const MutatedPacker&) = delete;
  Packer packer() const {
    Packer made{nullptr, nullptr};
    using Export = void (*)(Packer&);
    if (library_ == nullptr) return made;
    if (const auto exported = reinterpret_cast<Export>(dlsym(library_, "mutated_packer")); exported != nullptr) exported(made);
    return made;
  }

 private:
  static constexpr const char* kExport =
      "struct Packer { decltype(&metal_marlin::gpu::plan_packing) plan; decltype(&metal_marlin::gpu::pack_weights) pack; };\n"
      "extern \"C\" void mutated_packer(Packer& to) {\n"
      "  to = {metal_marlin::gpu::plan_packing, metal_marlin::gpu::pack_weights};\n"
      "}\n";

  static void replace(std::string& source, const std::string& from, const std::string& to) {
    const size_t place = source.find(from);
    EXPECT_NE(place, std::string::npos) << "the packer has no " << from;
    if (place != std::string::npos) source.replace(place, from.size(), to);
  }

  const std::string folder_;
  void* library_ = nullptr;
};

class Mutations : public testing::TestWithParam<Mutation> {};

TEST_P(Mutations, AreNoticed) {
  const Mutation& mutation = GetParam();
  Problem problem = problem_of(mutation);
  if (mutation.of_packer()) {
    const MutatedPacker mutated(mutation);
    const Packer packer = mutated.packer();
    ASSERT_TRUE(packer.plan != nullptr && packer.pack != nullptr);
    ASSERT_TRUE(problem.pack(packer));
    EXPECT_FALSE(is_right(mutation, problem));
    return;
  }
  ASSERT_TRUE(problem.pack());
  Setting setting;
  setting.changes = {{mutation.file, mutation.from, mutation.to}};
  EXPECT_FALSE(is_right(mutation, problem, setting));
}

/// The same products without a mistake: whoever makes one of these mistakes breaks one of them.
TEST(MutationTable, IsOfMistakesThatAreNotThere) {
  std::set<std::string> asked;
  for (const Mutation& mutation : planted_mistakes()) {
    if (!asked.insert(mutation.question()).second) continue;
    Problem problem = problem_of(mutation);
    ASSERT_TRUE(problem.pack());
    EXPECT_TRUE(is_right(mutation, problem)) << mutation.question();
  }
}

/// In the short form, the first of each file and the first of each question: what is tested is that the checks notice.
std::vector<Mutation> mutations_to_run() {
  std::vector<Mutation> chosen;
  std::set<std::string> files;
  std::set<Mutation::What> questions;
  for (const Mutation& mutation : planted_mistakes())
    if (int{files.insert(mutation.file).second} + int{questions.insert(mutation.what).second} != 0 || whole_campaigns())
      chosen.push_back(mutation);
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Planted, Mutations, testing::ValuesIn(mutations_to_run()),
                         [](const auto& i) { return std::string(i.param.name); });

/// Each has its place in the sources, those of the long form, too. And prints them as a table, for whoever asks:
/// --gtest_filter=MutationTable.*
TEST(MutationTable, HasEachOnce) {
  std::set<std::string> names;
  for (const Mutation& m : planted_mistakes()) {
    EXPECT_TRUE(names.insert(m.name).second) << m.name;
    const std::string text =
        m.of_packer() ? text_of(m.file) + text_of("src/backends/gpu/code_words.h") : text_of(std::string("shaders/") + m.file);
    EXPECT_NE(text.find(m.from), std::string::npos) << m.name << ": " << m.file << " has no " << m.from;
    std::printf("| %s | %s | `%s` | `%s` | %s, M = %d |\n", m.name, m.file, m.from, m.to, m.kind.name, static_cast<int>(m.m));
  }
}

}  // namespace
}  // namespace shaders
