"""The declarations that a binding has committed are those that the header gives, and its own API reaches every function and field
of them (reached_fields.py says what that is). A header that changes finds each of them out, and so does an API that loses a field.

    bindings_test.py HEADER COMPILER
"""

import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import abi_table
import reached_fields

TOP = pathlib.Path(__file__).resolve().parents[2]
BINDINGS = TOP / "bindings"
# How each binding is asked whether its declarations are those of a table: a program that gets the table's path.
CHECKS = {
    binding: [sys.executable, "-B", str(BINDINGS / binding / "generate.py"), "--check"] for binding in ("python", "rust", "swift")
}

CHANGES = {
    "a new function": (r"\Z", "MARLIN_EXPORT uint32_t marlin_new(uint32_t count);\n"),
    "a parameter's type": (r"marlin_weights_info\(const marlin_weights", "marlin_weights_info(const marlin_checkpoint"),
    "a new constant": (r"\Z", "#define MARLIN_NEW ((marlin_dtype)77)\n"),
    "a constant's value": (r"#define MARLIN_F16 \(\(marlin_dtype\)2\)", "#define MARLIN_F16 ((marlin_dtype)77)"),
    "a new field": (r"\} marlin_open_desc;", "  uint64_t more;\n} marlin_open_desc;"),
    "a field's size": (r"char name\[64\];", "char name[72];"),
    "a callback": (r"void \(\*log\)\(void\* user, marlin_log_level level", "void (*log)(void* user, uint32_t level"),
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
BY_THE_LAYER = {"struct_size": "the layer fills it in", "reserved": "must be 0"}
IN_NO_LANGUAGE = {
    "marlin_device_info.flags": "none is defined",
    "marlin_error.status": "a function returns it, too",
    "marlin_save_desc.refused": "a load that is refused is an error, whose text names its layer",
    "marlin_save_desc.user": "there is no callback",
}
HOST = "the library's own memory and threads: Python's would take the interpreter's lock"
NOT_REACHED = {
    "c++": {name: "C's function is as good" for name in ("marlin_version", "marlin_status_name", "marlin_get_api")},
    "python": {
        **IN_NO_LANGUAGE,
        **{f"marlin_context_desc.{name}": HOST for name in ("alloc", "release", "parallel_for")},
        "marlin_context_desc.native_device": "libraries of Python use the primary context, which an index selects",
        **{f"marlin_{name}_desc.user": "callbacks are closures" for name in ("context", "load", "convert")},
        **{f"marlin_stream_desc.{name}_fence": "no host in Python has command buffers" for name in ("wait", "update")},
        "marlin_value.key": "its address is read, because no NUL ends it",
        "marlin_status_name": "the members of Status have names",
    },
    "rust": {**IN_NO_LANGUAGE, "marlin_status_name": "Status displays itself"},
    "swift": {**IN_NO_LANGUAGE, "marlin_status_name": "Status describes itself"},
}


# Statements of each API without which people do not reach a field: the file, the words, what is lost.
DROPPED = {
    "c++": [
        ("metal_marlin.hpp", r".*const marlin_open_desc& desc.*", "marlin_open_desc.layout"),
        ("metal_marlin.hpp", r".*const marlin_convert_desc& desc.*", "marlin_convert_outcome.kept_norm"),
    ],
    "python": [
        ("products.py", r"self\.desc\.expert_ids = .*", "marlin_gemm_desc.expert_ids"),
        ("products.py", r"self\.desc\.expert_scales = .*", "marlin_gemm_desc.expert_scales"),
        ("weights.py", r"expert_count=.*", "marlin_load_desc.expert_count"),
        ("weights.py", r"sparse_meta=.*", "marlin_pack_desc.sparse_meta"),
        ("context.py", r"\S+ info\.threads.*", "marlin_device_info.threads"),
        ("checkpoint.py", r"kept_share=raw.*", "marlin_layer_info.kept_share"),
        ("stream.py", r"desc\.kind, desc\.native = .*", "marlin_stream_desc.kind"),
    ],
    "rust": [
        ("gemm.rs", r"self\.desc\.expert_ids = .*", "marlin_gemm_desc.expert_ids"),
        ("gemm.rs", r"self\.desc\.expert_scales = .*", "marlin_gemm_desc.expert_scales"),
        ("checkpoint.rs", r"self\.desc\.group_size = .*", "marlin_load_desc.group_size"),
        ("library.rs", r"threads: raw.*", "marlin_device_info.threads"),
        ("stream.rs", r"desc\.scratch = .*", "marlin_stream_desc.scratch"),
        ("stream.rs", r"desc\.wait_fence = .*", "marlin_stream_desc.wait_fence"),
    ],
    "swift": [
        ("Product.swift", r"desc\.expert_ids = .*", "marlin_gemm_desc.expert_ids"),
        ("Product.swift", r"desc\.expert_scales = .*", "marlin_gemm_desc.expert_scales"),
        ("PackedContainer.swift", r"desc\.expert_count = .*", "marlin_load_desc.expert_count"),
        ("Context.swift", r"threads = Int\(info.*", "marlin_device_info.threads"),
        ("Conversion.swift", r"desc\.shard_bytes = .*", "marlin_convert_desc.shard_bytes"),
    ],
}


def files(binding):
    """The text of the API's files by their names."""
    return {path.name: path.read_text() for path in TOP.glob(APIS[binding][0]) if path.name not in GENERATED}


def sources(binding):
    return [reached_fields.without_comments(binding, text) for text in files(binding).values()]


def called(binding):
    """The functions that an API calls."""
    found = {name for text in sources(binding) for match in re.finditer(APIS[binding][1], text) for name in match.groups() if name}
    if binding == "python":  # a handle destroys itself by the name of its class
        found |= {f"{name}_destroy" for name in found}
    return {"marlin_" + name for name in found}


def unreached_fields(table, texts, binding):
    """Of an API with these texts. marlin_api is the functions once more."""
    structs = [struct for struct in table["structs"] if struct["name"] != "marlin_api"]
    names = {f"{struct['name']}.{field['name']}" for struct in structs for field in struct["fields"] if field["name"] not in BY_THE_LAYER}
    return names - reached_fields.reached(binding, texts, structs)


def not_reached(binding, table):
    yield from {function["name"] for function in table["functions"]} - called(binding)
    yield from unreached_fields(table, files(binding).values(), binding)


@functools.cache  # a compiler makes it
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
                if binding == "swift" and what != "a new constant":  # Swift reads all else in the header itself
                    continue
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
                    # In C++ whoever has a struct has its fields.
                    expected = {name} if binding != "c++" or what == "a new function" else set()
                    self.assertEqual(set(not_reached(binding, table)) - set(reasons), expected)

    def test_a_field_that_an_api_drops_is_found(self):
        table = table_of(self.header)
        for binding, statements in DROPPED.items():
            mark = "#" if binding == "python" else "//"
            for file, words, name in statements:
                with self.subTest(f"{binding}: {name}"):
                    texts = files(binding)
                    self.assertNotIn(name, unreached_fields(table, texts.values(), binding))
                    # The statement becomes a comment: the words stay, and so do those of other structs.
                    texts[file], count = re.subn(words, lambda match: f"{mark} {match.group()}", texts[file])
                    self.assertEqual(count, 1)
                    self.assertIn(name, unreached_fields(table, texts.values(), binding))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
