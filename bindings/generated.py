"""What every generate.py of a binding does with what it writes: puts it into its files, or says how they differ from it.

    tests/abi/abi_table.py include/metal_marlin/metal_marlin.h --json table.json
    bindings/LANGUAGE/generate.py table.json            writes the files
    bindings/LANGUAGE/generate.py table.json --check    says how they differ from what it would write, and fails
"""

import argparse
import difflib
import json
import pathlib
import sys
import textwrap

ABOUT = "Written by bindings/{}/generate.py from metal_marlin.h; a test compares it with what that script would write now.\n"


# How the names of a type's constants begin, where it is not the type's own name.
PREFIXES = {
    "marlin_status": "MARLIN_E_",
    "marlin_memory": "MARLIN_MEM_",
    "marlin_value_type": "MARLIN_VALUE_",
    "marlin_log_level": "MARLIN_LOG_",
}


def short_name(constant):
    """MARLIN_E_SHAPE of marlin_status: SHAPE."""
    prefix = PREFIXES.get(constant["type"], constant["type"].upper() + "_")
    return constant["name"].removeprefix(prefix if constant["name"].startswith(prefix) else "MARLIN_")


def class_name(type_name):
    """marlin_log_level: LogLevel."""
    return "".join(word.capitalize() for word in type_name.removeprefix("marlin_").split("_"))


def filled(items, indent):
    """Lists items in lines of up to 130 columns, with a comma behind each."""
    return textwrap.wrap(" ".join(f"{item},".replace(" ", "\0") for item in items), 130, initial_indent=indent, subsequent_indent=indent,
                         break_long_words=False, break_on_hyphens=False)


def main(folder, comment, writers):
    """`writers`: for each file below `folder` the function that gives its lines, made of the table of the ABI."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=pathlib.Path, help="what tests/abi/abi_table.py writes")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    table = json.loads(options.table.read_text())
    differs = False
    for name, writer in writers.items():
        text = f"{comment} {ABOUT.format(folder.name)}" + "\n".join(writer(table)).rstrip("\n").replace("\0", " ") + "\n"
        if not options.check:
            (folder / name).write_text(text)
            continue
        there = (folder / name).read_text()
        differs |= there != text
        sys.stdout.writelines(difflib.unified_diff(there.splitlines(True), text.splitlines(True), name, "the header"))
    if differs:
        sys.exit(f"bindings/{folder.name} is not what the header says; bindings/{folder.name}/generate.py writes it anew")
