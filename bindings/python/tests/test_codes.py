"""Codes and scales that are found again in packed weights, what they are saved as, and how objects show themselves."""

from __future__ import annotations

import importlib.metadata
import pathlib
import pickle
import shutil
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


def test_integers_of_all_kinds(context):
    """Drawn codes with scales of either sign: what is found decodes to the same bits, those of zeros included."""
    rng = np.random.default_rng(8)
    for bits, format in ((2, "INT2"), (3, "INT3"), (4, "INT4"), (5, "INT5"), (6, "INT6"), (8, "UINT8"), (8, "INT8")) * 8:
        n, k, group = int(rng.integers(1, 6)), int(rng.integers(1, 9)) * 16, int(rng.choice([16, 32, 64, 1000]))
        groups = -(-k // group)
        spread = int(rng.integers(1, 2**bits + 1))
        codes = rng.integers(0, spread, (n, k)).astype(np.uint8) + np.uint8(rng.integers(0, 2**bits - spread + 1))
        scales = rng.standard_normal((n, groups)).astype(np.float32)
        kind = rng.choice(["F16", "F32", "BF16"])
        scales = {"F16": scales.astype(np.float16), "F32": scales, "BF16": mm.Bits((scales.view(np.uint32) >> 16).astype(np.uint16), mm.DType.BF16)}[kind]
        zeros = rng.integers(0, 2**bits, (n, groups)).astype(np.uint8) if format != "INT8" and rng.random() < 0.7 else None
        if format == "INT8":
            codes = codes.view(np.int8)
        if bits == 4:
            codes = codes[:, ::2] | codes[:, 1::2] << 4
        try:
            weights = mm.Weights.pack(context, mm.Part(mm.Format[format], codes, scales, zeros, group_size=group, k=k))
        except mm.UnsupportedError:
            continue
        assert isinstance(weights.saved(), list), (format, kind, zeros is not None)
        same_bits(weights, mm.Weights.pack(context, *weights.parts()))


def same_bits(a, b):
    assert (a.unpack().view(np.uint32) == b.unpack().view(np.uint32)).all(), a


def layers_of_the_data(context):
    for path in sorted(DATA.iterdir()):
        if path.name.startswith(("container-v2-cuda-", "container-v2-metal-")):  # packed for a GPU
            continue
        try:
            file = mm.Checkpoint(path)
        except mm.MarlinError:
            continue
        for info in file.layers():
            if info.status == mm.Status.OK and info.format != mm.Format.NONE:
                yield f"{path.name}: {info}", mm.Weights.load(context, file, info.name)


def test_every_layer_there_is(context):
    """Whatever a file holds can be pickled, and decodes to the same bits in the same format, which containers need not keep."""
    seen, copies = set(), 0
    for name, weights in layers_of_the_data(context):
        saved = pickle.loads(pickle.dumps(weights.saved()))
        again = mm.Weights.restore(context, saved, weights.info().experts)
        same_bits(weights, again)
        assert again.info().format == weights.info().format or name.startswith("container-"), name
        copies += isinstance(saved, bytes)
        seen.add(weights.info().format)
    assert len(seen) >= 13 and copies >= 50


def test_joined_layers_and_shards_of_a_file(context):
    file = mm.Checkpoint(DATA / "mlx-mixed-3-6")
    names = ["model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"]
    shards = [mm.Shard((32, 0, 0), (64, 0, 0)), mm.Shard()]
    weights = mm.Weights.load(context, file, names, shards=shards)
    saved = pickle.dumps(weights)
    again = pickle.loads(pickle.dumps(pickle.loads(saved)))
    same_bits(weights, again)
    assert again.info() == weights.info() and weights.info().n == 192
    assert len(saved) < (DATA / "mlx-mixed-3-6" / "model.safetensors").stat().st_size / 2 and saved == pickle.dumps(weights)


def test_files_that_are_gone_or_others(context, tmp_path, monkeypatch):
    shutil.copytree(DATA / "gptq-v1-asym-g64-actorder", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    weights = mm.Weights.load(context, mm.Checkpoint("model"), DOWN)
    monkeypatch.chdir(DATA)
    saved = pickle.dumps(weights)
    path = tmp_path / "model" / "model.safetensors"
    whole = bytearray(path.read_bytes())
    whole[-300:] = bytes(300)
    path.write_bytes(whole)
    with pytest.raises(mm.FormatError, match=f"{DOWN} decodes to other values than when it was loaded: its file had changed"):
        pickle.loads(pickle.dumps(weights))
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(mm.FileError, match=f"{tmp_path}/model"):
        pickle.dumps(weights)
    again = pickle.loads(saved)  # has all that it needs, and lends it to the next
    same_bits(weights, again)
    folder = pathlib.Path(again._source.path)
    same_bits(weights, pickle.loads(pickle.dumps(again)))
    del again
    assert not folder.exists()


def test_codes_that_are_lost(context, caplog):
    """Of weights from no file, what they decode to is saved, and the log says so."""
    floats = np.random.default_rng(7).standard_normal((8, 64)).astype(np.float32)
    codes, ones = np.arange(256, dtype=np.uint8).reshape(8, 32), np.ones((8, 2), np.float16)
    order = np.arange(64, dtype=np.int32)[::-1] // 32
    halves = (mm.Part(mm.Format.NVFP4, floats), mm.Part(mm.Format.NVFP4, floats / np.float32(3)))
    for parts, why in (
        ((mm.Part(mm.Format.NF4, codes, ones.astype(np.float32), group_size=32),), "their format is NF4, expected INT2"),
        ((mm.Part(mm.Format.INT4, codes, ones, group_size=32, group_index=order.copy()),), "they have act_order"),
        ((mm.Part(mm.Format.INT4, codes, ones, ones, group_size=32, additive_zeros=True),), "they have additive_zeros"),
        (halves, "no tensor scale decodes to their values"),
    ):
        weights = mm.Weights.pack(context, *parts)
        for attempt in (weights.parts, lambda weights=weights: weights.saved(floats=False)):
            with pytest.raises(mm.UnsupportedError, match=f"cannot be found again.*{why}"):
                attempt()
        caplog.clear()
        again = pickle.loads(pickle.dumps(weights))
        same_bits(weights, again)
        assert again.info().format == mm.Format.FLOAT32
        assert "they come from no safetensors file: they are saved as FLOAT32" in caplog.text


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
