"""Loading, unpacking and multiplying, against float64."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import pickle
import threading
import time

import metal_marlin as mm
import numpy as np
import pytest
from conftest import DATA, DOWN, GPTQ, safetensors
from metal_marlin.operands import numpy_type

BF16 = numpy_type(mm.DType.BF16)
FLOATS = [np.float32, np.float16, pytest.param(BF16, marks=pytest.mark.skipif(BF16 is None, reason="ml_dtypes is not installed"))]


def close(found, want, step=2.0**-20):
    """step: the rounding of the result's type, beside that of sums in float32."""
    want = np.asarray(want, np.float64)
    assert found.shape == want.shape
    error = np.abs(np.asarray(found, np.float64) - want)
    assert (error <= step * (np.abs(want) + np.abs(want).max())).all(), error.max()


def test_devices_tell_the_threads_of_the_cpu():
    devices = mm.devices()
    assert any(device.backend == mm.Backend.CPU for device in devices)
    assert all((device.threads > 0) == (device.backend == mm.Backend.CPU) for device in devices)


def test_c_code_runs_a_product_by_its_descriptor(weights, gptq, x):
    # Nobody else has these weights and this x: the descriptor keeps them.
    descriptor = mm.Gemm(x.copy(), mm.Weights.load(mm.Context(mm.Backend.CPU), gptq, DOWN)).descriptor()
    marlin_gemm = ctypes.CDLL(mm.Library().path).marlin_gemm
    assert marlin_gemm(None, ctypes.c_void_p(descriptor.address), None) == 0
    assert (descriptor.out == mm.gemm(x, weights)).all()
    with pytest.raises(mm.ShapeError):
        mm.Gemm(x, weights, out=np.empty((7, 96), np.float32)).descriptor()


@pytest.mark.parametrize("out", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_types_bias_and_epilogue(weights, x, dtype, out):
    w = weights.unpack().astype(np.float64)
    a, bias = x.astype(dtype), np.linspace(-2, 2, 96).astype(dtype)
    sums = a.astype(np.float64) @ w.T + bias.astype(np.float64)
    step = {2: 2.0**-7, 4: 2.0**-18}[np.dtype(out).itemsize]
    c = np.empty((8, 96), out)
    assert mm.gemm(a, weights, bias, c) is c
    close(c, sums, step)
    close(mm.gemm(a, weights, bias, c, epilogue=mm.Epilogue.SILU), sums / (1 + np.exp(-sums)), step)
    assert mm.gemm(a, weights, bias).dtype == a.dtype
    before = c.astype(np.float64)
    mm.gemm(a, weights, out=c, accumulate=True)
    close(c, before + a.astype(np.float64) @ w.T, 2 * step)


def test_row_invariant_products(weights, x):
    assert mm.Gemm(x, weights, row_invariant=True).explain()["row_invariant"].startswith("the same bits for any M")
    assert "row_invariant" not in mm.Gemm(x, weights).explain()
    assert (mm.gemm(x, weights, row_invariant=True)[:1] == mm.gemm(x[:1], weights, row_invariant=True)).all()


def test_two_inputs_give_half_the_columns(weights, x):
    w = weights.unpack().astype(np.float64)
    sums = x.astype(np.float64) @ w.T
    gate, up = sums[:, :48], sums[:, 48:]
    close(mm.gemm(x, weights, epilogue=mm.Epilogue.SWIGLU), gate / (1 + np.exp(-gate)) * up, 2.0**-17)


def test_bits_stand_for_bfloat16_where_ml_dtypes_is_missing(weights, x):
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)
    rounded = (bits.astype(np.uint32) << 16).view(np.float32)
    out = mm.Bits(np.empty((8, 96), np.uint16), mm.DType.BF16)
    assert mm.gemm(mm.Bits(bits, mm.DType.BF16), weights, out=out) is out
    found = (out.array.astype(np.uint32) << 16).view(np.float32)
    close(found, mm.gemm(rounded, weights), 2.0**-7)


def test_arrays_are_used_where_they_lie(weights, x):
    wide = np.full((8, 400), np.nan, np.float32)
    wide[:, :384] = x
    apart = np.full((8, 2, 96), 7.0, np.float32)
    mm.gemm(wide[:, :384], weights, out=apart[:, 1])
    np.testing.assert_array_equal(apart[:, 1], mm.gemm(x, weights))
    assert (apart[:, 0] == 7).all()
    assert wide[:, :384].ctypes.data == mm.operands.operand(wide[:, :384], "a").address


def test_any_number_of_dimensions(weights, x):
    flat = mm.gemm(x, weights)
    np.testing.assert_array_equal(mm.gemm(x[0], weights), mm.gemm(x[:1], weights)[0])
    np.testing.assert_array_equal(mm.gemm(x.reshape(2, 2, 2, 384), weights), flat.reshape(2, 2, 2, 96))
    np.testing.assert_array_equal(mm.gemm(np.repeat(x, 2, axis=0)[::2].reshape(2, 4, 384), weights), flat.reshape(2, 4, 96))
    assert mm.gemm(x[:0], weights).shape == (0, 96)


