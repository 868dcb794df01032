"""The reader of the header: what it makes of each kind of declaration, and that it refuses what it does not know.

    abi_table_test.py HEADER COMPILER
"""

import pathlib
import sys
import tempfile
import unittest

import abi_table

HEADER = """/* The rules. */
#ifndef SOME_H_
#define SOME_H_
#include <stdint.h>
#define MARLIN_EXPORT
typedef int32_t marlin_kind; /* of things */
#define MARLIN_KIND_A ((marlin_kind) - 3) /* the first */
/* flags */
#define MARLIN_FLAG 4u
typedef struct marlin_thing marlin_thing; /* opaque */
typedef struct marlin_desc { /* with
                                two lines */
  uint32_t struct_size;
  marlin_kind kind, other; /* both */
  char name[12];
  void (*call)(void* user, const marlin_thing* const* things);
} marlin_desc;
/* --- a section --- */
/* Makes one. */
MARLIN_EXPORT marlin_kind marlin_make(const marlin_desc* desc, marlin_thing** out);
MARLIN_EXPORT uint32_t marlin_version(void);
#endif
"""


def table_of(text):
    with tempfile.TemporaryDirectory() as folder:
        header = pathlib.Path(folder, "some.h")
        header.write_text(text)
        return abi_table.abi_table(header, sys.argv[2])


class Reader(unittest.TestCase):
    def test_a_header(self):
        table = table_of(HEADER)
        self.assertEqual(table["doc"], "The rules.")
        self.assertEqual(table["types"], [{"name": "marlin_kind", "doc": "of things"}])
        self.assertEqual(table["handles"], [{"name": "marlin_thing", "doc": "opaque"}])
        self.assertEqual(
            table["constants"],
            [
                {"name": "MARLIN_KIND_A", "type": "marlin_kind", "doc": "the first", "value": -3},
                {"name": "MARLIN_FLAG", "type": "uint32_t", "doc": "flags", "value": 4},
            ],
        )
        (struct,) = table["structs"]
        self.assertEqual((struct["doc"], struct["size"], struct["align"]), ("with two lines", 32, 8))
        fields = [(f["name"], f["offset"], f["size"], f["doc"]) for f in struct["fields"]]
        self.assertEqual(
            fields,
            [("struct_size", 0, 4, ""), ("kind", 4, 4, "both"), ("other", 8, 4, "both"), ("name", 12, 12, ""), ("call", 24, 8, "")],
        )
        call = struct["fields"][4]["type"]["function"]
        self.assertEqual(call["params"][1]["type"], {"base": "marlin_thing", "pointers": ["const", "const"]})
        make, version = table["functions"]
        self.assertEqual((make["name"], make["doc"], version["params"]), ("marlin_make", "Makes one.", []))
        self.assertEqual(make["params"][1]["type"], {"base": "marlin_thing", "pointers": ["mut", "mut"]})

    def test_what_is_not_known_is_refused(self):
        for unknown in (
            "typedef int64_t marlin_other;",
            "typedef enum { A } marlin_other;",
            "typedef union marlin_other marlin_other;",
            "MARLIN_EXPORT extern int32_t marlin_variable;",
            "MARLIN_EXPORT int marlin_function(void);",
            "MARLIN_EXPORT void marlin_function(const marlin_kind kind);",
            "MARLIN_EXPORT void marlin_function(uint32_t count, ...);",
            "void marlin_function(void);",
            "static int marlin_variable;",
            "struct marlin_other { uint32_t bits : 3; };",
            "typedef struct marlin_other { uint32_t bits : 3; } marlin_other;",
            "#define MARLIN_OTHER (1 << 3)",
            "#define MARLIN_OTHER 0x10",
        ):
            with self.subTest(unknown), self.assertRaises(SystemExit):
                table_of(HEADER.replace("#endif", unknown + "\n#endif"))

    def test_the_header_is_read_to_its_end(self):
        text = pathlib.Path(sys.argv[1]).read_text()
        table = abi_table.abi_table(sys.argv[1], sys.argv[2])
        self.assertEqual(len(table["functions"]), text.count("\nMARLIN_EXPORT "))
        self.assertEqual(len(table["structs"]) + len(table["handles"]), text.count("typedef struct "))
        self.assertEqual(len(table["types"]), text.count("typedef int32_t "))
        defined = text.count("#define MARLIN_") - text.count("#define MARLIN_EXPORT")
        self.assertEqual(len(table["constants"]), defined)

    def test_all_of_the_header_is_pinned(self):
        pins = pathlib.Path(__file__).with_name("pins.txt").read_text()
        self.assertEqual(abi_table.pins(abi_table.abi_table(sys.argv[1], sys.argv[2])), pins, "abi_table.py HEADER --pins pins.txt")

    def test_pins_of_a_header(self):
        pins = abi_table.pins(table_of(HEADER))
        self.assertEqual(pins, "marlin_desc 32: struct_size 0, kind 4, other 8, name 12, call 24\nmarlin_kind: MARLIN_KIND_A -3\n"
                               "uint32_t: MARLIN_FLAG 4\n")
        rows = ["FIELD(marlin_desc, name, 12, 12);", "FIELD(marlin_desc, call, 24, 8);", "END(marlin_desc, 32);"]
        self.assertEqual(list(abi_table.pinned(pins))[3:], [*rows, "VALUE(marlin_kind, MARLIN_KIND_A, -3);", "TYPE(marlin_kind);",
                                                            "VALUE(uint32_t, MARLIN_FLAG, 4);"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
