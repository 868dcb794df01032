// Applies each rule to this project, and to a small tree that breaks it: a rule that cannot fail checks nothing.
#include "structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

namespace structure {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kProject = MARLIN_SOURCE_ROOT;

// A source tree that lives as long as its test.
class Tree {
 public:
  explicit Tree(const std::map<std::string, std::string>& texts) {
    root_ = fs::path(::testing::TempDir()) /
            ("structure-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    for (const auto& [path, text] : texts) {
      fs::create_directories((root_ / path).parent_path());
      std::ofstream(root_ / path) << text;
    }
  }
  ~Tree() { fs::remove_all(root_); }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

TEST(Structure, IncludesFollowTheArrows) { EXPECT_THAT(include_arrows(kProject), IsEmpty()); }
TEST(Structure, FilesAreShort) { EXPECT_THAT(file_lengths(kProject), IsEmpty()); }
TEST(Structure, FunctionsAreShort) { EXPECT_THAT(function_lengths(kProject), IsEmpty()); }
TEST(Structure, LinesAreNarrow) { EXPECT_THAT(line_widths(kProject), IsEmpty()); }
TEST(Structure, ConditionalsAreNotNested) { EXPECT_THAT(nested_conditionals(kProject), IsEmpty()); }
TEST(Structure, NothingIsLeftUndone) { EXPECT_THAT(words(kProject), IsEmpty()); }
TEST(Structure, RenamedWordsAreGone) { EXPECT_THAT(renamed_words(kProject), IsEmpty()); }
TEST(Structure, TheLibraryNeitherPrintsNorExits) { EXPECT_THAT(library_manners(kProject), IsEmpty()); }
TEST(Structure, SourcesAreListed) { EXPECT_THAT(sources_listed(kProject), IsEmpty()); }
TEST(Structure, FoldersKeepTheirBudgets) { EXPECT_THAT(weights(kProject), IsEmpty()); }
TEST(Structure, CheckpointsAreDescribed) { EXPECT_THAT(data_described(kProject), IsEmpty()); }

TEST(StructureRules, FindAnArrowThatTurnsBack) {
  const Tree tree({{"src/core/plan.h", "#include \"backends/cpu/gemm.h\"\n"},
                   {"src/backends/cpu/gemm.h", "#include \"core/plan.h\"\n"},
                   {"src/backends/cpu/probe.cc", "#include \"backends/gpu/probe.h\"\n"},
                   {"src/backends/cpu/arm64/tile.h", "#include \"backends/cpu/gemm.h\"\n"},
                   {"src/backends/gpu/probe.h", "#include \"backends/cpu/gemm.h\"\n#include \"shaders/metal/tile.h\"\n"},
                   {"src/backends/metal/host.mm", "#import \"backends/gpu/probe.h\"\n"},
                   {"shaders/metal/tile.h", "#include \"shaders/common/layout.h\"\n"},
                   {"shaders/common/layout.h", "#include \"shaders/metal/tile.h\"\n"},
                   {"src/checkpoints/names.h", "#include \"layouts/rows.h\"\n"},
                   {"src/layouts/rows.h", "#include \"checkpoints/names.h\"\n"},
                   {"src/sources/shard.h", "#include \"layouts/rows.h\"\n"},
                   {"src/api/gemm.cc", "#include <backends/cpu/gemm.h>\n"},
                   {"src/api/backends.cc", "#include \"backends/cpu/gemm.h\"\n"},
                   {"tools/main.cc", "#include \"core/plan.h\"\n"},
                   {"tests/reference/oracle.cc", "#include \"core/plan.h\"\n"},
                   {"tests/metal_on_cpu/host.mm", "#import \"core/plan.h\"\n"},
                   {"src/base/a.h", "#include \"nowhere.h\"\n"}});
  const Breaches found = include_arrows(tree.root());
  EXPECT_EQ(found.size(), 12u);
  EXPECT_THAT(found, Contains(HasSubstr("src/backends/cpu/probe.cc:1: backends/cpu may not include backends/gpu")));
  EXPECT_THAT(found, Contains(HasSubstr("src/backends/gpu/probe.h:1: backends/gpu may not include backends/cpu")));
  EXPECT_THAT(found, Contains(HasSubstr("src/backends/gpu/probe.h:2: backends/gpu may not include shaders/metal")));
  EXPECT_THAT(found, Contains(HasSubstr("shaders/common/layout.h:1: shaders/common may not include shaders/metal")));
  EXPECT_THAT(found, Contains(HasSubstr("tests/metal_on_cpu/host.mm:1: tests/metal_on_cpu may not include core")));
  EXPECT_THAT(found, Contains(HasSubstr("src/layouts/rows.h:1: layouts may not include checkpoints")));
  EXPECT_THAT(found, Contains(HasSubstr("src/sources/shard.h:1: sources may not include layouts")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/plan.h:1: core may not include backends/cpu")));
  EXPECT_THAT(found, Contains(HasSubstr("src/api/gemm.cc:1: api may not include backends/cpu")));
  EXPECT_THAT(found, Contains(HasSubstr("tools/main.cc:1: tools may not include core")));
  EXPECT_THAT(found, Contains(HasSubstr("tests/reference/oracle.cc:1: tests/reference may not include core")));
  EXPECT_THAT(found, Contains(HasSubstr("src/base/a.h:1: includes nowhere.h")));
}

TEST(StructureRules, FindALongFile) {
  std::string lines;
  for (int i = 0; i < 501; ++i) lines += "\n";
  const Tree tree({{"src/core/long.cc", lines},
                   {"src/core/excused.cc", "// Longer than 500 lines: only kernels may.\n" + lines},
                   {"src/backends/cpu/kernel.cc", "// Longer than 500 lines: one kernel, unrolled.\n" + lines},
                   {"bindings/rust/src/bindings.rs", "// Written by generate.py\n" + lines},
                   {"bindings/python/abi.py", "# Written by generate.py\n" + lines},
                   {"bindings/rust/src/lib.rs", lines},
                   {"dev", lines}});
  const Breaches found = file_lengths(tree.root());
  EXPECT_EQ(found.size(), 4u);
  EXPECT_THAT(found, Contains(HasSubstr("bindings/rust/src/lib.rs")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/long.cc:501: has 501 lines")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/excused.cc")));
  EXPECT_THAT(found, Contains(HasSubstr("dev:501")));
}

TEST(StructureRules, FindAHeavyFolderAndALightOne) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "\n";
  const Tree tree({{"src/a.cc", lines},
                   {"docs/a.md", lines},
                   {"tools/a.cc", lines},
                   {"tests/structure/budgets.txt", "# said\nlines src 99\nlines docs 104\nlines tools 103\nbytes lib 1\n"}});
  const Breaches found = weights(tree.root());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0], HasSubstr("src: has 100 lines, its budget is 99: delete as many"));
  EXPECT_THAT(found[1], HasSubstr("docs: has 100 lines, its budget is 104: lower it"));
}