def test_many_at_once(weights, context, x):
    other = mm.Weights.quantize(context, np.eye(384, dtype=np.float32)[:64], mm.Quantize(mm.Format.MXFP4))
    found = mm.gemm_many([mm.Gemm(x, weights), mm.Gemm(x, other), mm.Gemm(x[:2], weights)])
    assert [each.shape for each in found] == [(8, 96), (8, 64), (2, 96)]
    for each, product in zip(found, (mm.gemm(x, weights), mm.gemm(x, other), mm.gemm(x[:2], weights))):
        np.testing.assert_array_equal(each, product)
    assert mm.gemm_many([]) == []


def test_linear_and_explain(weights, x):
    bias = np.ones(96, np.float32)
    np.testing.assert_array_equal(mm.Linear(weights, bias)(x), mm.gemm(x, weights, bias))
    assert mm.Gemm(x, weights).explain()["kernel"].startswith("cpu_")


def test_unpack(weights):
    w = safetensors(GPTQ / "decoded.safetensors")[DOWN]
    np.testing.assert_array_equal(weights.unpack(90), w[90:])
    np.testing.assert_array_equal(weights.unpack(5, 2), w[5:7])
    np.testing.assert_array_equal(weights.unpack(5, out=np.empty((3, 384), np.float16)), w[5:8].astype(np.float16))
    np.testing.assert_array_equal(weights.unpack_rows([[3, 90], [3, 0]]), w[[[3, 90], [3, 0]]])
    for bad in ([96], [-1], [2**32 + 1], [1.5]):
        with pytest.raises(mm.ArgumentError):
            weights.unpack_rows(bad)
    with pytest.raises(mm.MarlinError):
        weights.unpack(96, 1)


def test_codes_and_shards(context, gptq, weights):
    codes = np.full((2, 16), 0x9A, np.uint8)  # of each 32 codes: 10, 9, 10, 9 ...
    scales = np.array([[0.5], [2.0]], np.float32)
    packed = mm.Weights.pack(context, mm.Part(mm.Format.INT4, codes, scales), mm.Part(mm.Format.INT4, codes[:1], scales[:1]))
    row = np.tile([2.0, 1.0], 16)
    np.testing.assert_array_equal(packed.unpack(), np.stack([0.5 * row, 2 * row, 0.5 * row]))
    scaled = mm.Part(mm.Format.FP4, np.full((1, 16), 0x22, np.uint8), scales[:1], tensor_scale=4.0)
    np.testing.assert_array_equal(mm.Weights.pack(context, scaled).unpack(), np.full((1, 32), 2.0))
    int8 = mm.Part(mm.Format.INT8, np.arange(-16, 16, dtype=np.int8)[None], scales[:1])
    np.testing.assert_array_equal(mm.Weights.pack(context, int8).unpack()[0], np.arange(-16, 16) / 2)
    part = mm.Weights.load(context, gptq, DOWN, shards=[mm.Shard((64, 128, 0), (32, 128, 0))])
    np.testing.assert_array_equal(part.unpack(), weights.unpack()[64:, 128:256])


def test_blocks_of_two_levels(context):
    nibbles = np.arange(256).reshape(4, 2, 32) % 16
    block = np.zeros((1, 144), np.uint8)  # Q4_K
    block[0, :4] = np.array([0.5, 0.25], np.float16).view(np.uint8)  # d, dmin
    block[0, 4:8] = 3  # the scales of sub-blocks 0 to 3, then their minima, then both of sub-blocks 4 to 7
    block[0, 8:12] = 2
    block[0, 12:16] = 3 | 2 << 4
    block[0, 16:] = (nibbles[:, 0] | nibbles[:, 1] << 4).ravel()
    blocks = mm.Part(mm.Format.INT4, block, k=256, layout=mm.Layout.GGUF, additive_zeros=True, two_level_scales=True)
    np.testing.assert_array_equal(mm.Weights.pack(context, blocks).unpack()[0], 1.5 * nibbles.ravel() - 0.5)
    with pytest.raises(mm.UnsupportedError, match=r"Q4_0, Q4_1 \(additive zeros\), Q4_K \(additive zeros\) \(two-level scales\)"):
        mm.Weights.pack(context, dataclasses.replace(blocks, additive_zeros=False))


def test_pruning(context):
    w = np.random.default_rng(3).standard_normal((16, 64)).astype(np.float32)
    norms = np.tile(np.array([1, 1, 1e6, 1e6], np.float32), 16)
    pruned = mm.Weights.quantize(context, w, mm.Quantize(mm.Format.INT4, 32, prune_2_4=True), norms)
    assert pruned.info().sparse_2_4 and pruned.info().kept_share < 1
    assert (pruned.unpack().reshape(16, 16, 4)[..., :2] == 0).all()


