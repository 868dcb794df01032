#!/usr/bin/env python3
"""Counts the instructions of the NEON kernels' loops, from object code, and finds vectors that spill there.

    hot_loops.py [--table] OBJECT...

A tile multiplies `rows` rows of activations by 4 columns x 32 slots for each of its vectors; figures are instructions for that:
of the loop over quads of steps, and with everything that is done once a block. Prints them with --table. Fails when the loop
over blocks stores a single vector to the stack (kernels.spills looks at innermost loops and tolerates some), or when no loop is
found.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "kernels"))
import spills  # noqa: E402

TILE = re.compile(r"^void .*?multiply_rows<.*?(\w+), \(.*?Scaling\)(\d), (\d), .*?(InRegisters|FromStaged)<(.*?)> ?>\(")
DOTS = {"Sdot": "sdot", "Smmla": "smmla", "Bfdot": "bfdot", "Bfmmla": "bfmmla", "Fmla": "fmla"}
STEPS = {"Sdot": 8, "Smmla": 8, "Bfdot": 16, "Bfmmla": 16, "Fmla": 32}
SCALINGS = ["folded", "partial", "clamped"]
CODES = ["w4sym", "w4zero", "w4add", "fp4", "w8sym", "w8add"]


def measure(math, scaling, rows, body):
    """(instructions of the quads, all, vectors stored to the stack) for 4 columns x one block, or None."""
    def dots(loop):
        return sum(mnemonic == DOTS[math] for _, mnemonic, _ in body[slice(*loop)])

    ends = {}
    for start, end in spills.loops(body):
        ends[start] = max(end, ends.get(start, 0))
    hot = sorted((loop for loop in ends.items() if dots(loop)), key=lambda loop: loop[1] - loop[0])
    if not hot:
        return None
    quad, outer = hot[0], [loop for loop in hot[1:] if loop[0] <= hot[0][0] and loop[1] >= hot[0][1]]
    block = outer[0 if scaling == "folded" else 1]
    columns = dots(quad) * (2 if math.endswith("mmla") else 1) // (4 * rows)  # a matrix instruction does the work of two
    quads = STEPS[math] // 4
    per_quad, rest = quad[1] - quad[0], block[1] - block[0] - (quad[1] - quad[0])
    return quads * per_quad / columns, (quads * per_quad + rest) / columns, spills.stores(body[slice(*block)])


def code_name(source, arguments):
    if source == "FromStaged":
        return "staged"
    kind, sparse = re.search(r"CodeKind\)(\d), (\w+)", arguments).groups()
    return CODES[int(kind)] + (" sparse" if sparse == "true" else "")


def tiles(paths):
    """(instruction, scaling, rows, weights, body) of each tile that objects hold."""
    for path in paths:
        for name, body in spills.disassembled(path, "aarch64-linux-gnu-objdump"):
            if found := TILE.match(name):
                yield found[1], SCALINGS[int(found[2])], int(found[3]), code_name(found[4], found[5]), body


def main(arguments):
    bad = judged = 0
    for math, scaling, rows, weights, body in tiles(a for a in arguments if not a.startswith("--")):
        if scaling == "clamped":  # seldom runs
            continue
        judged += 1
        quads, everything, stores = measure(math, scaling, rows, body) or (0, 0, 0)
        if "--table" in arguments:
            print(f"| {math.upper()} {scaling} | {weights} | {rows} | {quads:.0f} | {everything:.0f} |")
        if stores or not quads:
            print(f"{math}, {scaling}, {weights}, {rows} rows: " +
                  (f"{stores} vectors are stored to the stack" if quads else f"no loop with {DOTS[math]}"))
            bad += 1
    if not judged:
        print("no tile found")
    return 1 if bad or not judged else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
