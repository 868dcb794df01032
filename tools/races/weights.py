"""Weights that every candidate gets the same: random codes and scales, and what they are worth in float64.

Scales are numbers that float16 and bfloat16 both hold, so that no candidate has to round them.
"""
import dataclasses

import numpy as np
from peer import needs

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float64)
E2M1 = np.concatenate([E2M1, -E2M1])


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A type of GGUF's blocks, whose bytes are random but for the float16 numbers at these bytes of a block.

    elements, bytes  of a block
    scale            where the scale is
    minimum          where the factor of the minima is, or the minimum; None: there is none
    middle           minimum / scale that gives weights the mean 0"""

    elements: int
    bytes: int
    scale: int
    minimum: int | None = None
    middle: float = 0


@dataclasses.dataclass(frozen=True)
class Format:
    """name     as --formats takes it
    base     the library's name of the format
    group    elements of K with one scale
    additive q * s + zero instead of (q - 8) * s
    blocks   for weights that are blocks of GGUF from the start, the type of this name"""

    name: str
    base: str
    group: int
    additive: bool = False
    blocks: Blocks | None = None

    @property
    def bits(self):
        """The bits of a weight with its scale and zero, as files store it."""
        if self.blocks:
            return 8 * self.blocks.bytes / self.blocks.elements
        scale = 8 if self.base in ("mxfp4", "nvfp4") else 32 if self.additive else 16
        return (8 if self.base == "int8" else 4) + scale / self.group


FORMATS = {each.name: each for each in (
    Format("mxfp4", "mxfp4", 32),
    Format("nvfp4", "nvfp4", 16),
    Format("int4", "int4", 32),
    Format("int4-g128", "int4", 128),
    Format("int4-zeros", "int4", 32, additive=True),
    Format("int4-zeros-g64", "int4", 64, additive=True),
    Format("int8", "int8", 32),
    Format("q2_k", "int2", 16, True, Blocks(256, 84, 80, 82, 1.5)),
    Format("q3_k", "int3", 16, False, Blocks(256, 110, 108)),
    Format("q4_k", "int4", 32, True, Blocks(256, 144, 0, 2, 7.5)),
    Format("q5_k", "int5", 32, True, Blocks(256, 176, 0, 2, 15.5)),
    Format("q6_k", "int6", 16, False, Blocks(256, 210, 208)),
    Format("q5_0", "int5", 32, False, Blocks(32, 22, 0)),
    Format("q5_1", "int5", 32, True, Blocks(32, 24, 0, 2, -15.5)),
    Format("iq4_nl", "iq4", 32, False, Blocks(32, 18, 0)),
    Format("iq4_xs", "iq4", 32, False, Blocks(256, 136, 0)),
)}


def bf16_bits(values):
    """The nearest bfloat16 of float32 values, as uint16; ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def to_bf16(values):
    """The values rounded to bfloat16, as float32."""
    return (bf16_bits(values).astype(np.uint32) << 16).view(np.float32)


def e4m3_value(bits):
    """Of numbers that are neither subnormal nor negative."""
    return np.ldexp(1 + (bits & 7) / 8, (bits >> 3).astype(np.int64) - 7)


