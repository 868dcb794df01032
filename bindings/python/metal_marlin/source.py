"""Where weights were loaded from, and a copy of that part of the file, which stands for them where their codes cannot be found again."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import errors
from ._abi import Format, GptqZeroF, Layout, Status
from .quantize import Quantize

# Rows that are compared, evenly spaced.
ROWS = 16
# What the library reads of a folder: one checkpoint, the first kind that is there, and what is said of its layers.
INDEX, DATA = ".safetensors.index.json", ".safetensors"
CONFIGS = ("config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json")
# In a copy, how its layers are loaded.
HOW = "load.json"


@dataclasses.dataclass(frozen=True)
class Shard:
    """A part of a layer, in elements of N, K and experts: the first, and how many; 0: all from there on."""

    first: tuple[int, int, int] = (0, 0, 0)
    count: tuple[int, int, int] = (0, 0, 0)


@dataclasses.dataclass(frozen=True)
class Source:
    """A file, its layers, and how they were loaded.

    path   absolute
    keeps  the folder, if it is a temporary one
    """

    path: str
    layout: Layout
    gptq_zero_f: GptqZeroF
    layers: tuple[str, ...]
    quantize: Quantize
    shards: tuple[Shard, ...] | None
    experts: int
    outputs_first: bool | None
    keeps: Any = None

    def copy(self, weights: Any) -> bytes:
        """A checkpoint of these layers alone, as a ZIP file, with a check of what they decode to: the file may have changed since."""
        how = {name: getattr(self, name) for name in ("layout", "gptq_zero_f", "layers", "experts", "outputs_first")}
        how |= {"quantize": dataclasses.asdict(self.quantize), "check": check_of(weights)}
        how["shards"] = None if self.shards is None else [(each.first, each.count) for each in self.shards]
        path, made = pathlib.Path(self.path), io.BytesIO()
        try:
            parts = {HOW: json.dumps(how).encode(), f"model{DATA}": _alone(_files(path), self.layers)}
            folder = path if path.is_dir() else path.parent
            parts |= {name: (folder / name).read_bytes() for name in CONFIGS if (folder / name).exists()}
        except OSError as error:
            raise errors.from_status(Status.FILE, f"{self.path}: {error}") from None
        with zipfile.ZipFile(made, "w") as archive:
            for name, data in parts.items():
                archive.writestr(zipfile.ZipInfo(name), data)
        return made.getvalue()

    @classmethod
    def of_copy(cls, copy: bytes) -> tuple[Source, int]:
        """In a folder that lives as long as it does, and the check."""
        folder = tempfile.TemporaryDirectory(prefix="metal-marlin-")
        with zipfile.ZipFile(io.BytesIO(copy)) as archive:
            archive.extractall(folder.name)
            how = json.loads(archive.read(HOW))
        check, quantize, shards = how.pop("check"), how.pop("quantize"), how.pop("shards")
        quantize["format"] = Format(quantize["format"])
        if shards is not None:
            shards = tuple(Shard(tuple(first), tuple(count)) for first, count in shards)
        layout, zero_f, layers = Layout(how.pop("layout")), GptqZeroF(how.pop("gptq_zero_f")), tuple(how.pop("layers"))
        return cls(folder.name, layout, zero_f, layers, Quantize(**quantize), shards, **how, keeps=folder), check


def check_of(weights: Any) -> int:
    info, found = weights.info(), 0
    for row in np.linspace(0, info.n * info.experts - 1, ROWS).astype(int):
        found = zlib.crc32(weights.unpack(int(row), 1).tobytes(), found)
    return found


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    """The safetensors files of a checkpoint."""
    path.stat()  # an OSError when it is gone
    if path.is_dir():
        path = next((each for ending in (INDEX, DATA) for each in path.glob(f"*{ending}")), path)
    if path.name.endswith(INDEX):
        return [path.with_name(name) for name in sorted(set(json.loads(path.read_bytes())["weight_map"].values()))]
    if path.suffix != DATA:
        raise errors.from_status(Status.UNSUPPORTED, f"{path} is no safetensors")
    return [path]


def _alone(files: Sequence[pathlib.Path], layers: Sequence[str]) -> bytes:
    """A safetensors file of the tensors of these layers."""
    header, data = dict[str, Any](), bytearray()
    for file in files:
        for name, entry, content in _tensors(file, layers):
            header[name] = {**entry, "data_offsets": [len(data), len(data) + len(content)]} if content is not None else entry
            data += content or b""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _tensors(file: pathlib.Path, layers: Sequence[str]) -> Iterator[tuple[str, dict[str, Any], bytes | None]]:
    """Of these layers, and what the file says of all, which has no content."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        for name, entry in json.loads(stream.read(size)).items():
            if name == "__metadata__":
                yield name, entry, None
            elif _is_of(name, layers):
                begin, end = entry["data_offsets"]
                stream.seek(8 + size + begin)
                yield name, entry, stream.read(end - begin)


def _is_of(tensor: str, layers: Sequence[str]) -> bool:
    """A layer has its name and a suffix. Experts that a file stores one by one are one layer, whose name has no number."""
    name = re.sub(r"\.experts\.\d+\.", ".experts.", tensor)
    return any(name.startswith(layer) and not name[len(layer) :][:1].isalnum() for layer in layers)
