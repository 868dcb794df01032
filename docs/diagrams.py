#!/usr/bin/env python3
"""Draws the bit diagrams of docs/formats.md into docs/diagrams/*.svg.

    docs/diagrams.py            writes the files
    docs/diagrams.py --check    exits with 1, and names them, when files are not what would be written

The positions are computed by the formulas of docs/formats.md and not placed by hand. Plain python3, nothing else; the same text
on every machine. Each drawing is a card with its own background, so that it reads on light and dark pages.
"""
import pathlib
import sys

from card import Card

FOLDER = pathlib.Path(__file__).resolve().parent / "diagrams"

MSB = "bits: most significant on the left, bit 0 on the right"
BOTH = "bytes: the first on the left; bits: bit 0 on the right"


def word(texts):
    """Cells of a word whose lowest field is texts[0]."""
    return [(text, 4, "code" if i % 2 == 0 else "code2") for i, text in enumerate(texts)][::-1]


def pair(low, high):
    return word([low, high])


def gguf(title, fields, detail):
    card = Card(title, BOTH)
    card.strip("one block", fields, "byte")
    for label, cells, unit in detail:
        card.strip(label, cells, unit)
    return card


def halves():
    """Bytes of two elements, the high nibble first as bits are drawn."""
    cells = [(f"{16 + j} | {j}", 1, "code" if j % 2 == 0 else "code2") for j in range(10)]
    return [("byte j of q", pair("element j", "element 16 + j"), "bit"), ("elements\nhigh | low", cells + [("…", 0.6, "pad", None)], "byte")]


def factor(name):
    return (f"{name}\nf16", 12, "scale" if name == "d" else "zero", 2)


def gguf_q5_0():
    card = gguf("GGUF Q5_0: 32 elements in 22 bytes",
                [("d\nf16", 2.6, "scale", 2), ("qh\nu32", 4, "code2", 4), ("q: 16 bytes of two codes", 16, "code", 16)],
                halves() + [("qh", [("bit e: high bit of element e", 32, "code2")], "bit")])
    card.note("Value (q − 16) · d, with q = nibble + 16 · bit. Q5_1 has an f16 m after d: q · d + m.")
    return card


def gguf_q2_k():
    card = gguf("GGUF Q2_K: 256 elements in 84 bytes",
                [("scales: 16 bytes", 24, "scale", 16), ("qs: 64 bytes of four codes", 70, "code", 64), factor("d"), factor("dmin")],
                [("byte i of scales", [("minimum m of group i", 4, "zero"), ("scale s of group i", 4, "scale")], "bit"),
                 ("byte 32h + l of qs", [(f"element 128h + {32 * j} + l", 2, "code" if j % 2 == 0 else "code2") for j in (3, 2, 1, 0)],
                  "bit")])
    card.note("Group i holds elements 16i … 16i + 15. Value d · s · q − dmin · m.")
    return card


def gguf_q3_k():
    card = gguf("GGUF Q3_K: 256 elements in 110 bytes",
                [("hm: 32 bytes", 32, "code2", 32), ("qs: 64 bytes of four low codes", 64, "code", 64), ("scales\n12 bytes", 20, "scale", 12),
                 factor("d")],
                [("byte l of hm", [(f"element {32 * j} + l", 1, "code2") for j in range(7, -1, -1)], "bit"),
                 ("byte 32h + l of qs", [(f"element 128h + {32 * j} + l", 2, "code" if j % 2 == 0 else "code2") for j in (3, 2, 1, 0)],
                  "bit")])
    card.note("q counts from −4: low code − 4, or the low code itself where the bit of hm is set. Value d · (s − 32) · q; groups of 16.")
    return card


