"""The codes and scales of packed weights, found again in what the weights decode to.

The library gives decoded weights, exactly. A group has few scales that its largest weight could come from: that weight divided by
each of the format's magnitudes. A scale is taken if every weight of the group is one of its multiples, bit for bit, and the
format has codes for these multiples. So nothing is rounded a second time: the codes found either decode to the same weights, or
there is an error. A group with a zero point is the same with other codes: its multiples are those of the codes less the zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import errors
from ._abi import DType, Format, Layout, Status
from .checkpoint import LayerInfo
from .operands import Bits, numpy_type

Array = np.ndarray[Any, Any]
# Weights that are looked at together, so that what is computed of them stays in cache.
BLOCK = 2**18
# Weights of a group that a scale is tried on first, and groups of NVFP4 that a tensor scale is.
FEW = 8
# Groups of NVFP4 that it is tried on then.
SAMPLE = 256


@dataclasses.dataclass(frozen=True)
class Codes:
    """Codes, scales and zero points of the layout ROWS, as a Part takes them."""

    values: Any
    scales: Any
    zeros: Array | None = None
    tensor_scale: float | None = None


@dataclasses.dataclass(frozen=True)
class Levels:
    """The magnitudes of a format, in units of its smallest one.

    unit   the smallest one, times the scale
    peaks  the magnitudes, those that the library's rules give the largest weight of a group first
    code   of each magnitude; -1: it is none
    bits   of integers, whose magnitudes are their own codes; 0 of floats, which have a code and a sign
    """

    unit: float
    peaks: tuple[int, ...]
    code: Array
    bits: int = 0

    @property
    def middle(self) -> int:
        """The code of zero in a symmetric group."""
        return 1 << (self.bits - 1)


def _levels(unit: float, magnitudes: list[int], first: int, bits: int = 0) -> Levels:
    code = np.full(magnitudes[-1] + 1, -1, np.int16)
    code[magnitudes] = range(len(magnitudes))
    others = (each for each in reversed(magnitudes) if each not in (0, first))
    return Levels(unit, (first, *others), code, bits)


def _integers(bits: int) -> Levels:
    """Of a group with a zero point, the magnitudes that it may have, too."""
    return _levels(1.0, list(range(1 << bits)), (1 << (bits - 1)) - 1, bits)


BITS = {Format.INT2: 2, Format.INT3: 3, Format.INT4: 4, Format.INT5: 5, Format.INT6: 6, Format.INT8: 8, Format.UINT8: 8}
E2M1 = _levels(0.5, [0, 1, 2, 3, 4, 6, 8, 12], 12)
LEVELS = {**{format: _integers(bits) for format, bits in BITS.items()}, Format.FP4: E2M1, Format.MXFP4: E2M1, Format.NVFP4: E2M1}
SCALES = {Format.MXFP4: (DType.E8M0,), Format.NVFP4: (DType.E4M3,)}
FLOAT_SCALES = (DType.F16, DType.BF16, DType.F32)
# Two codes of these are a byte of the layout ROWS; other codes are a byte each.
FOUR_BITS = (Format.INT4, Format.FP4, Format.MXFP4, Format.NVFP4, Format.IQ4, Format.NF4, Format.CODEBOOK4)
FLOATS = {Format.FLOAT32: DType.F32, Format.FLOAT16: DType.F16, Format.BFLOAT16: DType.BF16}
# What E4M3 bytes from 0 to 0x7E are worth.
E4M3 = np.array([m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][:127])


# Elements and bytes of GGUF's blocks, by format, additive zeros and two-level scales. Those of MXFP4 and NVFP4 have no -0.
BLOCKS = {
    (Format.INT4, False, False): (32, 18),
    (Format.INT4, True, False): (32, 20),
    (Format.INT5, False, False): (32, 22),
    (Format.INT5, True, False): (32, 24),
    (Format.INT8, False, False): (32, 34),
    (Format.IQ4, False, False): (32, 18),
    (Format.INT2, True, True): (256, 84),
    (Format.INT3, False, True): (256, 110),
    (Format.INT4, True, True): (256, 144),
    (Format.INT5, True, True): (256, 176),
    (Format.INT6, False, True): (256, 210),
    (Format.IQ4, False, True): (256, 136),
}


def block_bytes(info: LayerInfo) -> int:
    """Of a row of weights that came in GGUF's blocks, which the library gives back as they were; 0 of other weights."""
    elements, size = BLOCKS.get((info.format, info.additive_zeros, info.two_level_scales), (1, 0))
    return info.k // elements * size if info.layout == Layout.GGUF else 0


