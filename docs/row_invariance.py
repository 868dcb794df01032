#!/usr/bin/env python3
"""What MARLIN_GEMM_ROW_INVARIANT costs on this machine: the table of docs/performance.md, times with the flag over times without.

    docs/row_invariance.py [--command metal-marlin] [--seconds 1] [--write]

Every product is timed in turn with the same one without the flag (`metal-marlin bench --row-invariant`). --write puts the table
into docs/performance.md, between the lines that name this script.
"""

import argparse
import json
import os
import pathlib
import subprocess

ROWS = [1, 4, 8, 16, 64, 512]
# The name of a line of the table, and what to time.
PRODUCTS = [
    ("INT4, groups of 128", ["--format", "int4", "--group", "128"]),
    ("INT4, groups of 32", ["--format", "int4"]),
    ("MXFP4", ["--format", "mxfp4"]),
    ("NVFP4", ["--format", "nvfp4"]),
    ("INT8", ["--format", "int8"]),
    ("INT4 2:4", ["--format", "int4", "--sparse", "2:4"]),
    ("INT4, N = 256", ["--format", "int4", "-n", "256"]),
]
FORMS = [("BF16", ["--compute", "default"], {}), ("F32", ["--compute", "default", "--dtype", "f32"], {}),
         ("INT8", ["--compute", "int8"], {}), ("F32, AVX2", ["--compute", "default", "--dtype", "f32"], {"METAL_MARLIN_ISA": "avx2"})]
FILE = pathlib.Path(__file__).with_name("performance.md")
BEGIN, END = "<!-- docs/row_invariance.py: begin -->\n", "<!-- docs/row_invariance.py: end -->\n"


def ratios(command, seconds, options, variables):
    """The time with the flag over the time without, by M, and the processor's name for its instructions."""
    shape = [] if "-n" in options else ["-n", "4096"]
    arguments = [command, "bench", "--backend", "cpu", "--row-invariant", "--json", "--seconds", str(seconds), "-k", "4096", *shape]
    arguments += ["-m", ",".join(map(str, ROWS)), *options]
    environment = {**os.environ, **variables}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    records = map(json.loads, done.stdout.splitlines())
    return {record["M"]: record["over_usual"] for record in records if "over_usual" in record}


def table(command, seconds):
    """For each product and form, the largest ratio and the M that has it."""
    lines = ["| weights | " + " | ".join(form for form, _, _ in FORMS) + " |", "|---|" + "---|" * len(FORMS)]
    for name, options in PRODUCTS:
        cells = []
        for _, more, variables in FORMS:
            found = ratios(command, seconds, options + more, variables)
            worst = max(found, key=found.get, default=None)
            cells.append(f"{found[worst]:.2f} (M = {worst})" if found else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default="build/release/tools/metal-marlin")
    parser.add_argument("--seconds", type=float, default=1, help="for each product, about")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    text = table(options.command, options.seconds)
    if not options.write:
        print(text, end="")
        return
    before, rest = FILE.read_text().split(BEGIN)
    FILE.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
