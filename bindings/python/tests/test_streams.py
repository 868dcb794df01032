"""Streams, and the memory that their work needs."""

from __future__ import annotations

import gc
import time
import weakref

import metal_marlin as mm
import numpy as np
import pytest
from conftest import GPTQ
from metal_marlin import _abi
from metal_marlin.operands import operand


def test_work_in_order(context, weights, x):
    w = weights.unpack()
    down = mm.Weights.quantize(context, w[:, :32].T.copy(), mm.Quantize(mm.Format.INT8))  # [32, 96]
    with mm.Stream(context) as stream:
        hidden = mm.gemm(x, weights, stream=stream)
        y = mm.gemm(hidden, down, stream=stream)
        two = mm.gemm_many([mm.Gemm(x, weights), mm.Gemm(x[:3], weights)], stream=stream)
        rows, row = weights.unpack(5, 2, stream=stream), weights.unpack_rows([7], stream=stream)
        stream.flush()
        assert len(stream._used) == 5  # each of them was given to it
        assert stream.wait() and stream.wait(0) and stream.wait(float("inf")) and stream.wait(-1)
        assert stream._used == []
    assert (hidden == mm.gemm(x, weights)).all() and (y == mm.gemm(hidden, down)).all()
    assert (two[0] == hidden).all() and (two[1] == mm.gemm(x[:3], weights)).all()  # 3 rows may have a kernel of their own
    assert (rows == w[5:7]).all() and (row == w[7:8]).all()
    with pytest.raises(mm.ArgumentError, match="the Stream is closed"):
        stream.flush()
    with pytest.raises(mm.ArgumentError, match="the Stream is closed"):
        mm.gemm(x, weights, stream=stream)


@pytest.mark.parametrize("end", ["wait", "close", "drop", "error"])
def test_what_work_uses_is_kept_until_it_is_done(context, x, end):
    stream = mm.Stream(context)
    out = np.empty((8, 64), np.float32)
    weights = mm.Weights.quantize(context, np.ones((64, 384), np.float32), mm.Quantize(mm.Format.INT8))
    mm.gemm(x, weights, out=out, stream=stream)
    alive = [weakref.ref(each) for each in (out, weights._owner)]
    del out, weights
    gc.collect()
    assert all(each() is not None for each in alive)
    if end == "wait":
        stream.wait()
    elif end == "close":
        stream.close()
    elif end == "drop":
        del stream
    else:
        with pytest.raises(ZeroDivisionError), stream:
            1 / 0
    if end != "wait":
        stream = None
    gc.collect()
    assert all(each() is None for each in alive)


class Busy:
    """A library whose streams take a while, and that says what it was asked."""

    def __init__(self, library, monkeypatch, seconds):
        self.until, self.calls = time.monotonic() + seconds, []
        functions = dict(library._functions)
        self.wait, self.destroy = functions["marlin_stream_wait"], functions["marlin_stream_destroy"]
        functions.update(marlin_stream_wait=self.waited, marlin_stream_destroy=self.destroyed)
        monkeypatch.setattr(library, "_functions", functions)

    def waited(self, handle, nanoseconds, error):
        self.calls.append(nanoseconds)
        left = self.until - time.monotonic()
        time.sleep(max(0.0, min(nanoseconds / 1e9, left)))
        return mm.Status.TIMEOUT if left * 1e9 > nanoseconds else self.wait(handle, nanoseconds, error)

    def destroyed(self, handle):
        self.calls.append("destroyed")
        self.destroy(handle)


def test_waiting_in_vain_and_in_pieces(context, weights, x, monkeypatch):
    busy = Busy(context._owner.library, monkeypatch, 0.4)
    stream = mm.Stream(context)
    mm.gemm(x, weights, stream=stream)
    assert not stream.wait(0) and not stream.wait(0.05) and stream._used != []
    assert stream.wait() and stream._used == []
    assert busy.calls[0] == 0 and max(busy.calls) <= 100_000_000  # Python handles signals in between
    mm.gemm(x, weights, stream=stream)
    busy.calls.clear()
    stream.close()
    assert busy.calls == [2**64 - 1, "destroyed"]


