"""Where weights were loaded from: what stands for them in a pickle when their codes cannot be found again."""

from __future__ import annotations

import dataclasses
import json
import zlib
from typing import Any

import numpy as np

from . import errors
from ._abi import Format, GptqZeroF, Layout, Status
from .quantize import Quantize

# Rows that are compared, evenly spaced.
ROWS = 16


@dataclasses.dataclass(frozen=True)
class Shard:
    """A part of a layer, in elements of N, K and experts: the first, and how many; 0: all from there on."""

    first: tuple[int, int, int] = (0, 0, 0)
    count: tuple[int, int, int] = (0, 0, 0)


@dataclasses.dataclass(frozen=True)
class Source:
    """A file, its layers, and how they were loaded.

    path   absolute
    check  of what some of the rows decode to, so that another file of this name is an error; 0: not taken yet
    """

    path: str
    layout: Layout
    gptq_zero_f: GptqZeroF
    layers: tuple[str, ...]
    quantize: Quantize
    shards: tuple[Shard, ...] | None
    experts: int
    check: int = 0
    outputs_first: bool | None = None

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Source:
        found = json.loads(text)
        quantize = found.pop("quantize")
        quantize["format"] = Format(quantize["format"])
        shards = found.pop("shards")
        if shards is not None:
            shards = tuple(Shard(tuple(each["first"]), tuple(each["count"])) for each in shards)
        layout, zero_f = Layout(found.pop("layout")), GptqZeroF(found.pop("gptq_zero_f"))
        found["layers"] = tuple(found["layers"])
        return cls(layout=layout, gptq_zero_f=zero_f, quantize=Quantize(**quantize), shards=shards, **found)

    def of(self, weights: Any) -> Source:
        """With the check of these weights."""
        return dataclasses.replace(self, check=check_of(weights))

    def compare(self, weights: Any) -> None:
        if self.check != check_of(weights):
            what = f"{', '.join(self.layers)} decodes to other values than when it was saved"
            raise errors.from_status(Status.FORMAT, f"{self.path}: {what}: expected the same file")


def check_of(weights: Any) -> int:
    info, found = weights.info(), 0
    for row in np.linspace(0, info.n * info.experts - 1, ROWS).astype(int):
        found = zlib.crc32(weights.unpack(int(row), 1).tobytes(), found)
    return found
