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
BYTES = "bytes: the first on the left"
BOTH = "bytes: the first on the left; bits: bit 0 on the right"


def eight(element, unit):
    """The eight elements that unit number `unit` holds in order."""
    return [f"{element} = 8{unit} + {i}" if i else f"{element} = 8{unit}" for i in range(8)]


def word(texts, kind="code", bits=4):
    """Cells of a word whose lowest field is texts[0]."""
    return [(text, bits, kind if i % 2 == 0 else kind + "2" if kind == "code" else kind)
            for i, text in enumerate(texts)][::-1]


def pair(low, high, kind="code"):
    return word([low, high], kind)


def bytes_of_two(count, low, high, more=True, kind="code"):
    """Cells of bytes, each with its two elements, the high nibble first as bits are drawn."""
    cells = [(f"{high(j)} | {low(j)}", 1, kind if j % 2 == 0 else kind + "2") for j in range(count)]
    return cells + ([("…", 0.6, "pad", None)] if more else [])


def number_types():
    card = Card("Number types of codes and scales", MSB)
    card.strip("E2M1\nFP4 codes", [("sign", 1, "sign"), ("exponent, bias 1", 2, "exponent"), ("mantissa", 1, "mantissa")])
    card.strip("E4M3 (FN)\nNVFP4 scales", [("sign", 1, "sign"), ("exponent, bias 7", 4, "exponent"), ("mantissa", 3, "mantissa")])
    card.strip("E8M0\nMXFP4 scales", [("exponent e: 2^(e − 127)", 8, "exponent")])
    return card


def rows():
    card = Card("ROWS: a row of W is a run of bytes", BOTH)
    card.strip("one byte b", pair("k = 2b", "k = 2b + 1"))
    card.strip("values, row n\nk of high | low", bytes_of_two(8, lambda b: 2 * b, lambda b: 2 * b + 1), "byte")
    card.strip("scales, row n", [(f"group {g}\nk {32 * g}..{32 * g + 31}", 1, "scale") for g in range(3)] + [("…", 0.4, "pad")], None)
    card.strip("zeros, row n", [(f"group {g}", 1, "zero") for g in range(3)] + [("…", 0.4, "pad")], None)
    card.note("Drawn for G = 32. INT8 values are one byte each, k = b.")
    return card


def k8n():
    card = Card("K8N: words of eight along K, columns side by side", MSB)
    card.strip("word (b, n)", word([f"8b + {i}" if i else "8b" for i in range(8)]))
    card.grid("values\n[K/8, N]", range(3), range(6), lambda b, n: (f"n {n}: k {8 * b + 7}…{8 * b}", "code" if (b + n) % 2 else "code2"),
              lambda b: f"b {b}", lambda n: f"n = {n}", 26)
    card.note("Words of a row of the tensor are neighbors in memory: n runs fastest.")
    return card


