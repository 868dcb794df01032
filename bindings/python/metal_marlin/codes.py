"""The codes and scales of packed weights, found again in what the weights decode to.

The library gives decoded weights, exactly. A symmetric group that was quantized from floats has few scales that its largest
weight could come from: that weight divided by each of the format's magnitudes. A scale is taken if every weight of the group is
one of its multiples, bit for bit. So nothing is rounded a second time: the codes found either decode to the same weights, or
there is an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import errors
from ._abi import DType, Format, Status
from .checkpoint import LayerInfo
from .operands import Bits, numpy_type

Array = np.ndarray[Any, Any]
# Weights that are looked at together, so that what is computed of them stays in cache.
BLOCK = 2**18
# Groups of NVFP4 that a tensor scale is tried on first.
SAMPLE = 256


@dataclasses.dataclass(frozen=True)
class Codes:
    """Codes and scales of the layout ROWS, or floats, as a Part takes them. scales: None of floats."""

    values: Any
    scales: Any = None
    tensor_scale: float | None = None


@dataclasses.dataclass(frozen=True)
class Levels:
    """The magnitudes of a format, in units of its smallest one.

    unit   the smallest one, times the scale
    peaks  the magnitudes, those that the library's rules give the largest weight of a group first
    code   of each magnitude; -1: it is none
    """

    unit: float
    peaks: tuple[int, ...]
    code: Array


def _levels(unit: float, magnitudes: list[int], first: int) -> Levels:
    code = np.full(magnitudes[-1] + 1, -1, np.int16)
    code[magnitudes] = range(len(magnitudes))
    others = (each for each in reversed(magnitudes) if each not in (0, first))
    return Levels(unit, (first, *others), code)


E2M1 = _levels(0.5, [0, 1, 2, 3, 4, 6, 8, 12], 12)
LEVELS = {
    Format.INT4: _levels(1.0, list(range(9)), 7),
    Format.INT8: _levels(1.0, list(range(129)), 127),
    Format.FP4: E2M1,
    Format.MXFP4: E2M1,
    Format.NVFP4: E2M1,
}
SCALES = {
    Format.INT4: (DType.F16, DType.F32),
    Format.INT8: (DType.F16, DType.F32),
    Format.FP4: (DType.F16, DType.F32),
    Format.MXFP4: (DType.E8M0,),
    Format.NVFP4: (DType.E4M3,),
}
FLOATS = {Format.FLOAT32: DType.F32, Format.FLOAT16: DType.F16, Format.BFLOAT16: DType.BF16}
# What E4M3 bytes from 0 to 0x7E are worth.
E4M3 = np.array([m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][:127])


def why_not(info: LayerInfo) -> str:
    """Why the codes of such weights cannot be found; "" when they can."""
    special = [name for name in ("zeros", "additive_zeros", "act_order") if getattr(info, name)]
    if special:
        return f"they have {' and '.join(special)}"
    if info.format in FLOATS:
        return ""
    if info.format not in LEVELS:
        return f"their format is {info.format.name}, expected {', '.join(each.name for each in (*LEVELS, *FLOATS))}"
    if info.dtype not in SCALES[info.format]:
        return f"their scales are {info.dtype.name}, expected {' or '.join(each.name for each in SCALES[info.format])}"
    return ""


def unsaved(why: str) -> errors.MarlinError:
    return errors.from_status(Status.UNSUPPORTED, f"these weights cannot be saved, because {why}: load them from their file again")


def find(values: Array, info: LayerInfo) -> Codes:
    """values: what weights of this info decode to, float32 [N, K]."""
    rows = max(1, BLOCK // info.k)
    blocks = [_grouped(values[first : first + rows], info.group_size) for first in range(0, len(values), rows)]
    tensor_scale = None
    if info.format == Format.NVFP4:
        found, tensor_scale = _two_levels(blocks)
        stored: Any = Bits(np.concatenate(found), DType.E4M3)
        scales = [E4M3[each] * tensor_scale for each in found]
    else:
        scales = [_one_level(block, info) for block in blocks]
        stored = _stored(np.concatenate(scales), info.dtype)
    levels = LEVELS[info.format]
    codes = [_rows(_multiples(block, worth, levels)[0], np.signbit(block), info) for block, worth in zip(blocks, scales)]
    return Codes(np.concatenate(codes), stored, tensor_scale)


def _grouped(values: Array, size: int) -> Array:
    """[N, groups, size], with zeros behind the end of a row."""
    n, k = values.shape
    count = -(-k // size)
    if count * size != k:
        values = np.pad(values, ((0, 0), (0, count * size - k)))
    return values.reshape(n, count, size)


def _multiples(groups: Array, scales: Array, levels: Levels) -> tuple[Array, Array]:
    """The codes of the magnitudes, and for each group whether its weights are such multiples of its scale, which is float64."""
    units = scales[..., None] * levels.unit
    multiples = np.minimum(np.rint(np.abs(groups) / units), len(levels.code))
    codes = np.append(levels.code, -1)[multiples.astype(np.int64)]
    return codes, ((codes >= 0) & ((multiples * units).astype(np.float32) == np.abs(groups))).all(axis=-1)


def _peaks(groups: Array) -> Array:
    peaks: Array = np.abs(groups).max(axis=-1)
    return peaks


def _one_level(groups: Array, info: LayerInfo) -> Array:
    """The scale of each group, as float64."""
    powers, levels, peaks = info.dtype == DType.E8M0, LEVELS[info.format], _peaks(groups)
    worth = np.full(peaks.shape, 2.0**-127 if powers else 1.0)  # those of a group of zeros
    left = peaks > 0
    for magnitude in levels.peaks:
        exact = peaks.astype(np.float64) / (magnitude * levels.unit)
        for candidate in _powers(exact) if powers else _floats(exact, info.dtype):
            where = np.nonzero(left & (candidate > 0))
            taken = _multiples(groups[where], candidate[where], levels)[1]
            index = tuple(each[taken] for each in where)
            worth[index], left[index] = candidate[index], False
        if not left.any():
            return worth
    raise unsaved(f"{int(left.sum())} of their groups have no scale that decodes to their values")


def _stored(worth: Array, dtype: DType) -> Any:
    if dtype == DType.E8M0:
        return Bits((np.log2(worth) + 127).astype(np.uint8), dtype)
    return worth.astype(numpy_type(dtype))


def _powers(exact: Array) -> Iterator[Array]:
    mantissa, exponent = np.frexp(exact)
    yield np.where((mantissa == 0.5) & (exponent > -127) & (exponent <= 128), exact, 0)


def _floats(exact: Array, dtype: DType) -> Iterator[Array]:
    """Beside the nearest one its neighbors: a product in float32 may have been rounded."""
    with np.errstate(over="ignore"):
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
        if _bytes(some, tensor_scale) is None:
            continue
        found = [_bytes(block, tensor_scale) for block in blocks]
        if all(each is not None for each in found):
            return [each for each in found if each is not None], tensor_scale
    raise unsaved("no tensor scale decodes to their values")


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


def _rows(codes: Array, negative: Array, info: LayerInfo) -> Array:
    """Codes of magnitudes with their signs, as the layout ROWS has them."""
    codes, negative = (each.reshape(len(codes), -1)[:, : info.k] for each in (codes, negative))
    if info.format == Format.INT8:
        return np.where(negative, -codes, codes).astype(np.int8)
    from_zero = info.format == Format.INT4
    nibbles = (np.where(negative, 8 - codes, 8 + codes) if from_zero else codes + 8 * negative).astype(np.uint8)
    if info.k % 2:
        nibbles = np.pad(nibbles, ((0, 0), (0, 1)))
    return nibbles[:, ::2] | nibbles[:, 1::2] << 4
