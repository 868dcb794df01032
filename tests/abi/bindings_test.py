"""The declarations that a binding has committed are those that the header gives, and its own API reaches every function and field
of them. A header that changes finds each of them out.

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

TOP = pathlib.Path(__file__).resolve().parents[2]
BINDINGS = TOP / "bindings"
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
# What people call: the sources of each language but those that generate.py writes, and how they call what C calls marlin_NAME.
APIS = {
    "c++": ("include/metal_marlin/*.hpp", r"\bmarlin_(\w+)"),
    "python": ("bindings/python/metal_marlin/*.py", r'"marlin_(\w+)"|_abi\.marlin_(\w+)\(\)'),
    "rust": ("bindings/rust/metal-marlin/src/*.rs", r"\bapi(?:\(\))?\.(\w+)|\bsys::marlin_(\w+)\("),
    "swift": ("bindings/swift/Sources/MetalMarlin/*.swift", r"(?:\bpointee|\(\\|: \\)\.(\w+)|\bmarlin_(\w+)\("),
}
GENERATED = ("_abi.py", "Constants.swift")
# What people do not reach in a language, and why not.
IN_NO_LANGUAGE = {
    "marlin_device_info.flags": "none is defined",
    "marlin_gemm_desc.expert_ids": "must be absent in this version",
    "marlin_gemm_desc.expert_scales": "must be absent in this version",
    "marlin_load_desc.expert_count": "there are no experts in this version",
}
HOST = "the library's own memory and threads: Python's would take the interpreter's lock"
NATIVE = "Python has no pointers to devices and their streams"
NOT_REACHED = {
    "c++": {name: "C's function is as good" for name in ("marlin_version", "marlin_status_name", "marlin_get_api")},
    "python": {
        **IN_NO_LANGUAGE,
        **{f"marlin_context_desc.{name}": HOST for name in ("alloc", "release", "parallel_for")},
        **{f"marlin_{name}": NATIVE for name in ("context_desc.native_device", "stream_desc.kind", "stream_desc.native")},
        **{f"marlin_{name}_desc.user": "callbacks are closures" for name in ("context", "load", "convert")},
        "marlin_status_name": "the members of Status have names",
    },
    "rust": {**IN_NO_LANGUAGE, "marlin_status_name": "Status displays itself"},
    "swift": {**IN_NO_LANGUAGE, "marlin_status_name": "Status describes itself"},
}


def sources(binding):
    """The text of the API's files, without comments."""
    pattern, mark = APIS[binding][0], "#" if binding == "python" else "//"
    return [re.sub(f"{mark}.*", "", path.read_text()) for path in TOP.glob(pattern) if path.name not in GENERATED]


def called(binding):
    """The functions that an API calls."""
    found = {name for text in sources(binding) for match in re.finditer(APIS[binding][1], text) for name in match.groups() if name}
    if binding == "python":  # a handle destroys itself by the name of its class
        found |= {f"{name}_destroy" for name in found}
    return {"marlin_" + name.replace("get_version", "version") for name in found}


def named(binding, struct):
    """The fields that an API may set or read: the words of the files that name the struct."""
    texts = [text for text in sources(binding) if re.search(rf"\b{struct['name']}\b", text)]
    return {word.rstrip("_") for text in texts for word in re.findall(r"\w+", text)} | {"struct_size", "reserved"}


def not_reached(binding, table):
    yield from {function["name"] for function in table["functions"]} - called(binding)
    for struct in table["structs"]:
        if binding != "c++" and struct["name"] != "marlin_api":  # C++ has the structs of C; the table is functions once more
            names = {field["name"] for field in struct["fields"]} - named(binding, struct)
            yield from (f"{struct['name']}.{name}" for name in names)


def table_of(text):
    with tempfile.TemporaryDirectory() as folder:
        header = pathlib.Path(folder, "metal_marlin.h")
        header.write_text(text)
        return abi_table.abi_table(header, sys.argv[2])


def check(binding, text):
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder, "table.json")
        table.write_text(json.dumps(table_of(text)))
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

    def test_their_apis_reach_all_of_it(self):
        for binding, reasons in NOT_REACHED.items():
            with self.subTest(binding):
                self.assertEqual(sorted(not_reached(binding, table_of(self.header))), sorted(reasons))

    def test_what_is_new_in_the_header_finds_their_apis_out(self):
        for what, name in (("a new function", "marlin_new"), ("a new field", "marlin_open_desc.more")):
            pattern, replacement = CHANGES[what]
            table = table_of(re.sub(pattern, lambda _: replacement, self.header, count=1))
            for binding, reasons in NOT_REACHED.items():
                with self.subTest(f"{binding}: {what}"):
                    expected = {name} if binding != "c++" or what == "a new function" else set()
                    self.assertEqual(set(not_reached(binding, table)) - set(reasons), expected)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
