#!/usr/bin/env python3
"""Draws docs/metal/*.svg and writes the table of predicted times of decision 0004.

    docs/metal.py                       writes both
    docs/metal.py --check               exits with 1 and names each file that differs from what it would write
    docs/metal.py --layout              prints the place of each bit of a code, for the test that compares it with the packer

No position is written by hand: positions follow place(), and tiles come from src/backends/gpu/kernels.inc.
"""
import math
import pathlib
import re
import sys

from card import Card
from diagrams import MSB, write_or_check

DOCS = pathlib.Path(__file__).resolve().parent
PAGE = DOCS / "decisions" / "0004-metal-kernels.md"

# --- the packed layout of shaders/common/layout.h, a block of 128 slots -----------------------------------------------------

KINDS = {"fp4": 4, "u4": 4, "i8": 8, "u4_sparse": 4}  # as kernels are named; bits of a code


def lane_row(lane):
    return lane // 4 & 4 | lane // 2 & 3


def lane_column(lane):
    return lane // 4 & 2 | lane & 1


LANES = {(lane_row(lane), lane_column(lane)): lane for lane in range(32)}


def place(kind, row, slot):
    """(word, lane, tile, bit numbers, highest first) of the code at `row` of a row block and `slot` of a block."""
    span, unit, half, step = slot // 32, slot % 32 // 8, slot % 8 // 4, slot % 4
    word, first = unit, 16 * half
    if kind == "fp4":
        low = first + 9 - 3 * step
        bits = [first + (15, 12, 14, 13)[step], low + 2, low + 1, low]
    elif kind == "u4":
        bits = [first + 4 * step + b for b in (3, 2, 1, 0)]
    else:
        word, first = 2 * unit + step // 2, first + 8 * (step % 2)
        bits = [first + b for b in range(7, -1, -1)]
    return word, LANES[row % 8, span], row // 8, bits


def place_kept(row, quad, second):
    """(word, lane, tile, bits) of a kept code of 2:4 sparse weights, and the word and bits of its position."""
    span, unit, half = quad // 8, quad % 8 // 2, quad % 2
    index = 2 * half + second
    code = 16 * (unit % 2) + 4 * index
    position = 8 * unit + 2 * index
    return unit // 2, LANES[row % 8, span], row // 8, [code + b for b in (3, 2, 1, 0)], 2, [position + 1, position]


def print_layout():
    for kind in KINDS:
        for row in range(32):
            if kind == "u4_sparse":
                for quad in range(32):
                    for second in range(2):
                        word, lane, tile, bits, at, position = place_kept(row, quad, second)
                        print(kind, row, 2 * quad + second, (word * 32 + lane) * 4 + tile, *bits, (at * 32 + lane) * 4 + tile, *position)
            else:
                for slot in range(128):
                    word, lane, tile, bits = place(kind, row, slot)
                    print(kind, row, slot, (word * 32 + lane) * 4 + tile, *bits)