def gguf_q4_k():
    card = gguf("GGUF Q4_K: 256 elements in 144 bytes",
                [factor("d"), factor("dmin"), ("scales: 12 bytes", 24, "scale", 12), ("qs: 128 bytes of two codes", 100, "code", 128)],
                [("bytes i, 4 + i of\nscales, i = 0…3",
                  [("top of s[4 + i]", 2, "scale"), ("scale s[i]", 6, "scale"), ("top of m[4 + i]", 2, "zero"), ("minimum m[i]", 6, "zero")], None),
                 ("byte 8 + i", [("low 4 of m[4 + i]", 4, "zero"), ("low 4 of s[4 + i]", 4, "scale")], "bit"),
                 ("byte 32c + l of qs", pair("element 64c + l", "element 64c + 32 + l"), "bit")])
    card.note("Value d · s · q − dmin · m; groups of 32. Q5_K has 32 bytes qh before qs: bit e / 32 of byte e mod 32 is the high bit.")
    return card


def gguf_q6_k():
    card = gguf("GGUF Q6_K: 256 elements in 210 bytes",
                [("ql: 128 bytes of two nibbles", 90, "code", 128), ("qh: 64 bytes of four pairs", 60, "code2", 64),
                 ("scales: 16 × int8", 30, "scale", 16), factor("d")],
                [("byte 64h + 32i + l\nof ql, i = 0, 1", pair("128h + 32i + l", "128h + 64 + 32i + l"), "bit"),
                 ("byte 32h + l of qh", [(f"element 128h + {32 * j} + l", 2, "code" if j % 2 == 0 else "code2") for j in (3, 2, 1, 0)],
                  "bit")])
    card.note("Value d · scale · (q − 32), with q = nibble + 16 · pair; groups of 16.")
    return card


def gguf_iq4_xs():
    card = gguf("GGUF IQ4_XS: 256 elements in 136 bytes",
                [factor("d"), ("sh\nu16", 12, "scale", 2), ("sl: 4 bytes", 20, "scale", 4), ("qs: 128 bytes of two codes", 100, "code", 128)],
                [("sh", [(f"top of s[{i}]", 2, "scale") for i in range(7, -1, -1)], "bit"),
                 ("byte i of sl", [("low 4 of s[2i + 1]", 4, "scale"), ("low 4 of s[2i]", 4, "scale")], "bit"),
                 ("byte 16g + j of qs", pair("element 32g + j", "element 32g + 16 + j"), "bit")])
    card.note("Value d · (s − 32) · iq4(q); groups of 32. IQ4_NL is Q4_0 with iq4(q) · d.")
    return card


MARLIN_K = [0, 8, 0, 8, 1, 9, 1, 9]
MARLIN_N = [0, 0, 8, 8, 0, 0, 8, 8]
SPARSE_N = [0, 0, 4, 4, 0, 0, 4, 4]


def tile_places(k_of, n_of):
    """(k, n) -> (t, s) of the words t = 0..31 of one w (or j)."""
    return {(k_of(t, s), n_of(t, s)): (t, s) for t in range(32) for s in range(8)}


def marlin_tile():
    k_of = lambda t, s: 2 * (t % 4) + MARLIN_K[s]
    n_of = lambda t, s: t // 4 + MARLIN_N[s]
    places = tile_places(k_of, n_of)
    assert len(places) == 256
    card = Card("Marlin: a tile of 16 (K) × 64 (N), 128 words", MSB)
    card.strip("word 4t + w", word([f"k +{MARLIN_K[s]}\nn +{MARLIN_N[s]}" for s in range(8)]), height=42)
    card.note("from k = 16 kt + 2 (t mod 4) and n = 64 nt + 16 w + ⌊t/4⌋. Below: where the words of w = 0 lie; t . nibble of each element.")
    card.grid("W of one tile\nw = 0, n = 0…15\n(w adds 16 to n)", range(16), range(16),
              lambda k, n: ("%d.%d" % places[k, n], "code" if places[k, n][0] % 2 == 0 else "code2"), lambda k: f"k {k}",
              lambda n: f"n {n}")
    return card