def halves(codes, block):
    """Two codes a byte, the first half of each block in the low nibbles: the order inside the blocks of GGUF."""
    pairs = codes.reshape(len(codes), -1, 2, block // 2)
    return pairs[:, :, 0] | pairs[:, :, 1] << 4


class Weights:
    """W[n, k]. codes: uint8 [n, ceil(k / 2)], the even k in the low nibble, or int8 [n, k]; scales [n, ceil(k / group)]: uint8 bits
    (E8M0, E4M3) or float32; zeros: float32, or None. Of several experts number e has the rows from e to e + n of all of these: no two
    are alike, and together they are hardly larger than one."""

    def __init__(self, fmt, n, k, experts=1, seed=1):
        self.format, self.n, self.k, self.experts = fmt, n, k, experts
        random = np.random.default_rng(seed)
        groups, n = -(-k // fmt.group), n + experts - 1
        if fmt.base == "int8":
            self.codes = random.integers(-127, 128, (n, k), np.int8)
        else:
            self.codes = random.integers(0, 256, (n, -(-k // 2)), np.uint8)
            if k % 2:
                self.codes[:, -1] &= 15
        self.zeros = None
        # Like the scales of a trained layer, these are within a few powers of two of each other.
        if fmt.base == "mxfp4":
            self.scales = random.integers(118, 126, (n, groups), np.uint8)
        elif fmt.base == "nvfp4":
            self.scales = random.integers(0x28, 0x50, (n, groups), np.uint8)
        else:
            self.scales = to_bf16(0.002 + 0.01 * random.random((n, groups), np.float32))
            if fmt.additive:
                self.zeros = to_bf16(-0.02 - 0.08 * random.random((n, groups), np.float32))

    @property
    def bytes(self):
        """The weights as files store them, for candidates that do not define another form."""
        return round(self.experts * self.n * self.k * self.format.bits / 8)

    def each_code(self, rows):
        """uint8 or int8 [rows, k]"""
        codes = self.codes[rows]
        return codes if codes.dtype == np.int8 else np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)[:, :self.k]

    def values(self, rows):
        """float64 [rows, k]"""
        group, scales = self.format.group, self.scales[rows]
        if self.format.base == "mxfp4":
            scales = np.ldexp(1.0, scales.astype(np.int64) - 127)
        elif self.format.base == "nvfp4":
            scales = e4m3_value(scales)
        spread = lambda each: np.repeat(each.astype(np.float64), group, 1)[:, :self.k]
        codes = self.each_code(rows)
        if self.format.base in ("mxfp4", "nvfp4"):
            return E2M1[codes] * spread(scales)
        if self.zeros is not None:
            return codes * spread(scales) + spread(self.zeros[rows])
        return (codes.astype(np.float64) - (8 if self.format.base == "int4" else 0)) * spread(scales)

    def blocks(self):
        """The bytes of GGUF's blocks, uint8 [experts, n, bytes of a row]: Q4_0, Q4_1, Q8_0, MXFP4 or NVFP4 (docs/formats.md)."""
        rows = len(self.codes)
        half = lambda each: each.astype(np.float16).view(np.uint8).reshape(rows, -1, 2)
        if self.format.base == "int8":
            parts = [half(self.scales), self.codes.view(np.uint8).reshape(rows, -1, 32)]
        elif self.format.base == "nvfp4":
            parts = [self.scales.reshape(rows, -1, 4), halves(self.each_code(slice(None)), 16).reshape(rows, -1, 32)]
        else:
            codes = halves(self.each_code(slice(None)), 32)
            if self.format.base == "mxfp4":
                parts = [self.scales.reshape(rows, -1, 1), codes]
            else:
                parts = [half(self.scales), *([half(self.zeros)] if self.zeros is not None else []), codes]
        blocks = np.concatenate(parts, -1).reshape(rows, -1)
        return np.stack([blocks[e:e + self.n] for e in range(self.experts)])


class BlockWeights:
    """W[n, k] of random blocks, with the members of Weights that do not tell codes from scales. The package gguf decodes them."""

    def __init__(self, fmt, n, k, experts=1, seed=1):
        needs(k % fmt.blocks.elements == 0, f"{fmt.name} has K in multiples of {fmt.blocks.elements}")
        self.format, self.n, self.k, self.experts = fmt, n, k, experts
        random, rows = np.random.default_rng(seed), n + experts - 1
        self.data = random.integers(0, 256, (rows, k // fmt.blocks.elements, fmt.blocks.bytes), np.uint8)
        scales = (1e-4 + 1e-4 * random.random(self.data.shape[:2])).astype(np.float16)
        half = lambda values: values.astype(np.float16)[..., None].view(np.uint8)
        self.data[..., fmt.blocks.scale:fmt.blocks.scale + 2] = half(scales)
        if fmt.blocks.minimum is not None:
            self.data[..., fmt.blocks.minimum:fmt.blocks.minimum + 2] = half(scales * fmt.blocks.middle)
        self.data = self.data.reshape(rows, -1)

    @property
    def bytes(self):
        """The weights as files store them."""
        return self.experts * self.n * self.data.shape[1]

    def values(self, rows):
        """float64 [rows, k]"""
        import gguf
        return gguf.quants.dequantize(self.data[rows], gguf.GGMLQuantizationType[self.format.name.upper()]).astype(np.float64)

    def blocks(self):
        """uint8 [experts, n, bytes of a row]"""
        return np.stack([self.data[e:e + self.n] for e in range(self.experts)])


def weights_of(fmt, n, k, experts=1):
    return (BlockWeights if fmt.blocks else Weights)(fmt, n, k, experts)


def expert_ids(m, experts, top_k, draws):
    """int32 [draws, m, top_k]. The experts of a row differ, and every choice is equally likely. Every draw is the first draw with
    renamed experts, so all draws have the same number of experts."""
    random = np.random.default_rng(m)
    first = np.argsort(random.random((m, experts)), -1)[:, :top_k]
    return np.stack([random.permutation(experts)[first] for _ in range(draws)]).astype(np.int32)


def shape_text(shape):
    """The shape of a record, or of another mapping with N and K, and with experts and top_k if it has experts."""
    mixture = f", {shape['top_k']} of {shape['experts']} experts" if "experts" in shape else ""
    return f"{shape['N']} x {shape['K']}{mixture}"


def nmse(result, wanted):
    """The mean squared error divided by the mean square of the expected values."""
    return float(np.sum((np.asarray(result, np.float64) - wanted) ** 2) / np.sum(wanted ** 2))