def gptq():
    card = Card("GPTQ: codes along K, zero points along N", MSB)
    card.strip("qweight (b, n)\nW[n, k]", word(eight("k", "b")))
    card.strip("qzeros (g, c)\nv1: z − 1", word([f"z−1, n {i}" for i in range(8)], "zero"))
    card.strip("qzeros (g, c)\nv2: z", word([f"z, n {i}" for i in range(8)], "zero"))
    card.note("n counts from 8c. A v1 nibble of 15 is read as its writer meant it (see the text). Scales are [groups, N]; g_idx[k] names the group of k with act-order.")
    return card


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def gptq_stream():
    card = Card("GPTQ with 3 bits: a column of words is one stream", MSB)
    for w in range(3):
        cells = []
        for k in range(32 * w // 3, (32 * w + 31) // 3 + 1):
            bits = min(3 * k + 3, 32 * w + 32) - max(3 * k, 32 * w)
            cells.append((k, bits, "code" if k % 2 == 0 else "code2"))
        card.strip(f"qweight ({w}, n)\nk of W[n, k]", cells[::-1])
    card.note("Drawn for k = 0…31. Codes 10 and 21 each lie in two words. qzeros (g, c) are such streams along N. Codes of 2 or 8 bits never cross words.")
    return card


def hqq():
    card = Card("HQQ: groups of the two halves of the matrix in one byte", BOTH)
    card.strip("one byte of W_q\nrow i, column j", pair("group i + M/2, element j", "group i, element j"))
    card.strip("W_q, row 0\ngroup of high | low", bytes_of_two(8, lambda j: "M/2", lambda j: 0), "byte")
    card.strip("scale, zero", [(f"group {g}", 1, "scale") for g in range(4)] + [("…", 0.4, "pad")], None)
    card.note("Group g is the elements g · G … g · G + G − 1 of W, flattened row by row. The value is (q − zero) · scale.")
    return card


def awq_gemm():
    card = Card("AWQ gemm: words of eight along N, woven", MSB)
    card.strip("qweight (k, c)", word([f"8c + {n}" if n else "8c" for n in AWQ_ORDER]))
    card.strip("qzeros (g, c)", word([f"z, n {n}" for n in AWQ_ORDER], "zero"))
    card.note("n of each nibble. Masking with 0x000f000f after shifts by 0, 4, 8, 12 gives the pairs (0, 1), (2, 3), (4, 5), (6, 7).")
    return card


def awq_gemv():
    card = Card("AWQ gemv: words of eight along K, zero points along the groups", MSB)
    card.strip("qweight (n, b)", word(eight("k", "b")))
    card.strip("qzeros (n, c)", word(eight("g", "c"), "zero"))
    card.note("Groups of a row are padded to whole words (G = 64: to two, G = 32: to four); scales [N, P] have the same padding.")
    return card


def awq_gemv_fast():
    card = Card("AWQ gemv_fast: four rows woven, units of 16 bits", BOTH)
    card.strip("unit p of a row", word([f"k = 32⌊p/8⌋ + {8 * j} + p mod 8" for j in range(4)]))
    card.strip("64 columns\nunits of 32 bytes", [(f"row 4b + {r}: units 0…15", 32, "code" if r % 2 == 0 else "code2") for r in range(4)], "byte")
    card.strip("row 4b: units\nk, low nibble first",
               [("\n".join([" ".join(str(32 * (p // 8) + 8 * j + p % 8) for j in half) for half in ((0, 1), (2, 3))]), 2,
                 "code" if p % 2 == 0 else "code2") for p in range(12)] + [("…", 1, "pad", None)], "byte")
    card.note("Scales and zeros [P, N]: the zero is −s · z, already rounded; value q · s + zero.")
    return card


def gguf(title, fields, detail):
    card = Card(title, BOTH)
    card.strip("one block", fields, "byte")
    for label, cells, unit in detail:
        card.strip(label, cells, unit)
    return card


def halves():
    return [("byte j of q", pair("element j", "element 16 + j"), "bit"),
            ("elements\nhigh | low", bytes_of_two(10, lambda j: j, lambda j: 16 + j), "byte")]


def gguf_q4_0():
    card = gguf("GGUF Q4_0: 32 elements in 18 bytes", [("d\nf16", 2.6, "scale", 2), ("q: 16 bytes of two codes", 16, "code", 16)], halves())
    card.note("Value (q − 8) · d. Bytes of q are counted from 0 in the lower rows.")
    return card


def gguf_q4_1():
    card = gguf("GGUF Q4_1: 32 elements in 20 bytes",
                [("d\nf16", 2.6, "scale", 2), ("m\nf16", 2.6, "zero", 2), ("q: 16 bytes of two codes", 16, "code", 16)], halves())
    card.note("Value q · d + m.")
    return card


def gguf_q8_0():
    card = gguf("GGUF Q8_0: 32 elements in 34 bytes", [("d\nf16", 2.6, "scale", 2)] +
                [(f"q{j}", 2, "code" if j % 2 == 0 else "code2", 1) for j in range(10)] + [("…", 2, "pad", 21), ("q31", 2, "code2", 1)],
                [("byte q", [("element j, two's complement", 8, "code")], "bit")])
    card.note("Value q · d.")
    return card


def gguf_mxfp4():
    card = gguf("GGUF MXFP4: 32 elements in 17 bytes", [("e\nE8M0", 2, "scale", 1), ("q: 16 bytes of two codes", 16, "code", 16)], halves())
    card.note("Value e2m1(q) · 2^(e − 127); code 8 is +0 here.")
    return card


def gguf_nvfp4():
    card = gguf("GGUF NVFP4: 64 elements in 36 bytes",
                [(f"d{g}", 1.6, "scale", 1) for g in range(4)] +
                [(f"group {g}\n{16 * g}…{16 * g + 15}", 8, "code" if g % 2 == 0 else "code2", 8) for g in range(4)],
                [("byte 8g + j of q", pair("16g + j", "16g + 8 + j"), "bit"),
                 ("group 0\nhigh | low", bytes_of_two(8, lambda j: j, lambda j: 8 + j, False), "byte")])
    card.note("d: E4M3 without sign. Value e2m1(q) · d · t, with t from the tensor NAME.scale.")
    return card


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


def mlx():
    card = Card("MLX: words of eight along K", MSB)
    card.strip("weight (n, b)", word(eight("k", "b")))
    card.strip("scales, row n", [(f"group {g}", 1, "scale") for g in range(4)] + [("…", 0.4, "pad")], None)
    card.strip("biases, row n\n(affine only)", [(f"group {g}", 1, "zero") for g in range(4)] + [("…", 0.4, "pad")], None)
    card.note("Affine: q · s + bias. mxfp4 and nvfp4: scales are bytes, E8M0 or E4M3. In memory the words are bytes of two, as in ROWS.")
    return card


def compressed_tensors():
    card = Card("compressed-tensors pack-quantized: codes along K, zero points along N", MSB)
    card.strip("weight_packed\n(n, b)", word(eight("k", "b")))
    card.strip("weight_zero_point\n(c, g)", word(eight("n", "c"), "zero"))
    card.note("Both count from 0: a code is q + 8, a zero point z + 8. The last word of a row is padded when K is no multiple of 8.")
    return card


def fp4_rows(title, group, scale, note):
    card = Card(title, BOTH)
    card.strip("byte b", pair("k = 2b", "k = 2b + 1"))
    per = group // 2
    card.strip("codes, row n", [(f"group {g}: k {group * g}…{group * g + group - 1}", per, "code" if g % 2 == 0 else "code2")
                                for g in range(3)] + [("…", per / 5, "pad", None)], "byte")
    card.strip("scales, row n", [(f"{scale} of group {g}", per, "scale", 1) for g in range(3)] + [("…", per / 5, "pad", None)], "byte")
    card.note(note)
    return card


def mxfp4_rows():
    return fp4_rows("MXFP4 in rows: groups of 32, one E8M0 byte each", 32, "E8M0",
                    "gpt-oss, Quark, compressed-tensors, MLX. 16 bytes of codes for one byte of scale: 4.25 bits a weight.")


def nvfp4_rows():
    return fp4_rows("NVFP4 in rows: groups of 16, one E4M3 byte each, one float32 a tensor", 16, "E4M3",
                    "ModelOpt multiplies by weight_scale_2, compressed-tensors divides by weight_global_scale. 4.5 bits a weight.")


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


def meta_unit(n, c, columns):
    """Where the unit of column n, blocks 4c .. 4c + 3, lies."""
    row = n // 64 * 64 + n % 2 * 2 + n % 8 // 4 + n % 4 // 2 * 32 + n % 64 // 8 * 4
    if row % 2 == 0 and c % 2 == 1:
        row, c = row + 1, c - 1
    elif row % 2 == 1 and c % 2 == 0:
        row, c = row - 1, c + 1
    return c // 2 * 2 * columns + 2 * row + c % 2


def marlin_24_meta():
    places = {meta_unit(n, c, 64): (n, c) for n in range(64) for c in range(2)}
    assert sorted(places) == list(range(128))
    card = Card("marlin-24: metadata, units of 16 bits", BOTH)
    card.strip("unit (n, c)", [(f"block 4c + {b}: pos1 pos0" if b else "block 4c: pos1 pos0", 4, "meta") for b in range(3, -1, -1)])
    card.note("Below: which unit n.c stands where, for N = 64 and K = 32; read along the rows, two bytes each.")
    card.grid("units in\nmemory", range(8), range(16), lambda i, j: ("%d.%d" % places[16 * i + j], "meta"), lambda i: f"unit {16 * i}",
              lambda j: f"+{j}")
    return card


def sparse_bitmask():
    mask = 0xA5
    card = Card("sparse-24-bitmask: two of four, and which", BOTH)
    card.strip("bitmask byte b\n0xA5", [(f"k = 8b{f' + {i}' if i else ''}\n{'kept' if mask >> i & 1 else '–'}", 1, "kept" if mask >> i & 1 else "gone")
                                        for i in range(7, -1, -1)], height=42)
    kept = [i for i in range(8) if mask >> i & 1]
    card.strip("compressed\nrow n", [(f"W[8b + {i}]", 1, "code" if j % 2 == 0 else "code2") for j, i in enumerate(kept)], None)
    card.strip("W, row n", [(f"W[8b + {i}]" if i in kept else "+0", 1, "kept" if i in kept else "gone") for i in range(8)], None)
    card.note("Rows are drawn with the first element on the left. Each four columns keep exactly two.")
    return card


def nibble_24():
    card = Card("2:4 metadata: a nibble for four elements", MSB)
    card.strip("nibble", [("pos1: place of the second kept", 2, "meta"), ("pos0: place of the first kept", 2, "meta")])
    valid = [(first, second) for second in range(1, 4) for first in range(second)]
    card.grid("the six that\nare valid", valid, ["nibble"] + list(range(4)),
              lambda p, c: (f"{p[1] << 2 | p[0]} = 0b{p[1] << 2 | p[0]:04b}", "meta") if c == "nibble" else
              (("first", "kept") if c == p[0] else ("second", "kept") if c == p[1] else ("0", "gone")),
              lambda p: "", lambda c: c if c == "nibble" else f"element 4j + {c}" if c else "element 4j")
    return card


def words_24():
    card = Card("2:4 in K8N: words of kept codes, words of metadata", MSB)
    card.strip("values (j, n)", word([f"block {4}j{'+' + str(b) if b else ''}\n{o}" for b in range(4) for o in ("first", "second")]), height=42)
    card.strip("sparse_meta (i, n)", word([f"block\n8i + {b}" if b else "block\n8i" for b in range(8)], "meta"), height=42)
    card.note("A block is four elements of K, j and i count words: value word j belongs to nibbles 4 (j mod 2) and up of metadata word ⌊j/2⌋.")
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


DRAWINGS = [number_types, rows, k8n, gptq, gptq_stream, hqq, awq_gemm, awq_gemv, awq_gemv_fast, gguf_q4_0, gguf_q4_1, gguf_q8_0, gguf_mxfp4, gguf_nvfp4,
            gguf_q5_0, gguf_q2_k, gguf_q3_k, gguf_q4_k, gguf_q6_k, gguf_iq4_xs, mlx, compressed_tensors, mxfp4_rows, nvfp4_rows, marlin_tile, marlin_24_tile, marlin_24_meta, sparse_bitmask, nibble_24,
            words_24, cpu_dense, cpu_sparse]


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
