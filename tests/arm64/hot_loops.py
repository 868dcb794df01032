#!/usr/bin/env python3
"""Counts the instructions of the NEON kernels' loops, from object code, and finds vectors that spill there.

    hot_loops.py [--table] OBJECT...

A tile multiplies `rows` rows of activations by 4 columns x 32 slots for each of its vectors; figures are the instructions for
that of the loop over blocks. Prints them with --table. Fails when that loop stores a single vector to the stack (kernels.spills
looks at innermost loops and tolerates some), or when no loop is found.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "kernels"))
import spills  # noqa: E402

TILE = re.compile(r"^void .*?multiply_rows<.*?(\w+), \(.*?Scaling\)(\d), (\d), .*?(InRegisters|LookedUp|FromDequantized)(.*?)> ?\(")
DOTS = {"Sdot": "sdot", "Smmla": "smmla", "Bfdot": "bfdot", "Bfmmla": "bfmmla", "Fmla": "fmla"}
STEPS = {"Sdot": 8, "Smmla": 8, "Bfdot": 16, "Bfmmla": 16, "Fmla": 32}
SCALINGS = ["prescaled", "blocks", "halves", "clamped blocks", "clamped halves"]
CODES = ["u4", "u4zero", "u4add", "fp4", "i8", "i8add"]


def measure(math, scaling, rows, body):
    """(instructions for 4 columns x one block, vectors stored to the stack), or None."""
    def dots(loop):
        return sum(mnemonic == DOTS[math] for _, mnemonic, _ in body[slice(*loop)])

    ends = {}
    for start, end in spills.loops(body):
        ends[start] = max(end, ends.get(start, 0))
    hot = sorted((loop for loop in ends.items() if dots(loop)), key=lambda loop: loop[1] - loop[0])
    if not hot:
        return None
    inner = hot[0]
    # Where weights carry their scale the inner loop is that over the quads of a block, elsewhere quads are unrolled.
    block, quads = (hot[1], STEPS[math] // 4) if scaling == "prescaled" else (inner, 1)
    columns = quads * dots(inner) * (2 if math.endswith("mmla") else 1) // (STEPS[math] * rows)  # a matrix instruction does two
    count = (quads - 1) * (inner[1] - inner[0]) + block[1] - block[0]
    return count / columns, spills.stores(body[slice(*block)])


def code_name(source, arguments):
    if source != "InRegisters":
        return {"FromDequantized": "dequantized", "LookedUp": "4-bit"}[source]
    kind, sparse = re.search(r"CodeKind\)(\d), (\w+)", arguments).groups()
    return CODES[int(kind)] + (" sparse" if sparse == "true" else "")


def tiles(paths):
    """(instruction, scaling, rows, weights, body) of each tile that objects hold."""
    for path in paths:
        for name, body in spills.disassembled(path, "aarch64-linux-gnu-objdump"):
            if found := TILE.match(name):
                math, scaling, rows, source, arguments = found.groups()
                yield math, SCALINGS[int(scaling)], int(rows), code_name(source, arguments), body


def main(arguments):
    bad = judged = 0
    for math, scaling, rows, weights, body in tiles(a for a in arguments if not a.startswith("--")):
        if scaling.startswith("clamped"):  # seldom runs
            continue
        judged += 1
        count, stores = measure(math, scaling, rows, body) or (0, 0)
        if "--table" in arguments:
            print(f"| {math.upper()} {scaling} | {weights} | {rows} | {count:.1f} |")
        if stores or not count:
            print(f"{math}, {scaling}, {weights}, {rows} rows: " +
                  (f"{stores} vectors are stored to the stack" if count else f"no loop with {DOTS[math]}"))
            bad += 1
    if not judged:
        print("no tile found")
    return 1 if bad or not judged else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