TEST(StructureRules, FindALongFunction) {
  const auto function = [](const std::string& head, int lines) {
    std::string text = head + " {\n";
    for (int i = 2; i < lines; ++i) text += "  work();\n";
    return text + "}\n";
  };
  const std::string member = "struct S {\n  void f(int a,\n         int b) const {\n";
  std::string body;
  for (int i = 0; i < 58; ++i) body += "    work();\n";
  const Tree tree({{"src/core/short.cc", function("void f()", 60) + function("void g()", 60)},
                   {"src/core/long.cc", function("void f()", 60) + "\n" + function("TEST(A, B)", 61)},
                   {"src/core/member.cc", member + body + "  }\n};\n"},
                   {"src/core/class.h", "class A : public B(1) {\n"},
                   {"src/backends/cpu/x86/kernel.cc", function("void f()", 90)},
                   {"tests/abi/exports_signatures.h", function("Arg meaning(int x)", 68)},
                   {"tests/gpu/dispatch_test.cc", function("TEST_P(A, IsDispatchedByItsContract)", 50)}});
  const Breaches found = function_lengths(tree.root());
  EXPECT_EQ(found.size(), 4u);
  EXPECT_THAT(found, Contains(HasSubstr("src/core/long.cc:62: this function has 61 lines")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/member.cc:2: this function has 61 lines")));
  EXPECT_THAT(found, Contains(HasSubstr("tests/abi/exports_signatures.h:1: this function has grown from 67 lines to 68")));
  EXPECT_THAT(found, Contains(HasSubstr("tests/gpu/dispatch_test.cc:1: this function is listed with 70 lines and has 50")));
}

TEST(StructureRules, FindAWideLine) {
  const Tree tree({{"src/core/wide.cc", std::string(100, 'x') + "\n" + std::string(101, 'x') + "\n"},
                   {"shaders/metal/wide.metal", std::string(101, 'x') + "\n"},
                   {"tests/unit/wide_test.cc", std::string(101, 'x') + "\n"}});
  const Breaches found = line_widths(tree.root());
  EXPECT_EQ(found.size(), 2u);
  EXPECT_THAT(found, Contains(HasSubstr("src/core/wide.cc:2: has 101 columns")));
  EXPECT_THAT(found, Contains(HasSubstr("shaders/metal/wide.metal:1")));
}

TEST(StructureRules, FindNestedConditionals) {
  const Tree tree({{"src/core/a.cc", "int f(int a) { return g(a ? 1 : 2, a ? 3 : 4); }  // a ? b : c ? d : e\n"},
                   {"src/core/b.cc", "int f(int a) {\n  return a > 0   ? 1\n         : a < 0 ? -1 : '?';\n}\n"},
                   {"tests/unit/c.cc", "int f(int a) { return a > 0 ? 1 : a < 0 ? -1 : 0; }\n"}});
  const Breaches found = nested_conditionals(tree.root());
  EXPECT_EQ(found.size(), 1u);
  EXPECT_THAT(found, Contains(HasSubstr("src/core/b.cc:3: has a conditional inside")));
}

TEST(StructureRules, FindUnwantedWords) {
  const Tree tree({{"src/core/a.cc",
                    "// TO"
                    "DO: later\n"},
                   {"docs/a.md",
                    "see /ho"
                    "me/me/notes\n"},
                   {"bindings/rust/generate.py",
                    "# HA"
                    "CK\n"},
                   {"README.md", "https://example.org/home/page is fine, and so is HACKING\n"}});
  const Breaches found = words(tree.root());
  EXPECT_EQ(found.size(), 3u);
  EXPECT_THAT(found, Contains(HasSubstr("bindings/rust/generate.py:1")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/a.cc:1")));
  EXPECT_THAT(found, Contains(HasSubstr("docs/a.md:1")));
}

TEST(StructureRules, FindRenamedWords) {
  const Tree tree({{"src/core/a.cc",
                    "int w4sy"
                    "m;\nstruct Place {};\nstruct Part<4> {};\n"},
                   {"tests/unit/b.cc",
                    "  struct Place {\nvoid poiso"
                    "n();\n// a wild-pointer and a wild pointer\n"},
                   {"tests/gpu/c.cc",
                    "<2 x i32> poiso"
                    "n, <2 x i32>\ntemplate <class Place>\n"},
                   {"docs/d.md",
                    "It recogni"
                    "ses neighbo"
                    "rs.\nA stall_cycle, a tall order.\n"}});
  const Breaches found = renamed_words(tree.root());
  EXPECT_EQ(found.size(), 4u);
  EXPECT_THAT(found, Contains(HasSubstr("docs/d.md:1: says e")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/a.cc:1: says w4sy")));
  EXPECT_THAT(found, Contains(HasSubstr("tests/unit/b.cc:1: names a second type Place, after src/core/a.cc:2")));
  EXPECT_THAT(found, Contains(HasSubstr("tests/unit/b.cc:2: says oiso")));
}

TEST(StructureRules, FindBadManners) {
  const Tree tree(
      {{"src/core/a.cc", "void f() { std::printf(\"x\"); }\n// printf( in a comment\nvoid g() { snprintf(p, 1, \"\"); }\n"},
       {"src/core/b.cc", "static_assert(true);\nvoid h() { abort (); }\n"},
       {"src/core/CMakeLists.txt", "set_source_files_properties(a.cc PROPERTIES COMPILE_FLAGS -mavx2)\n"},
       {"CMakeLists.txt", "add_subdirectory(tests)\nadd_subdirectory(tests/metal_on_cpu)\n"},
       {"tools/main.cc", "int main() { printf(\"x\"); }\n"}});
  const Breaches found = library_manners(tree.root());
  EXPECT_EQ(found.size(), 4u);
  EXPECT_THAT(found, Contains(HasSubstr("CMakeLists.txt:2: needs the test-bed")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/a.cc:1")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/b.cc:2")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/CMakeLists.txt:1")));
}

TEST(StructureRules, FindAForgottenSource) {
  const Tree tree({{"src/core/CMakeLists.txt", "target_sources(x PRIVATE known.cc)\n"},
                   {"src/core/known.cc", ""},
                   {"src/core/forgotten.cc", ""},
                   {"src/core/forgotten_host.mm", ""},
                   {"src/core/bare.h", "int x;\n"}});
  const Breaches found = sources_listed(tree.root());
  EXPECT_EQ(found.size(), 3u);
  EXPECT_THAT(found, Contains(HasSubstr("src/core/forgotten_host.mm")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/forgotten.cc")));
  EXPECT_THAT(found, Contains(HasSubstr("src/core/bare.h")));
}

TEST(StructureRules, FindAnUndescribedCheckpoint) {
  const Tree tree({{"tests/data/index.json", "{\"one\": {}}\n"},
                   {"tests/data/one/decoded.safetensors", ""},
                   {"tests/data/two/model.gguf", ""}});
  EXPECT_EQ(data_described(tree.root()).size(), 2u);
}

}  // namespace
}  // namespace structure