def fragment():
    card = Card("The lane of each element of an 8×8 simdgroup_matrix", "as on every Apple GPU so far; the probe checks it on the device")
    card.grid("lane of\neach element", range(8), range(8), lambda r, c: (LANES[r, c // 2], "code" if c // 2 % 2 == 0 else "code2"),
              lambda r: f"row {r}", lambda c: f"column {c}", 24)
    card.note("Lane (r, j) holds row r, columns 2j and 2j + 1. Of weights (operand A), it holds rows 8i + r of the row block, i = 0…3.")
    card.strip("128 slots of a row", [(f"j = {j}: slots {32 * j}…{32 * j + 31}", 1, "code" if j % 2 == 0 else "code2") for j in range(4)], None)
    card.strip("lane (r, j)", [(f"unit {w}: 8 slots", 1, "code" if w % 2 == 0 else "code2") for w in range(4)], None)
    card.strip("a unit", [(f"+{s}\np {s // 4} t {s % 4}", 1, "code" if s < 4 else "code2") for s in range(8)], None, height=42)
    card.note("Slots t and 4 + t of unit w are the lane's two elements of matrix 4w + t. A span is one group of 32 with one scale.")
    card.strip("in memory, word w", [(f"lane {lane}\ni 0 1 2 3", 1, "code" if lane % 2 == 0 else "code2") for lane in range(7)] +
               [("… lane 31", 1, "pad")], None, height=42)
    card.note("A lane loads its four tiles as one uint4. A simdgroup loads 512 consecutive bytes: eight whole cache lines.")
    return card


def fields(names):
    """The cells of a word, from the names of its bits, 0 first. Neighboring bits of one name are one field."""
    cells = []
    for bit in range(31, -1, -1):
        name, kind = names.get(bit, ("0", "pad"))
        if cells and cells[-1][0] == name:
            cells[-1] = (name, cells[-1][1] + 1, kind)
        else:
            cells.append((name, 1, kind))
    return cells


def words_of(kind, slots):
    """{word: {bit: (name, color)}} of a lane and tile, for these slots of the lane's span."""
    words = {}
    for slot in slots:
        word, _, _, bits = place(kind, 0, slot)
        for i, bit in enumerate(bits):
            sign = kind == "fp4" and i == 0
            words.setdefault(word, {})[bit] = (f"{'s' if sign else ''}{slot % 8}", "sign" if sign else "code" if slot % 2 == 0 else "code2")
    return words


def words():
    card = Card("The bits of a unit: eight codes, slots 0…7", MSB)
    card.strip("FP4: one word", fields(words_of("fp4", range(8))[0]))
    card.note("s is a sign, and a field is e e m. Masks and five shifts by 3 turn the fields into pairs of halves (slots t and 4 + t).")
    card.strip("INT4: one word", fields(words_of("u4", range(8))[0]))
    eight = words_of("i8", range(8))
    card.strip("INT8: two words\nslots 0 1 4 5", fields(eight[0]), height=42)
    card.strip("slots 2 3 6 7", fields(eight[1]))
    codes, positions = {}, {}
    for quad in range(8):
        for second in range(2):
            word, _, _, bits, _, at = place_kept(0, quad, second)
            name = f"{'b' if second else 'a'}{quad}"
            if word == 0:
                codes.update({bit: (name, "code" if quad % 2 == 0 else "code2") for bit in bits})
            positions.update({bit: (name, "meta") for bit in at})
    card.strip("4-bit 2:4: codes\nof units 0, 1", fields(codes), height=42)
    card.strip("positions of\nunits 0…3", fields(positions), height=42)
    card.note("aq and bq are the first and second kept code of quad q (slots 4q…4q + 3) of the lane's span, and their positions.")
    return card


# --- times on paper ----------------------------------------------------------------------------------------------------------

# GPU cores, memory GB/s, GHz: the largest GPU of each chip. Sources: PAGE.
CHIPS = {
    "M1": (8, 68, 1.278), "M1 Pro": (16, 200, 1.296), "M1 Max": (32, 400, 1.296), "M1 Ultra": (64, 800, 1.296),
    "M2": (10, 100, 1.398), "M2 Pro": (19, 200, 1.398), "M2 Max": (38, 400, 1.398), "M2 Ultra": (76, 800, 1.398),
    "M3": (10, 100, 1.398), "M3 Pro": (18, 150, 1.398), "M3 Max": (40, 400, 1.398), "M3 Ultra": (80, 819, 1.398),
    "M4": (10, 120, 1.470), "M4 Pro": (20, 273, 1.578), "M4 Max": (40, 546, 1.678),
    "M5": (10, 153, 1.740), "M5 Pro": (20, 307, 1.740), "M5 Max": (40, 614, 1.740),
}
SHAPES = ((4096, 4096), (11776, 4096))  # N, K
ROWS = (1, 8, 32, 64, 512)
ALUS = 128              # of a core; each does one multiply-add per cycle, in FP32 or FP16
BITS = 4.25             # MXFP4: codes, and one byte of scale for 32 codes
DECODE = (8 + 5 * 4) / 8 + 1  # ALU cycles per weight: 8 operations and 5 shifts at a quarter of the rate for eight codes; the scale


def kernels():
    text = (DOCS.parent / "src/backends/gpu/kernels.inc").read_text("utf-8")
    return [tuple(int(x) for x in found) for found in
            re.findall(r'_\*_\w+(?<!_tensor)", [^)]*?\.m_min = (\d+),\s+\.m_max = (\d+),\s+\.rows = (\d+)', text)]


def work(n, k, m, tiles):
    """(bytes, ALU cycles of all lanes) of a product with half activations and float32 results."""
    tile = next(rows for low, high, rows in tiles if low <= m and (m <= high or high == 0))
    passes = math.ceil(m / tile)
    return n * k * BITS / 8 * passes + 2 * m * k + 4 * m * n, n * k * (DECODE * passes + tile * passes)


def seconds(chip, n, k, m, tiles):
    cores, bandwidth, clock = CHIPS[chip]
    moved, cycles = work(n, k, m, tiles)
    return moved / (bandwidth * 1e9), cycles / (cores * ALUS * clock * 1e9)


def predicted():
    tiles = kernels()
    heads = [f"{n} x {k}, M = {m}" if m == ROWS[0] else str(m) for n, k in SHAPES for m in ROWS]
    lines = ["| chip | cores | GB/s | TFLOP/s | " + " | ".join(heads) + " |", "|---" * (4 + len(heads)) + "|"]
    for chip, (cores, bandwidth, clock) in CHIPS.items():
        cells = []
        for n, k in SHAPES:
            for m in ROWS:
                memory, alu = seconds(chip, n, k, m, tiles)
                cells.append(f"{max(memory, alu) * 1e6:.0f}{'' if memory > alu else ' a'}")
        lines.append(f"| {chip} | {cores} | {bandwidth} | {2 * cores * ALUS * clock / 1e3:.1f} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


# --- the page ----------------------------------------------------------------------------------------------------------------

TIMES = re.compile(r"(?<=<!-- times -->\n).*?(?=<!-- end -->)", re.S)


def main(arguments):
    if arguments == ["--layout"]:
        print_layout()
        return 0
    check = arguments == ["--check"]
    files = {"fragment.svg": fragment().svg(), "words.svg": words().svg()}
    wrong = write_or_check(DOCS / "metal", files, check)
    page = PAGE.read_text("utf-8")
    written = TIMES.sub(lambda _: predicted(), page)
    if not check:
        PAGE.write_text(written, "utf-8")
    elif written != page:
        wrong = 1
        print(f"{PAGE.name}: the predicted times differ from those that docs/metal.py writes")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
