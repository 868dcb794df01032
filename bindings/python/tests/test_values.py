"""What checkpoints say about their models."""

from __future__ import annotations

import json
import math
import pathlib
import struct

import metal_marlin as mm
import numpy as np
import pytest
from conftest import DATA, GPTQ, write_safetensors


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(entries: dict[str, tuple[int, bytes]]) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, len(entries)) + b"".join(
        text(key) + struct.pack("<i", kind) + value for key, (kind, value) in entries.items()
    )


def array(kind: int, count: int, elements: bytes) -> tuple[int, bytes]:
    return 9, struct.pack("<iQ", kind, count) + elements


# Numbers of types in a GGUF, how struct writes them, and an element that only this type holds.
ARRAYS = {
    "u8": (0, "B", 255),
    "i8": (1, "b", -128),
    "u16": (2, "H", 65535),
    "i16": (3, "h", -32768),
    "u32": (4, "I", 2**32 - 1),
    "i32": (5, "i", -(2**31)),
    "f32": (6, "f", 0.5),
    "u64": (10, "Q", 2**64 - 1),
    "i64": (11, "q", -(2**63)),
    "f64": (12, "d", 1e300),
}


def test_every_type_of_a_gguf(tmp_path):
    entries = {name: (kind, struct.pack("<" + code, value)) for name, (kind, code, value) in ARRAYS.items()}
    for name, (kind, code, value) in ARRAYS.items():
        entries["array." + name] = array(kind, 2, struct.pack(f"<2{code}", 1, value))
    entries |= {"yes": (7, b"\1"), "bools": array(7, 2, b"\1\0"), "text": (8, text("grüß")), "none": array(8, 0, b"")}
    entries["texts"] = array(8, 3, text("a") + text("") + text("bc"))
    (tmp_path / "m.gguf").write_bytes(gguf(entries))
    values = mm.Checkpoint(tmp_path / "m.gguf").values
    assert list(values) == list(entries) and len(values) == len(entries)
    for name, (_, _, value) in ARRAYS.items():
        assert values[name] == value and type(values[name]) is type(value)
        assert values["array." + name] == [1, value]
    assert values["yes"] is True and values["bools"] == [True, False]
    assert values["text"] == "grüß" and values["texts"] == ["a", "", "bc"] and values["none"] == []
    assert dict(values)["texts"] == ["a", "", "bc"]


def test_how_values_show_themselves():
    values = mm.Checkpoint(GPTQ).values
    first = ", ".join(list(values)[:3])
    assert repr(values) == f"Values({len(values)} keys: {first}, ...)"


def test_members_of_config():
    values = mm.Checkpoint(GPTQ).values
    config = json.loads((GPTQ / "config.json").read_text())
    assert values["quantization_config.bits"] == config["quantization_config"]["bits"] == 4
    assert values["quantization_config.quant_method"] == "gptq"
    assert "quantization_config" not in values and values.get("no.such") is None
    with pytest.raises(KeyError, match="no.such"):
        values["no.such"]
    with pytest.raises(KeyError):
        values["a\0b"]


def test_a_split_model_and_one_without_a_word(tmp_path):
    assert mm.Checkpoint(DATA / "gguf-split").values["general.architecture"] == "llama"
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    assert dict(mm.Checkpoint(tmp_path / "m.safetensors").values) == {}


def test_a_vocabulary_is_read_in_linear_time(tmp_path):
    count = 250_000
    tokens = [f"token{i}" for i in range(count)]
    (tmp_path / "m.gguf").write_bytes(gguf({"tokens": array(8, count, b"".join(map(text, tokens))), "nan": (12, struct.pack("<d", math.nan))}))
    values = mm.Checkpoint(tmp_path / "m.gguf").values
    assert values["tokens"] == tokens and math.isnan(values["nan"])


# The other dimension of a tensor without elements takes no byte of a file: a loop over it would not end.
@pytest.mark.parametrize("shape", [(2**31 - 1, 0), (2**62, 0), (0, 2**31 - 1), (0, 2**62), (0, 0), (3, 0)])
def test_a_tensor_without_elements_costs_nothing(tmp_path: pathlib.Path, shape: tuple[int, int]) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with mm.Checkpoint(tmp_path / "x.safetensors") as file:
        assert file.tensor("x").shape == tuple(size if size < 2**31 else 0 for size in shape)


def test_the_order_of_stacks_that_a_file_leaves_open(tmp_path, context):
    path, layer = tmp_path / "m.safetensors", "m.experts.odd"
    stack = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    write_safetensors(path, {layer: stack})
    assert next(mm.Checkpoint(path).layers()).status == mm.Status.UNSUPPORTED
    for outputs_first in (True, False):
        file = mm.Checkpoint(path, outputs_first=outputs_first)
        weights = mm.Weights.load(context, file, [layer])
        expected = stack if outputs_first else stack.swapaxes(1, 2)
        np.testing.assert_array_equal(weights.unpack(), expected.reshape(4, 2))
        copy = weights._source.copy(weights)
        np.testing.assert_array_equal(mm.Weights.restore(context, copy).unpack(), expected.reshape(4, 2))
    with pytest.raises(TypeError, match="outputs_first is 'inputs', expected True, False or None"):
        mm.Checkpoint(path, outputs_first="inputs")


def test_members_of_config_are_answers():
    with pytest.raises(mm.FormatError, match="desc->config: expected an object of JSON"):
        mm.Checkpoint(GPTQ, config="no mapping")
    with pytest.raises(mm.UnsupportedError, match="this file leaves nothing open"):
        mm.Checkpoint(DATA / "gguf-mixed", config={"quantization_config": {"bits": 4}})
    wrong = mm.Checkpoint(GPTQ, config={"quantization_config": {"checkpoint_format": "gptq_p"}})
    assert any(layer.status for layer in wrong.layers()) and not any(layer.status for layer in mm.Checkpoint(GPTQ).layers())
