"""How floats become codes."""

from __future__ import annotations

import dataclasses

from . import _abi, errors
from ._abi import Format
from ._library import constant

FLAGS = ("additive_zeros", "divide_scale", "prune_2_4", "obeys_2_4", "gate_up_interleaved", "scales_mse", "two_level_scales")


def flags_of(options: object, prefix: str) -> int:
    """The flags of these options, which are called as the constants of the ABI are."""
    return sum(getattr(_abi, prefix + name.upper()) for name in FLAGS if getattr(options, name, False))


def group_size_of(elements: int, name: str = "group_size") -> int:
    """Any number at or above K is the whole row, so what 32 bits cannot hold is."""
    if not isinstance(elements, int):
        raise TypeError(f"{name} is {elements!r}, expected a number of elements")
    if elements < 0:
        raise errors.argument(f"{name} is {elements}, expected 0 or more")
    return min(elements, 2**32 - 1)


@dataclasses.dataclass(frozen=True)
class Quantize:
    """How floats become codes.

    format      what a weight is worth
    group_size  elements of K that share a scale; 0: the format's own (32, NVFP4 16); K or more: the whole row
    scales_mse  the scales of least squared error
    prune_2_4   keep the two largest of every 4 along K
    obeys_2_4   the values obey 2:4: store them sparse
    """

    format: Format = Format.NONE
    group_size: int = 0
    scales_mse: bool = False
    prune_2_4: bool = False
    obeys_2_4: bool = False

    def __post_init__(self) -> None:
        constant(self.format, Format, "format")
        group_size_of(self.group_size)


NOT_QUANTIZED = Quantize()
