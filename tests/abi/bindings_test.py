"""The declarations that a binding has committed are those that the header gives, and a header that changes finds each of them out.

    bindings_test.py HEADER COMPILER
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import abi_table

BINDINGS = pathlib.Path(__file__).resolve().parents[2] / "bindings"
# How each binding is asked whether its declarations are those of a table: a program that gets the table's path.
CHECKS = {
    binding: [sys.executable, "-B", str(BINDINGS / binding / "generate.py"), "--check"] for binding in ("python", "rust", "swift")
}

CHANGES = {
    "a new function": (r"\Z", "MARLIN_EXPORT uint32_t marlin_new(uint32_t count);\n"),
    "a parameter's type": (r"marlin_weights_info\(const marlin_weights", "marlin_weights_info(const marlin_checkpoint"),
    "a new constant": (r"\Z", "#define MARLIN_NEW 7u\n"),
    "a constant's value": (r"#define MARLIN_F16 \(\(marlin_dtype\)2\)", "#define MARLIN_F16 ((marlin_dtype)77)"),
    "a new field": (r"\} marlin_open_desc;", "  uint64_t more;\n} marlin_open_desc;"),
    "a field's size": (r"char name\[64\];", "char name[72];"),
    "a callback": (r"void \(\*log\)\(void\* user, int32_t level", "void (*log)(void* user, uint32_t level"),
    "a new handle": (r"\Z", "typedef struct marlin_new marlin_new;\n"),
}


def check(binding, text):
    with tempfile.TemporaryDirectory() as folder:
        header, table = pathlib.Path(folder, "metal_marlin.h"), pathlib.Path(folder, "table.json")
        header.write_text(text)
        table.write_text(json.dumps(abi_table.abi_table(header, sys.argv[2])))
        return subprocess.run([*CHECKS[binding], str(table)], capture_output=True, text=True)


class Bindings(unittest.TestCase):
    def setUp(self):
        self.header = pathlib.Path(sys.argv[1]).read_text()

    def test_they_declare_what_the_header_does(self):
        for binding in CHECKS:
            with self.subTest(binding):
                result = check(binding, self.header)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_change_of_the_header_finds_them_out(self):
        for binding in CHECKS:
            for what, (pattern, replacement) in CHANGES.items():
                with self.subTest(f"{binding}: {what}"):
                    changed, count = re.subn(pattern, lambda _: replacement, self.header, count=1)
                    self.assertEqual(count, 1)
                    result = check(binding, changed)
                    self.assertNotEqual(result.returncode, 0)
                    self.assertIn("generate.py", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