def test_info_and_names(weights, gptq):
    info = weights.info()
    assert (info.name, info.n, info.k, info.group_size, info.format) == (DOWN, 96, 384, 128, mm.Format.INT4)
    assert [layer.name for layer in gptq.layers()] == [DOWN]
    tensor = gptq.tensor(f"{DOWN}.scales")
    np.testing.assert_array_equal(tensor, safetensors(GPTQ / "model.safetensors")[f"{DOWN}.scales"])
    bits = mm.Checkpoint(DATA / "float-bf16").tensor("encoder.layer.0.attention.self.query.weight")
    raw = safetensors(DATA / "float-bf16" / "model.safetensors")["encoder.layer.0.attention.self.query.weight"]
    np.testing.assert_array_equal(bits.array if BF16 is None else bits.view(np.uint16), raw)


def test_closing(context, x):
    with mm.Checkpoint(GPTQ) as file, mm.Context() as own:
        weights = mm.Weights.load(own, file, DOWN)
    for use in (lambda: file.tensor("a"), lambda: mm.Weights.load(own, file, DOWN), lambda: list(file.layers())):
        with pytest.raises(mm.ArgumentError, match="closed"):
            use()
    assert mm.gemm(x, weights).shape == (8, 96)  # weights keep their context alive
    assert copy.deepcopy(weights) is weights
    for handle in (mm.Context(), mm.Checkpoint(GPTQ)):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(handle)
    weights.close()
    weights.close()
    with pytest.raises(mm.ArgumentError, match="the Weights is closed"):
        mm.gemm(x, weights)


def test_closing_while_another_thread_multiplies(context, gptq, x):
    for _ in range(20):
        weights = mm.Weights.load(context, gptq, DOWN)
        want, found, begun = mm.gemm(x, weights), [], threading.Event()

        def work():
            with pytest.raises(mm.ArgumentError, match="closed"):
                while True:
                    found.append(mm.gemm(x, weights))
                    begun.set()

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        weights.close()
        thread.join()
        assert all((each == want).all() for each in found)


def test_other_threads_go_on_during_a_call(context):
    w = np.random.default_rng(4).standard_normal((2048, 2048)).astype(np.float32)
    done = threading.Event()

    def work():
        mm.Weights.quantize(context, w, mm.Quantize(mm.Format.INT4, 32, scales_mse=True))
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    wakes = 0
    while not done.is_set():
        time.sleep(0.001)
        wakes += 1
    thread.join()
    assert wakes > 5


def test_groups_of_int8_activations(context):
    n, k, m = 8, 200, 3
    rng = np.random.default_rng(8)
    weights = mm.Weights.quantize(context, rng.standard_normal((n, k)).astype(np.float32), mm.Quantize(mm.Format.INT8))
    a = rng.standard_normal((m, k)).astype(np.float32)
    w = weights.unpack().astype(np.float64)
    for group in (0, 32, 64, 128, k, 2**40):
        length = min(group or 32, k)
        rounded = a.astype(np.float64)
        for first in range(0, k, length):
            part = rounded[:, first : first + length]
            d = (np.abs(part).max(1, keepdims=True).astype(np.float32) / np.float32(127)).astype(np.float64)
            part[:] = np.rint((part / d).astype(np.float32)) * d
        out = mm.gemm(a, weights, compute=mm.Compute.INT8, activation_group=group)
        np.testing.assert_allclose(out, rounded @ w.T, rtol=1e-4, atol=1e-4)
        if group > k // 2:
            scale = "one scale per row" if group >= k else "groups of 128"
            assert scale in mm.Gemm(a, weights, compute=mm.Compute.INT8, activation_group=group).explain()["activations"]
    with pytest.raises(mm.ArgumentError, match="activation_group is 33, expected 0, 32, 64, 128, or K"):
        mm.gemm(a, weights, compute=mm.Compute.INT8, activation_group=33)
    with pytest.raises(mm.ArgumentError, match="activation_group is -1"):
        mm.gemm(a, weights, compute=mm.Compute.INT8, activation_group=-1)


def test_numbers_of_gates(context):
    rng = np.random.default_rng(9)
    weights = mm.Weights.quantize(context, rng.standard_normal((16, 64)).astype(np.float32), mm.Quantize(mm.Format.INT8))
    a = rng.standard_normal((3, 64)).astype(np.float32)
    gate, up = np.split(mm.gemm(a, weights).astype(np.float64), 2, axis=1)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    g, u = np.minimum(gate, 2), np.clip(up, -3, 3)
    numbers = {"gate_limit": 2, "up_limit": 3, "gate_alpha": 1.5, "up_offset": 0.25}
    out = mm.gemm(a, weights, epilogue=mm.Epilogue.SWIGLU, **numbers)
    np.testing.assert_allclose(out, g * sigmoid(1.5 * g) * (u + 0.25), rtol=1e-4, atol=1e-4)
    out = mm.gemm(a, weights, epilogue=mm.Epilogue.SITU, gate_limit=2, up_limit=3)
    np.testing.assert_allclose(out, 2 * np.tanh(gate / 2) * sigmoid(gate) * 3 * np.tanh(up / 3), rtol=1e-4, atol=1e-4)
    with pytest.raises(mm.ArgumentError, match="gate_limit is 0, expected a finite number above 0"):
        mm.gemm(a, weights, epilogue=mm.Epilogue.SITU)
    with pytest.raises(TypeError, match="gate_limits"):
        mm.gemm(a, weights, gate_limits=2)