def test_memory_of_host_and_device(context, weights, x):
    given, out = context.zeros(x.shape), context.zeros((10, 96))
    assert given.shape == (8, 384) and given.dtype == np.float32 and not given.any() and given.ctypes.data % 64 == 0
    given[:] = x
    matrix = operand(given[2:, :32], "given").matrix(library=context._owner.library)
    assert (matrix.memory, matrix.offset_bytes, matrix.row_stride) == (_abi.Memory.BUFFER, 2 * 384 * 4, 384)
    with mm.Stream(context) as stream:
        mm.gemm(given, weights, out=out[1:9], stream=stream)
    assert (out[1:9] == mm.gemm(x, weights)).all() and not out[0].any() and not out[9].any()
    half = context.zeros(96, mm.DType.F16)
    assert half.dtype == np.float16 and mm.gemm(given[0], weights, out=half) is half and half.any()
    # A view keeps all of it.
    view = out[1:2]
    owner = weakref.ref(operand(view, "view").buffer.owner)
    del out, given, matrix, half
    gc.collect()
    assert owner() is not None and view.any()
    del view
    gc.collect()
    assert owner() is None
    # To another copy of the library it is memory like any other.
    array = context.zeros(4)
    other = operand(array, "other").matrix(library=mm.Library())
    assert other.memory == _abi.Memory.HOST and other.data == array.ctypes.data


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "words"),
    [
        ((0, 4), mm.DType.F32, mm.ArgumentError, "bytes is 0"),
        ((-1, 4), mm.DType.F32, mm.ArgumentError, "negative"),
        ((-1, -4), mm.DType.F32, mm.ArgumentError, "negative"),
        ((4,), mm.DType.U4, TypeError, "U4"),
        (1 << 60, mm.DType.U8, mm.OutOfMemoryError, "1152921504606846976"),
    ],
)
def test_memory_that_cannot_be(context, shape, dtype, error, words):
    with pytest.raises(error, match=words):
        context.zeros(shape, dtype)


def test_prepared_work_in_scratch(context, weights, x):
    products = [mm.Gemm(x, weights, compute=mm.Compute.INT8)]
    assert mm.prepare([], 8) == 0
    needed = mm.prepare(products, 8)
    assert needed > 0
    with mm.Stream(context, scratch=np.empty(needed, np.uint8)) as stream:
        assert mm.prepare(products, 8, stream) <= needed
        (y,) = mm.gemm_many(products, stream)
    assert (y == products[0].run()).all()
    with mm.Stream(context, scratch=context.zeros(8, mm.DType.U8)) as stream, pytest.raises(mm.NotPreparedError, match="scratch holds 8 bytes"):
        products[0].run(stream)
    with pytest.raises(mm.ArgumentError, match="max_m"):
        mm.prepare(products, -1)


def test_streams_of_others_are_refused(context, weights, x):
    stream = mm.Stream(mm.Context(mm.Backend.CPU))
    with pytest.raises(mm.ArgumentError, match="context"):
        mm.gemm(x, weights, stream=stream)
    other = mm.Context(mm.Backend.CPU, library=mm.Library())
    foreign = mm.Weights.load(other, mm.Checkpoint(GPTQ, library=other._owner.library), next(mm.Checkpoint(GPTQ).layers()).name)
    with pytest.raises(mm.ArgumentError, match="another copy of the library"):
        mm.gemm(x, foreign, stream=stream)


def test_a_trace_hears_of_each_step(gptq, x):
    steps: list[mm.Step] = []
    context = mm.Context(mm.Backend.CPU, threads=1, trace=steps.append)
    weights = mm.Weights.load(context, gptq, "model.layers.0.mlp.down_proj")
    before = time.monotonic_ns()
    product = mm.Gemm(x, weights)
    product.run()
    after = time.monotonic_ns()
    assert [step.step for step in steps] == ["prepare A", "multiply"]
    times = [before, *(at for step in steps for at in (step.begin_ns, step.end_ns)), after]
    assert times == sorted(times)
    for step in steps:
        assert (step.rows, step.n, step.k) == (len(x), 96, 384)
        assert (step.kernel, step.stream, step.device_ns, step.together) == (product.explain()["kernel"], None, 0, 1)
    with mm.Stream(context) as stream:
        product.run(stream)
        mm.gemm_many([mm.Gemm(x, weights), mm.Gemm(x[:3], weights)], stream)
    assert steps[2].stream and all(step.stream == steps[2].stream for step in steps[2:])
    assert steps[-1].together == 2


def test_the_end_of_work_is_told_once(context, weights, x):
    ended = []
    with mm.Stream(context) as stream:
        mm.gemm(x, weights, stream=stream)
        stream.notify(ended.append)
    assert ended == [mm.Status.OK]
    from metal_marlin import stream as inside

    with pytest.raises(mm.ArgumentError, match="the Stream is closed"):
        stream.notify(ended.append)
    assert ended == [mm.Status.OK] and not inside._waiting
