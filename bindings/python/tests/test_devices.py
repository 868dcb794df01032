"""Arrays on CUDA devices and the streams of others, without a GPU: what goes to the library and to the libraries of the arrays."""

from __future__ import annotations

import gc
import types
import weakref

import metal_marlin as mm
import numpy as np
import pytest
from metal_marlin import _abi
from planted import OnDevice, Planted

CUDA, HOST, BUFFER = _abi.Memory.CUDA, _abi.Memory.HOST, _abi.Memory.BUFFER


@pytest.fixture
def planted():
    return Planted()


@pytest.fixture
def device(planted):
    return planted.context()


@pytest.fixture
def w():
    return np.random.default_rng(0).standard_normal((96, 128)).astype(np.float32)


@pytest.fixture
def packed(device, w):
    return mm.Weights.quantize(device, w, mm.Quantize(mm.Format.MXFP4))


def arrays(rows=4, seed=1):
    """a and out."""
    a = np.random.default_rng(seed).standard_normal((rows, 128)).astype(np.float32)
    return OnDevice(a), OnDevice(np.zeros((rows, 96), np.float32))


def test_without_a_stream(planted, packed):
    """The legacy default stream: the libraries of the arrays have it wait for their work, and the call waits for it."""
    (a, out), (b, more) = arrays(), arrays(seed=2)
    bias = OnDevice(np.ones(96, np.float32))
    assert mm.gemm(a, packed, bias, out) is out
    assert planted.natives == [0] and planted.waited == [0]
    assert planted.calls == [("gemm", 0, [CUDA] * 3)] and [each.told for each in (a, out, bias)] == [[1]] * 3
    assert np.abs(out.array - (a.array @ packed.unpack().T + 1)).max() < 1e-3
    planted.calls.clear()
    assert mm.gemm_many([mm.Gemm(a, packed, out=out), mm.Gemm(b, packed, out=more)]) == [out, more]
    assert planted.calls == [("gemm_many", 0, [CUDA] * 2)] * 2
    assert np.abs(more.array - b.array @ packed.unpack().T).max() < 1e-3
    assert planted.natives == [0]  # the same stream again


def test_what_reads_nothing_orders_nothing(planted, packed):
    a, out = arrays()
    product = mm.Gemm(a, packed, out=out)
    assert "kernel" in product.explain() and product.descriptor().address
    mm.prepare([product], 8)
    assert set(a.told) == set(out.told) == {-1}
    assert planted.calls[-1] == ("prepare", 0, [CUDA] * 2)  # on the stream on which calls without one run


class Native:
    """A stream of a library that has the protocol."""

    def __cuda_stream__(self):
        return 0, 77


@pytest.mark.parametrize(
    ("native", "handle", "told"),
    [
        (77, 77, 77),
        (0, 0, 1),
        (Native(), 77, 77),
        (types.SimpleNamespace(cuda_stream=78), 78, 78),
        (types.SimpleNamespace(ptr=0), 0, 1),
    ],
)
def test_the_streams_of_others(planted, device, packed, native, handle, told):
    a, out = arrays()
    with mm.Stream(device, native=native) as stream:
        mm.gemm(a, packed, out=out, stream=stream)
        assert planted.calls == [("gemm", handle, [CUDA] * 2)] and planted.waited == []
        packed.unpack(3, out=OnDevice(np.zeros((2, 128), np.float32)), stream=stream)
    assert (a.told, out.told, set(planted.waited)) == ([told], [told], {handle})
    assert np.abs(out.array - a.array @ packed.unpack().T).max() < 1e-3


def test_streams_are_kept_with_their_own(device):
    native = Native()
    alive = weakref.ref(native)
    stream = mm.Stream(device, native=native)
    del native
    gc.collect()
    assert alive() is not None
    del stream
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("native", "kind", "words"),
    [
        (-1, mm.ArgumentError, "native is -1, expected the address"),
        (1 << 64, mm.ArgumentError, "expected the address"),
        (True, TypeError, "native is a bool, expected a stream of CUDA"),
        ("stream", TypeError, "native is a str"),
    ],
)
def test_what_is_no_stream(device, native, kind, words):
    with pytest.raises(kind, match=words):
        mm.Stream(device, native=native)


def test_a_stream_of_cuda_needs_its_backend(context):
    with pytest.raises(mm.ArgumentError, match="native is a stream of CUDA, expected none for a context of the CPU backend"):
        mm.Stream(context, native=0)


def test_kinds_of_memory(planted, packed):
    managed, out = arrays()
    managed.device = (13, 0)
    mm.gemm(managed, packed, out=out)
    assert planted.calls[-1] == ("gemm", 0, [CUDA] * 2) and managed.told == [1]
    pinned, host = arrays()
    pinned.device, host.device = (3, 0), (1, 0)
    mm.gemm(pinned, packed, out=host)
    assert planted.calls[-1] == ("gemm", None, [HOST] * 2) and pinned.told == [None]