def why_not(info: LayerInfo) -> str:
    """Why the codes of such weights cannot be found; "" when they can."""
    special = [name for name in ("additive_zeros", "act_order") if getattr(info, name)]
    if special:
        return f"they have {' and '.join(special)}"
    if info.format in FLOATS:
        return ""
    if info.format not in LEVELS:
        return f"their format is {info.format.name}, expected {', '.join(each.name for each in (*LEVELS, *FLOATS))}"
    known = SCALES.get(info.format, FLOAT_SCALES)
    if info.dtype not in known:
        return f"their scales are {info.dtype.name}, expected {' or '.join(each.name for each in known)}"
    return ""


def lost(why: str) -> errors.MarlinError:
    return errors.from_status(Status.UNSUPPORTED, f"the codes of these weights cannot be found again, because {why}")


def find(values: Array, info: LayerInfo) -> Codes:
    """values: what weights of this info decode to, float32 [N, K]."""
    rows = max(1, BLOCK // info.k)
    blocks = [_grouped(values[first : first + rows], info.group_size) for first in range(0, len(values), rows)]
    levels, tensor_scale = LEVELS[info.format], None
    if info.format == Format.NVFP4:
        found, tensor_scale = _two_levels(blocks)
        stored: Any = Bits(np.concatenate(found), DType.E4M3)
        scales = [E4M3[each] * tensor_scale for each in found]
    else:
        scales = [_one_level(block, info) for block in blocks]
        stored = _stored(np.concatenate(scales), info.dtype)
    if not levels.bits:
        codes = [_multiples(block, worth, levels)[0] + 8 * np.signbit(block) for block, worth in zip(blocks, scales)]
        return Codes(np.concatenate([_rows(each, info) for each in codes]), stored, None, tensor_scale)
    signed = [np.rint(block / worth[..., None]).astype(np.int32) for block, worth in zip(blocks, scales)]
    zeros = [_zeros(each, info) for each in signed]
    codes = [_rows(each + zero[..., None], info) for each, zero in zip(signed, zeros)]
    return Codes(np.concatenate(codes), stored, np.concatenate(zeros).astype(np.uint8) if info.zeros else None)


def _grouped(values: Array, size: int) -> Array:
    """[N, groups, size], with the last weight again behind the end of a row."""
    n, k = values.shape
    count = -(-k // size)
    if count * size != k:
        values = np.pad(values, ((0, 0), (0, count * size - k)), mode="edge")
    return values.reshape(n, count, size)


def _multiples(groups: Array, scales: Array, levels: Levels) -> tuple[Array, Array]:
    """The codes of the magnitudes, and for each group whether its weights are such multiples of its scale, which is float64."""
    units = np.abs(scales[..., None]) * levels.unit
    multiples = np.minimum(np.rint(np.abs(groups) / units), len(levels.code))
    codes = np.append(levels.code, -1)[multiples.astype(np.int64)]
    return codes, ((codes >= 0) & ((multiples * units).astype(np.float32) == np.abs(groups))).all(axis=-1)


def _zeros(multiples: Array, info: LayerInfo) -> Array:
    """The zero point of each group: the least that gives all its multiples a code."""
    if info.zeros:
        zeros: Array = np.maximum(-multiples.min(axis=-1), 0)
        return zeros
    return np.full(multiples.shape[:-1], LEVELS[info.format].middle)


def _has_codes(groups: Array, scales: Array, info: LayerInfo) -> Array:
    """For each group of integers, whether its multiples have codes. Zeros have the sign of their scale."""
    multiples, count = np.rint(groups / scales[..., None]), 1 << LEVELS[info.format].bits
    zeros = _zeros(multiples, info)
    codes = multiples + zeros[..., None]
    inside: Array = (zeros < count) & (codes.min(axis=-1) >= 0) & (codes.max(axis=-1) < count)
    inside &= ((groups != 0) | (np.signbit(groups) == (scales < 0)[..., None])).all(axis=-1)
    return inside


def _peaks(groups: Array) -> Array:
    peaks: Array = np.abs(groups).max(axis=-1)
    return peaks


def _one_level(groups: Array, info: LayerInfo) -> Array:
    """The scale of each group, as float64."""
    powers, levels, peaks = info.dtype == DType.E8M0, LEVELS[info.format], _peaks(groups)
    worth = np.full(peaks.shape, 2.0**-127 if powers else 1.0)  # those of a group of zeros
    if levels.bits:
        worth[np.signbit(groups).all(axis=-1)] = -1.0
    left = peaks > 0
    for magnitude in levels.peaks:
        if not left.any():
            break
        exact = peaks.astype(np.float64) / (magnitude * levels.unit)
        for candidate in _powers(exact) if powers else _floats(exact, info.dtype):
            # Integers have one code more on one side of zero, on which a scale below 0 has the larger weights.
            for signed in (candidate, -candidate) if levels.bits else (candidate,):
                index = np.nonzero(left & (candidate > 0))
                for some in (groups[..., :FEW], groups):  # few weights refuse most wrong scales
                    taken = _multiples(some[index], signed[index], levels)[1]
                    if levels.bits:
                        taken &= _has_codes(some[index], signed[index], info)
                    index = tuple(each[taken] for each in index)
                worth[index], left[index] = signed[index], False
    if left.any():
        raise lost(f"{int(left.sum())} of their groups have no scale that decodes to their values")
    return worth


def _stored(worth: Array, dtype: DType) -> Any:
    if dtype == DType.E8M0:
        return Bits((np.log2(worth) + 127).astype(np.uint8), dtype)
    return Bits(_bits_of_bfloat16(worth), dtype) if dtype == DType.BF16 else worth.astype(numpy_type(dtype))


def _bits_of_bfloat16(values: Array) -> Array:
    """Rounded to nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def _powers(exact: Array) -> Iterator[Array]:
    mantissa, exponent = np.frexp(exact)
    yield np.where((mantissa == 0.5) & (exponent > -127) & (exponent <= 128), exact, 0)


def _floats(exact: Array, dtype: DType) -> Iterator[Array]:
    """Beside the nearest one its neighbors: a product in float32 may have been rounded."""
    with np.errstate(over="ignore"):
        if dtype == DType.BF16:
            nearest: Array = (_bits_of_bfloat16(exact).astype(np.uint32) << np.uint32(16)).view(np.float32)
        else:
            nearest = exact.astype(numpy_type(dtype))
    nearest[~np.isfinite(nearest)] = 0
    yield nearest.astype(np.float64)
    if dtype == DType.F32:
        yield np.nextafter(nearest, np.float32(0)).astype(np.float64)
        yield np.nextafter(nearest, np.float32(np.inf)).astype(np.float64)


def _two_levels(blocks: list[Array]) -> tuple[list[Array], float]:
    """The E4M3 bytes of the scales of each block, and the tensor scale. Few of the largest groups refuse most wrong tensor scales."""
    largest = max(blocks, key=lambda block: float(_peaks(block).max()))
    flat = largest.reshape(-1, largest.shape[-1])
    some = flat[np.argsort(_peaks(flat))[-SAMPLE:]]
    for tensor_scale in _tensor_scales(float(_peaks(some).max())):
        if any(_bytes(each, tensor_scale) is None for each in (some[-FEW:], some)):
            continue
        found = [_bytes(block, tensor_scale) for block in blocks]
        if all(each is not None for each in found):
            return [each for each in found if each is not None], tensor_scale
    raise lost("no tensor scale decodes to their values")


def _tensor_scales(top: float) -> Iterator[float]:
    """The rule gives the largest weight the code 6 and the scale 448; a search for the least error may give others."""
    if top == 0:
        yield 1.0
        return
    for scale in E4M3[:0:-1]:
        for magnitude in E2M1.peaks:
            nearest = np.float32(top / (scale * magnitude * E2M1.unit))
            yield float(nearest)
            yield float(np.nextafter(nearest, np.float32(0)))
            yield float(np.nextafter(nearest, np.float32(np.inf)))


def _bytes(groups: Array, tensor_scale: float) -> Array | None:
    """None: some group has no scale with this tensor scale."""
    if tensor_scale == 0:
        return None
    peaks = _peaks(groups)
    found = np.full(peaks.shape, np.searchsorted(E4M3, 1.0), np.uint8)  # the scale of a group of zeros
    left = peaks > 0
    for magnitude in E2M1.peaks:
        exact = peaks.astype(np.float64) / (magnitude * E2M1.unit * tensor_scale)
        above = np.clip(np.searchsorted(E4M3, exact), 2, len(E4M3) - 1)
        nearest = np.where(E4M3[above] - exact < exact - E4M3[above - 1], above, above - 1)
        where = np.nonzero(left)
        taken = _multiples(groups[where], E4M3[nearest[where]] * tensor_scale, E2M1)[1]
        index = tuple(each[taken] for each in where)
        found[index], left[index] = nearest[index], False
        if not left.any():
            return found
    return None


def _rows(codes: Array, info: LayerInfo) -> Array:
    """Codes in groups, as the layout ROWS has them."""
    codes = codes.reshape(len(codes), -1)[:, : info.k]
    if info.format == Format.INT8:
        return (codes - LEVELS[info.format].middle).astype(np.int8)
    if info.format not in FOUR_BITS:
        return codes.astype(np.uint8)
    nibbles = codes.astype(np.uint8)
    if info.k % 2:
        nibbles = np.pad(nibbles, ((0, 0), (0, 1)))
    return nibbles[:, ::2] | nibbles[:, 1::2] << 4
