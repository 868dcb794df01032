#!/usr/bin/env python3
"""Applies each rule to this project, and to a small tree that breaks it: a rule that cannot fail checks nothing."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import structure

TOP = pathlib.Path(__file__).resolve().parents[2]


class ThisProject(unittest.TestCase):
    def test_keeps_the_rules(self):
        for rule in structure.RULES:
            with self.subTest(rule.__name__):
                self.assertEqual(list(rule(TOP)), [], rule.__doc__)

    def test_has_the_drawings_and_computed_tables_that_its_scripts_write(self):
        for script in ("diagrams.py", "metal.py"):
            subprocess.run([sys.executable, "-B", TOP / "docs" / script, "--check"], check=True)


def function(head, lines):
    return head + " {\n" + "  work();\n" * (lines - 2) + "}\n"


class Rules(unittest.TestCase):
    maxDiff = None

    def expect(self, rule, texts, breaches):
        """The rule finds breaches that begin so in a tree of these texts, and no others."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in texts.items():
                pathlib.Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                pathlib.Path(folder, path).write_text(text)
            found = sorted(rule(pathlib.Path(folder)))
        begins = [next((each for each in breaches if line.startswith(each)), "") for line in found]
        self.assertEqual(begins, sorted(breaches), found)

    def test_an_arrow_that_turns_back(self):
        self.expect(structure.include_arrows, {
            "src/core/plan.h": '#include "backends/cpu/gemm.h"\n',
            "src/backends/cpu/gemm.h": '#include "core/plan.h"\n',
            "src/backends/cpu/probe.cc": '#include "backends/gpu/probe.h"\n',
            "src/backends/cpu/arm64/tile.h": '#include "backends/cpu/gemm.h"\n',
            "src/backends/gpu/probe.h": '#include "backends/cpu/gemm.h"\n#include "shaders/metal/tile.h"\n',
            "src/backends/metal/host.mm": '#import "backends/gpu/probe.h"\n',
            "shaders/metal/tile.h": '#include "shaders/common/layout.h"\n',
            "shaders/common/layout.h": '#include "shaders/metal/tile.h"\n',
            "src/checkpoints/names.h": '#include "layouts/rows.h"\n',
            "src/layouts/rows.h": '#include "checkpoints/names.h"\n',
            "src/sources/shard.h": '#include "layouts/rows.h"\n',
            "src/api/gemm.cc": "#include <backends/cpu/gemm.h>\n",
            "src/api/backends.cc": '#include "backends/cpu/gemm.h"\n',
            "tools/main.cc": '#include "core/plan.h"\n',
            "tests/reference/oracle.cc": '#include "core/plan.h"\n',
            "tests/metal_on_cpu/host.mm": '#import "core/plan.h"\n',
            "src/base/a.h": '#include "nowhere.h"\n',
        }, [
            "src/backends/cpu/probe.cc:1: backends/cpu may not include backends/gpu",
            "src/backends/gpu/probe.h:1: backends/gpu may not include backends/cpu",
            "src/backends/gpu/probe.h:2: backends/gpu may not include shaders/metal",
            "shaders/common/layout.h:1: shaders/common may not include shaders/metal",
            "tests/metal_on_cpu/host.mm:1: tests/metal_on_cpu may not include core",
            "src/layouts/rows.h:1: layouts may not include checkpoints",
            "src/sources/shard.h:1: sources may not include layouts",
            "src/core/plan.h:1: core may not include backends/cpu",
            "src/api/gemm.cc:1: api may not include backends/cpu",
            "tools/main.cc:1: tools may not include core",
            "tests/reference/oracle.cc:1: tests/reference may not include core",
            "src/base/a.h:1: includes nowhere.h",
        ])

    def test_a_long_file(self):
        lines = "\n" * 501
        self.expect(structure.file_lengths, {
            "src/core/long.cc": lines,
            "src/core/excused.cc": "// Longer than 500 lines: only kernels may.\n" + lines,
            "src/backends/cpu/kernel.cc": "// Longer than 500 lines: one kernel, unrolled.\n" + lines,
            "bindings/rust/src/bindings.rs": "// Written by generate.py\n" + lines,
            "bindings/python/abi.py": "# Written by generate.py\n" + lines,
            "bindings/rust/src/lib.rs": lines,
            "dev": lines,
        }, ["bindings/rust/src/lib.rs:501", "src/core/long.cc:501: has 501 lines", "src/core/excused.cc:501", "dev:501"])

    def test_a_heavy_folder_and_a_light_one(self):
        budgets = "# said\nlines src 99\nlines docs 104\nlines tools 103\nbytes lib 1\n"
        self.expect(structure.weights, {"src/a.cc": "\n" * 100, "docs/a.md": "\n" * 100, "tools/a.cc": "\n" * 100,
                                        "tests/structure/budgets.txt": budgets},
                    ["src: has 100 lines, its budget is 99: delete as many", "docs: has 100 lines, its budget is 104: lower it"])

    def test_a_long_function(self):
        self.expect(structure.function_lengths, {
            "src/core/short.cc": function("void f()", 60) + function("void g()", 60),
            "src/core/long.cc": function("void f()", 60) + "\n" + function("TEST(A, B)", 61),
            "src/core/member.cc": "struct S {\n  void f(int a,\n         int b) const {\n" + "    work();\n" * 58 + "  }\n};\n",
            "src/core/class.h": "class A : public B(1) {\n",
            "src/backends/cpu/x86/kernel.cc": function("void f()", 90),
            "tests/gpu/dispatch_test.cc": function("void IsDispatchedByItsContract(int x)", 69),
            "tests/unit/checkpoint_mixed_test.cc": function("TEST_P(A, WhatIsWrongWithALayerNamesItsTensor)", 50),
        }, ["src/core/long.cc:62: this function has 61 lines", "src/core/member.cc:2: this function has 61 lines",
            "tests/gpu/dispatch_test.cc:1: this function has grown from 68 lines to 69",
            "tests/unit/checkpoint_mixed_test.cc:1: this function is listed with 111 lines and has 50"])

    def test_a_wide_line(self):
        wide = "x" * 101 + "\n"
        self.expect(structure.line_widths, {"src/core/wide.cc": "x" * 100 + "\n" + wide, "shaders/metal/wide.metal": wide,
                                            "src/core/utf8.cc": "ä" * 100 + "\n", "tests/unit/wide_test.cc": wide},
                    ["src/core/wide.cc:2: has 101 columns", "shaders/metal/wide.metal:1"])

    def test_nested_conditionals(self):
        self.expect(structure.nested_conditionals, {
            "src/core/a.cc": "int f(int a) { return g(a ? 1 : 2, a ? 3 : 4); }  // a ? b : c ? d : e\n",
            "src/core/b.cc": "int f(int a) {\n  return a > 0   ? 1\n         : a < 0 ? -1 : '?';\n}\n",
            "tests/unit/c.cc": "int f(int a) { return a > 0 ? 1 : a < 0 ? -1 : 0; }\n",
        }, ["src/core/b.cc:3: has a conditional inside"])

    def test_unwanted_words(self):
        # In halves, so that this file does not break the rule.
        self.expect(structure.words, {
            "src/core/a.cc": "// TO" "DO: later\n",
            "docs/a.md": "see /ho" "me/me/notes\n",
            "bindings/rust/generate.py": "# HA" "CK\n",
            "README.md": "https://example.org/home/page is fine, and so is HACKING\n",
        }, ["bindings/rust/generate.py:1", "src/core/a.cc:1", "docs/a.md:1"])

    def test_renamed_words(self):
        self.expect(structure.renamed_words, {
            "src/core/a.cc": "int w4sym;\nstruct Place {};\nstruct Part<4> {};\n",
            "tests/unit/b.cc": "  struct Place {\nvoid poison();\n// a wild-pointer and a wild pointer\n",
            "tests/gpu/c.cc": "<2 x i32> poison, <2 x i32>\ntemplate <class Place>\n",
            "docs/d.md": "It recognises things.\nA stall_cycle, a tall order.\n",
        }, ["docs/d.md:1: says ecognise", "src/core/a.cc:1: says w4sym",
            "tests/unit/b.cc:1: names a second type Place, after src/core/a.cc:2", "tests/unit/b.cc:2: says oison"])

    def test_bad_manners(self):
        self.expect(structure.library_manners, {
            "src/core/a.cc": 'void f() { std::printf("x"); }\n// printf( in a comment\nvoid g() { snprintf(p, 1, ""); }\n',
            "src/core/b.cc": "static_assert(true);\nvoid h() { abort (); }\n",
            "src/core/CMakeLists.txt": "set_source_files_properties(a.cc PROPERTIES COMPILE_FLAGS -mavx2)\n",
            "CMakeLists.txt": "add_subdirectory(tests)\nadd_subdirectory(tests/metal_on_cpu)\n",
            "tools/main.cc": 'int main() { printf("x"); }\n',
        }, ["CMakeLists.txt:2: needs the test-bed", "src/core/a.cc:1: prints", "src/core/b.cc:2: prints", "src/core/CMakeLists.txt:1: an"])

    def test_a_forgotten_source(self):
        self.expect(structure.sources_listed, {"src/core/CMakeLists.txt": "target_sources(x PRIVATE known.cc)\n", "src/core/known.cc": "",
                                               "src/core/forgotten.cc": "", "src/core/forgotten_host.mm": "", "src/core/bare.h": "int x;\n"},
                    ["src/core/forgotten_host.mm", "src/core/forgotten.cc", "src/core/bare.h"])

    def test_an_undescribed_checkpoint(self):
        self.expect(structure.data_described, {"tests/data/index.json": '{"one": {}}\n', "tests/data/one/decoded.safetensors": "",
                                               "tests/data/two/model.gguf": ""},
                    ["tests/data/two: not in", "tests/data/two: has no"])


if __name__ == "__main__":
    unittest.main()
