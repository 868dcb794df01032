"""What the tests share. They run on the installed package."""

from __future__ import annotations

import json
import pathlib
import signal

import metal_marlin as mm
import numpy as np
import pytest

# A shell has what it runs in the background ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

TOP = pathlib.Path(__file__).resolve().parents[3]
DATA = TOP / "tests" / "data"
GPTQ = DATA / "gptq-v1-sym-g128"
DOWN = "model.layers.0.mlp.down_proj"


def safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Read by hand, so that the library is not its own judge."""
    blob = path.read_bytes()
    start = 8 + int.from_bytes(blob[:8], "little")
    kinds = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4"}
    found = {}
    for name, entry in json.loads(blob[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = np.frombuffer(blob[start + begin : start + end], kinds[entry["dtype"]]).reshape(entry["shape"])
    return found


def write_safetensors(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    """float32 tensors."""
    header, data = {}, b""
    for name, values in tensors.items():
        end = len(data) + values.nbytes
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(data), end]}
        data += values.astype("<f4").tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture(scope="session")
def context() -> mm.Context:
    return mm.Context(mm.Backend.CPU)


@pytest.fixture(scope="session")
def gptq() -> mm.Checkpoint:
    return mm.Checkpoint(GPTQ)


@pytest.fixture(scope="session")
def weights(context: mm.Context, gptq: mm.Checkpoint) -> mm.Weights:
    """[96, 384] of INT4."""
    return mm.Weights.load(context, gptq, DOWN)


@pytest.fixture
def x() -> np.ndarray:
    """8 rows of activations."""
    return np.random.default_rng(1).standard_normal((8, 384)).astype(np.float32)
