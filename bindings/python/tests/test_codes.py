"""Codes and scales that are found again in packed weights, what they are saved as, and how objects show themselves."""

from __future__ import annotations

import importlib.metadata
import pickle
import subprocess
import sys

import metal_marlin as mm
import numpy as np
import pytest
from conftest import DATA, DOWN, GPTQ

FORMATS = ("INT4", "INT8", "FP4", "MXFP4", "NVFP4", "FLOAT32", "FLOAT16", "BFLOAT16")
OPTIONS = {"as the rule has it": {}, "least error": {"scales_mse": True}, "2:4": {"prune_2_4": True}, "one group": {"group_size": 10**9}}
# Scales are float16 in the middle, float32 at the ends.
MAGNITUDES = (0.0, 1e-7, 1.0, 1e6)


def same_values(a, b):
    np.testing.assert_array_equal(a.unpack(), b.unpack())
    for field in ("n", "k", "experts", "group_size", "format", "dtype", "bytes", "sparse_2_4", "gate_up_interleaved"):
        assert getattr(a.info(), field) == getattr(b.info(), field), field


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("format", FORMATS)
def test_pickled(context, format, options, magnitude):
    values = np.random.default_rng(3).standard_normal((7, 204)).astype(np.float32) * np.float32(magnitude)
    values[3, :64] = 0
    quantize = mm.Quantize(mm.Format[format], **OPTIONS[options])
    try:
        weights = mm.Weights.quantize(context, values, quantize)
    except mm.UnsupportedError:
        assert options in ("2:4", "one group") and format not in ("INT4", "FP4")  # what the format does not have
        return
    again = pickle.loads(pickle.dumps(weights))
    same_values(weights, again)
    if weights.info().dtype != mm.DType.F32:
        x = np.random.default_rng(4).standard_normal((5, 204)).astype(np.float32)
        for compute in (mm.Compute.DEFAULT, mm.Compute.INT8):
            np.testing.assert_array_equal(mm.gemm(x, weights, compute=compute), mm.gemm(x, again, compute=compute))


def test_codes_are_those_that_were_packed(context):
    """Against codes that this test chose, with K odd and a group that the end of the row cuts."""
    rng = np.random.default_rng(5)
    codes = rng.integers(1, 16, (6, 45)).astype(np.uint8)
    codes[:, ::16] = 15  # the rule gives the largest weight of a group the largest code
    scales = (rng.integers(1, 200, (6, 3)) / 256).astype(np.float16)
    packed = np.pad(codes, ((0, 0), (0, 1)))
    packed = packed[:, ::2] | packed[:, 1::2] << 4
    part = mm.Weights.pack(context, mm.Part(mm.Format.INT4, packed, scales, group_size=16, k=45)).parts()[0]
    np.testing.assert_array_equal(part.values, packed)
    np.testing.assert_array_equal(part.scales, scales)
    signed = rng.integers(-127, 128, (6, 45)).astype(np.int8)
    signed[:, ::16] = -127
    part = mm.Weights.pack(context, mm.Part(mm.Format.INT8, signed, scales, group_size=16)).parts()[0]
    np.testing.assert_array_equal(part.values, signed)
    np.testing.assert_array_equal(part.scales, scales)


def test_experts_and_another_process(context, tmp_path):
    floats = np.random.default_rng(6).standard_normal((3, 32, 64)).astype(np.float32)
    weights = mm.Weights.pack(context, *(mm.Part(mm.Format.NVFP4, each) for each in floats), experts=3)
    same_values(weights, pickle.loads(pickle.dumps(weights)))
    (tmp_path / "weights").write_bytes(pickle.dumps(weights))
    program = f"import pickle; print(pickle.load(open({str(tmp_path / 'weights')!r}, 'rb')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(weights) and "[3, 32, 64], NVFP4, group_size=16" in done.stdout


def test_weights_that_cannot_be_saved(context):
    floats = np.random.default_rng(7).standard_normal((8, 64)).astype(np.float32)
    zeros = mm.Part(mm.Format.INT4, np.zeros((8, 32), np.uint8), np.ones((8, 2), np.float16), np.full((8, 2), 3, np.uint8))
    halves = (mm.Part(mm.Format.NVFP4, floats), mm.Part(mm.Format.NVFP4, floats / np.float32(3)))
    ones = np.ones((8, 2), np.float16)
    for parts, why in (
        ((zeros,), "they have zeros"),
        ((mm.Part(mm.Format.INT6, np.zeros((8, 64), np.uint8), ones),), "their format is INT6, expected INT4"),
        ((mm.Part(mm.Format.INT4, np.zeros((8, 32), np.uint8), ones, np.ones((8, 2), np.float16), additive_zeros=True),), "additive_zeros"),
        (halves, "no tensor scale decodes to their values"),
    ):
        weights = mm.Weights.pack(context, *parts)
        with pytest.raises(mm.UnsupportedError, match=f"cannot be saved.*{why}.*from their file"):
            pickle.dumps(weights)


def test_how_objects_show_themselves(context, gptq, weights):
    assert repr(weights) == f"Weights([96, 384], INT4, group_size=128, {weights.info().bytes} bytes)"
    assert repr(context) == "Context(CPU, device_index=0)" and repr(mm.Context(threads=2)) == "Context(AUTO, device_index=0, threads=2)"
    assert repr(gptq) == f"Checkpoint({str(GPTQ)!r}, 1 layer: 1 INT4)"
    assert repr(next(gptq.layers())) == f"LayerInfo({DOWN!r}, [96, 384], INT4, group_size=128)"
    assert "floats" in repr(mm.Checkpoint(DATA / "float-bf16")) and "BF16 floats" in repr(next(mm.Checkpoint(DATA / "float-bf16").layers()))
    with mm.Context() as own, mm.Checkpoint(GPTQ) as file:
        loaded = mm.Weights.load(own, file, DOWN)
    loaded.close()
    assert (repr(own), repr(file), repr(loaded)) == ("Context(closed)", f"Checkpoint({str(GPTQ)!r}, closed)", "Weights(closed)")


def test_the_version():
    assert mm.__version__ == importlib.metadata.version("metal-marlin")
    assert mm.__version__ == ".".join(map(str, mm._library.default_library().version))