def test_memory_of_host_and_device_goes_with_both(planted, device, packed):
    a, out = arrays()
    both = device.zeros((4, 96))
    mm.gemm(a, packed, out=both)
    assert planted.calls[-1] == ("gemm", 0, [CUDA, BUFFER])
    mm.gemm(a.array, packed, out=both)
    assert planted.calls[-1] == ("gemm", None, [HOST, BUFFER])
    assert np.abs(both - a.array @ packed.unpack().T).max() < 1e-3


def test_arrays_that_are_elsewhere(device, packed, weights):
    a, out = arrays()
    host = np.zeros((4, 96), np.float32)
    other = OnDevice(a.array, (2, 1))
    cases = (
        ((other, packed, None, out), "a is on CUDA device 1, expected CUDA device 0 for a context of CUDA device 0"),
        ((a, packed, None, host), "a is on CUDA device 0 and out in host memory, expected all arrays of a call on one device"),
        ((a.array, packed, np.zeros(96, np.float32), out), "out is on CUDA device 0 and a in host memory"),
        ((a, packed, None, None), "a is on CUDA device 0, and out is not given: expected an array on that device"),
        ((OnDevice(a.array, (8, 2)), packed, None, out), r"a is on device \(8, 2\) of DLPack, expected host memory"),
        ((OnDevice(np.zeros((4, 384), np.float32)), weights, None, None), "a is on CUDA device 0, expected host memory for a context of the CPU"),
    )
    for arguments, words in cases:
        with pytest.raises(mm.ArgumentError, match=words):
            mm.gemm(*arguments)
    assert a.told == [1] * 2 and other.told == []  # nobody is asked for what is not taken
    with pytest.raises(mm.ArgumentError, match="the library's own Stream cannot wait for"), mm.Stream(device) as stream:
        mm.gemm(a, packed, out=out, stream=stream)
    with pytest.raises(mm.ArgumentError, match="values is on CUDA device 0, expected host memory for what this call reads"):
        mm.Weights.quantize(device, a, mm.Quantize(mm.Format.MXFP4))


def test_experts_on_a_device(planted, device, w):
    experts = mm.Weights.pack(device, *(mm.Part(mm.Format.MXFP4, factor * w) for factor in (1, 2)), experts=2)
    a, _ = arrays()
    ids = OnDevice(np.array([[0, 1]] * 4, np.int32))
    scales, out = OnDevice(np.full((4, 2), 0.5, np.float32)), OnDevice(np.zeros((4, 96), np.float32))
    mm.gemm(a, experts, out=out, expert_ids=ids, expert_scales=scales)
    assert planted.calls[-1] == ("gemm", 0, [CUDA] * 4)
    assert np.abs(out.array - 1.5 * a.array @ experts.unpack(0, 96).T).max() < 1e-3
    with pytest.raises(mm.ArgumentError, match="a is on CUDA device 0 and expert_ids in host memory"):
        mm.gemm(a, experts, out=out, expert_ids=ids.array, expert_scales=scales)


def test_rows_by_their_numbers(planted, packed):
    ids, out = OnDevice(np.array([[5, 0], [95, 5]], np.int32)), OnDevice(np.zeros((2, 2, 128), np.float32))
    assert packed.unpack_rows(ids, out=out) is out
    assert planted.calls[-1] == ("unpack", 0, [CUDA] * 2)
    assert (out.array == packed.unpack()[ids.array]).all()
    with pytest.raises(mm.ArgumentError, match="ids are on CUDA device 0, and out is not given"):
        packed.unpack_rows(ids)
    with pytest.raises(mm.ArgumentError, match="out is on CUDA device 0 and ids in host memory"):
        packed.unpack_rows(ids.array, out=out)
    with pytest.raises(mm.ArgumentError, match=r"ids have strides \(2, 1\)"):
        packed.unpack_rows(OnDevice(np.zeros((2, 2), np.int32)[:, :1]), out=OnDevice(np.zeros((2, 1, 128), np.float32)))


def test_the_default_stream_goes_with_its_context(planted):
    context = planted.context()
    weights = mm.Weights.quantize(context, np.ones((96, 128), np.float32), mm.Quantize(mm.Format.MXFP4))
    a, out = arrays()
    mm.gemm(a, weights, out=out)
    alive = weakref.ref(context._owner)
    del context, weights
    gc.collect()
    assert alive() is None


def test_the_device_of_a_context(context):
    assert context.device.backend == mm.Backend.CPU and context.device.threads > 0
    chosen = mm.Context().device
    assert not chosen.why_not and chosen in mm.devices()