def marlin_24_tile():
    k_of = lambda t, s: 2 * (t % 4) + MARLIN_K[s]
    n_of = lambda t, s: 8 * (t // 4) + SPARSE_N[s]
    places = tile_places(k_of, n_of)
    assert len(places) == 256
    card = Card("marlin-24: a tile of 16 kept (32 of K) × 64 (N), 128 words", MSB)
    card.strip("word 4t + j", word([f"kc +{MARLIN_K[s]}\nn +{SPARSE_N[s]}" for s in range(8)]), height=42)
    card.note("from kc = 16 kt + 2 (t mod 4) and n = 64 nt + 8 ⌊t/4⌋ + j; kc = 2 · block of four + slot. Below: t . nibble for j = 0.")
    card.grid("kept codes of a\ntile, j = 0\n(j adds to n)", range(16), range(0, 64, 4),
              lambda k, n: ("%d.%d" % places[k, n], "code" if places[k, n][0] % 2 == 0 else "code2"), lambda k: f"kc {k}",
              lambda n: f"n {n}")
    return card


def cpu_dense():
    card = Card("CPU: a panel of 64 columns, superblocks of 128 slots", BOTH)
    card.strip("superblock", [(f"codes: block {b} of 32 slots", 10, "code" if b % 2 == 0 else "code2", None) for b in range(4)] +
               [("scales\ngroup × 64", 6, "scale", None), ("zeros\ngroup × 64", 6, "zero", None)], None)
    card.strip("block: 1024 bytes", [(f"columns {16 * v}…{16 * v + 15}", 256, "code" if v % 2 == 0 else "code2") for v in range(4)], "byte")
    card.strip("its 16 columns:\n4 lines", [(f"line {j}: slots {8 * j}…{8 * j + 7}", 64, "code" if j % 2 == 0 else "code2") for j in range(4)], "byte")
    card.strip("line j", [(f"column 0, i = {i}" if i < 4 else f"column 1, i = {i - 4}", 1, "code" if i < 4 else "code2") for i in range(8)] +
               [("…", 0.5, "pad", None)], "byte")
    card.strip("byte 4c + i", pair("slot 8j + i", "slot 8j + 4 + i"))
    card.note("One nibble of a line is 16 columns × 4 slots: the operand of a 4-way dot product.")
    return card


def cpu_sparse():
    card = Card("CPU, 2:4 sparse: the kept codes of a block and their positions", BOTH)
    card.strip("16 columns of a\nblock: 192 bytes", [("unit 0: kept of slots 0…15", 64, "code"), ("unit 1: kept of slots 16…31", 64, "code2"),
                                                     ("positions", 64, "meta")], "byte")
    card.strip("unit", [(f"column {c}\nkept {i}, t {h}", 1, "code" if c == 0 else "code2")
                        for c in range(2) for i in range(2) for h in ("even", "odd")] + [("…", 0.5, "pad", None)], "byte", height=42)
    card.strip("byte\n4c + 2i + t mod 2", pair("kept i of quad t mod 2", "kept i of quad 2 + t mod 2"))
    card.strip("positions of\ncolumn c", [(f"{name}{t}", 2, "meta") for name in ("b", "a") for t in range(7, -1, -1)])
    card.note("A quad t is four slots, four quads a unit, eight a block. at and bt: positions of kept codes 0 and 1 of quad t, at < bt.")
    return card


DRAWINGS = [gguf_q5_0, gguf_q2_k, gguf_q3_k, gguf_q4_k, gguf_q6_k, gguf_iq4_xs, marlin_tile, marlin_24_tile, cpu_dense, cpu_sparse]


def write_or_check(folder, files, check):
    """Makes the folder's drawings these, {name: text}; or says which are not, and returns 1."""
    if check:
        there = {path.name: path.read_text("utf-8") for path in folder.glob("*.svg")}
        wrong = sorted(name for name in files.keys() | there.keys() if files.get(name) != there.get(name))
        if wrong:
            print(f"docs/{folder.name} differs from what {pathlib.Path(sys.argv[0]).name} writes:", ", ".join(wrong))
        return 1 if wrong else 0
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.svg"):
        path.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return 0


def main():
    files = {draw.__name__.replace("_", "-") + ".svg": draw().svg() for draw in DRAWINGS}
    return write_or_check(FOLDER, files, sys.argv[1:] == ["--check"])


if __name__ == "__main__":
    sys.exit(main())
