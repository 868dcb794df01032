"""The library keeps the ABI of the last release, which metal-marlin-0.abi describes (abidiff of the Debian package abigail-tools).

    abidiff_test.py LIBRARY            compares, and finds each planted break
    abidiff_test.py LIBRARY --renew    describes this library instead: part of a release

Exit status 77: skipped, with the reason printed.
"""

import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
INCLUDE = SOURCE / "include"
DUMP = HERE / "metal-marlin-0.abi"
# They stand in arrays or inside other structs (docs/abi.md).
FROZEN = ("marlin_matrix", "marlin_shard")


def symbol(root, name):
    return root.find(f"./elf-function-symbols/elf-symbol[@name='{name}']")


def function(root, name):
    return root.find(f".//function-decl[@name='{name}']")


def struct(root, name):
    return root.find(f".//class-decl[@name='{name}'][data-member]")


def char(root):
    return root.find(".//type-decl[@name='char']").get("id")


# Edits of the last release's description: the library at hand then differs from it by the opposite change.
def without_function(root, name="marlin_gemm"):
    root.find("elf-function-symbols").remove(symbol(root, name))
    for unit in root.iter("abi-instr"):
        for declaration in unit.findall(f"function-decl[@name='{name}']"):
            unit.remove(declaration)


def with_function(root):
    for declaration in (symbol(root, "marlin_gemm"), function(root, "marlin_gemm")):
        copy = xml.fromstring(xml.tostring(declaration).replace(b"marlin_gemm", b"marlin_gone"))
        (root.find("elf-function-symbols") if copy.tag == "elf-symbol" else root.find("abi-instr")).append(copy)


def without_last_member(root, name):
    changed = struct(root, name)
    last = changed.findall("data-member")[-1]
    changed.set("size-in-bits", last.get("layout-offset-in-bits"))
    changed.remove(last)


def with_member(root, name):
    changed = struct(root, name)
    end = changed.get("size-in-bits")
    changed.set("size-in-bits", str(int(end) + 8))
    member = xml.SubElement(changed, "data-member", {"access": "public", "layout-offset-in-bits": end})
    xml.SubElement(member, "var-decl", {"name": "gone", "type-id": char(root), "visibility": "default"})


ALLOWED = {
    "a new function": without_function,
    "a new member at the end of a struct with struct_size": lambda root: without_last_member(root, "marlin_open_desc"),
    "a new member at the end of the table of functions": lambda root: without_last_member(root, "marlin_api"),
}
BREAKS = {
    "a function went": with_function,
    "a parameter went": lambda root: xml.SubElement(function(root, "marlin_gemm"), "parameter", {"type-id": char(root)}),
    "another parameter": lambda root: function(root, "marlin_gemm").find("parameter").set("type-id", char(root)),
    "another type returned": lambda root: function(root, "marlin_gemm").find("return").set("type-id", char(root)),
    "a member went": lambda root: with_member(root, "marlin_open_desc"),
    "a member's offset": lambda root: struct(root, "marlin_gemm_desc")[1].set("layout-offset-in-bits", "48"),
    "a member's type": lambda root: struct(root, "marlin_gemm_desc")[1][0].set("type-id", char(root)),
    "a frozen struct grew": lambda root: without_last_member(root, "marlin_matrix"),
}


def describe(out):
    """What abidw says of the library, with no word of this machine."""
    subprocess.run(
        ["abidw", "--exported-interfaces-only", "--headers-dir", INCLUDE, "--drop-private-types", "--no-show-locs",
         "--no-corpus-path", "--no-comp-dir-path", "--no-elf-needed", "--out-file", out, library], check=True)
    out.write_text(re.sub(rf"path='{re.escape(str(SOURCE))}/", "path='", out.read_text()))


def cut_to(old, new):
    """Leaves of each struct that may grow what the old one knows. (A suppression of abidiff for members at the end, of 2.2 at
    least, hides every other change of the struct too.)"""
    for grown in new.findall(".//class-decl[data-member]"):
        before = struct(old, grown.get("name"))
        if before is None or grown.get("name") in FROZEN or int(grown.get("size-in-bits")) <= int(before.get("size-in-bits")):
            continue
        grown.set("size-in-bits", before.get("size-in-bits"))
        for member in grown.findall("data-member"):
            if int(member.get("layout-offset-in-bits")) >= int(before.get("size-in-bits")):
                grown.remove(member)


def abidiff(old):
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, name) for name in ("old.abi", "new.abi")]
        describe(paths[1])
        new = xml.parse(paths[1]).getroot()
        cut_to(old, new)
        for root, path in zip((old, new), paths):
            xml.ElementTree(root).write(path)
        return subprocess.run(["abidiff", "--no-added-syms", *paths], capture_output=True, text=True)


class Abi(unittest.TestCase):
    def test_the_library_has_debugging_information(self):
        # Without it abidiff compares names only.
        sections = subprocess.run(["readelf", "-S", "-W", library], capture_output=True, text=True, check=True).stdout
        self.assertIn(".debug_info", sections)

    def test_it_is_that_of_the_last_release(self):
        result = abidiff(xml.parse(DUMP).getroot())
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_it_may_grow(self):
        for what, edit in ALLOWED.items():
            with self.subTest(what):
                root = xml.parse(DUMP).getroot()
                edit(root)
                result = abidiff(root)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_break_is_found(self):
        for what, edit in BREAKS.items():
            with self.subTest(what):
                root = xml.parse(DUMP).getroot()
                edit(root)
                result = abidiff(root)
                # Bit 4: the ABI changed; bits 1 and 2 would be mistakes of the call.
                self.assertEqual(result.returncode & 7, 4, result.stdout + result.stderr)


if __name__ == "__main__":
    library = sys.argv[1]
    if platform.machine() != "x86_64":
        sys.exit(print(f"skipped: the description is of x86_64, not of {platform.machine()}") or 77)
    if not shutil.which("abidiff"):
        sys.exit(print("skipped: abidiff (Debian package abigail-tools) is not here") or 77)
    describe(DUMP) if "--renew" in sys.argv else unittest.main(argv=sys.argv[:1])
