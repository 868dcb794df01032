"""Torch's streams, graphs and devices without a GPU: what the operator and its layers do with a planted device and driver."""

from __future__ import annotations

import ctypes
import gc
import types

import metal_marlin as mm
import numpy as np
import pytest
from metal_marlin import _cuda
from planted import OnDevice, Planted

torch = pytest.importorskip("torch", minversion="2.4")
from metal_marlin import _torch_streams as streams  # noqa: E402
from metal_marlin import torch as layers  # noqa: E402
from metal_marlin.torch import Linear, device_of, quantize_  # noqa: E402

RELAXED = 2
CUDA = torch.device("cuda", 0)
INT8 = mm.Quantize(mm.Format.INT8)


class Driver:
    """NVIDIA's: the mode of captures of this thread, the captures that are under way, and the graphs that keep something."""

    def __init__(self):
        self.mode, self.seen, self.captures, self.kept = 0, [], {}, {}

    def cuThreadExchangeStreamCaptureMode(self, mode):
        self.mode, mode._obj.value = mode._obj.value, self.mode
        return 0

    def cuStreamGetCaptureInfo_v2(self, stream, status, number, graph, *_):
        status._obj.value, number._obj.value = 1, self.captures[stream]
        graph._obj.value = 1000 + self.captures[stream]
        return 0

    def cuUserObjectCreate(self, out, given, destructor, count, flags):
        assert (count, flags) == (1, 1)
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(destructor.value)
        out._obj.value = 1 + len(self.kept)
        self.created = function, given
        return 0

    def cuGraphRetainUserObject(self, graph, found, count, flags):
        assert (count, flags) == (1, 1)
        self.kept.setdefault(graph.value if hasattr(graph, "value") else graph, []).append(self.created)
        return 0

    def destroy(self, number):
        """A graph, with what was made of it."""
        for function, given in self.kept.pop(1000 + number):
            function(given)


class World:
    """Torch with one stream at a time, which may be captured."""

    def __init__(self, monkeypatch):
        self.planted, self.driver = Planted(), Driver()
        self.context = self.planted.context()
        self.use(0)
        monkeypatch.setattr(_cuda, "_driver", lambda: self.driver)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self.stream)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.stream.cuda_stream in self.driver.captures)
        monkeypatch.setattr(streams, "_captured", {})

    def use(self, native, number=1):
        self.stream = types.SimpleNamespace(cuda_stream=native, stream_id=number)

    def current(self):
        """The library's stream for torch's current one, while it is in use."""
        with streams.current_stream(self.context._owner) as found:
            self.driver.seen.append(self.driver.mode)
            return found


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_a_stream_of_torch_has_one(world):
    first = world.current()
    assert world.current() is first
    world.use(64)
    second = world.current()
    assert second is not first and world.current() is second
    other = world.planted.context(1)
    with streams.current_stream(other._owner) as third:
        assert third is not second
    world.use(0)
    assert world.current() is first
    assert world.planted.natives == [0, 64, 64] and set(world.driver.seen) == {0}


def test_nothing_is_kept_and_nothing_waits(world):
    weights = mm.Weights.quantize(world.context, np.ones((32, 64), np.float32), INT8)
    a, out = OnDevice(np.ones((2, 64), np.float32)), OnDevice(np.zeros((2, 32), np.float32))
    stream = world.current()
    mm.gemm(a, weights, out=out, stream=stream)
    assert (np.abs(out.array - 64) < 0.1).all() and stream._used == [] and a.told == out.told == [-1]  # torch orders it already
    owner = world.context._owner
    streams._streams.pop(owner)
    del stream
    gc.collect()
    assert world.planted.waited == []


def test_a_stream_of_another_library_is_not_kept(world):
    world.use(4096, number=4096)
    first = world.current()
    with pytest.raises(mm.ArgumentError, match="is closed"):
        first.flush()
    assert world.current() is not first and world.planted.natives == [4096] * 2


def test_a_stream_that_failed_is_not_used_again(world):
    first = world.current()
    with pytest.raises(mm.DeviceError), streams.current_stream(world.context._owner):
        raise mm.DeviceError(mm.Status.DEVICE, "the device failed")
    assert world.current() is not first
    with pytest.raises(mm.ShapeError), streams.current_stream(world.context._owner) as second:
        raise mm.ShapeError(mm.Status.SHAPE, "K is 1")
    assert world.current() is second


def test_captured_work_has_streams_that_live_as_long_as_its_graph(world):
    world.use(64)
    plain = world.current()
    world.driver.captures[64] = 1
    first = world.current()
    assert first is not plain and world.current() is first and world.driver.seen == [0, RELAXED, RELAXED]
    assert world.driver.mode == 0  # as it was
    # A capture goes over several streams.
    world.use(65)
    world.driver.captures[65] = 1
    branch = world.current()
    assert branch is not first and len(streams._captured) == 2
    # The next one has streams of its own, also where the streams of torch are the same.
    world.driver.captures = {64: 2}
    world.use(64)
    second = world.current()
    assert second is not first and len(streams._captured) == 3
    world.driver.captures = {}
    assert world.current() is plain
    # What a graph kept goes when the next capture begins.
    world.driver.destroy(1)
    assert len(streams._captured) == 3
    world.driver.captures = {64: 3}
    world.current()
    assert {number for _, number, _ in streams._captured} == {2, 3}


def test_captured_streams_outlive_their_context(world):
    """A graph may run when its model is gone."""
    world.use(64)
    world.driver.captures[64] = 1
    world.current()
    owner = world.context._owner
    world.context.close()
    del owner
    gc.collect()
    assert len(streams._captured) == 1


def test_a_driver_that_fails(world, monkeypatch):
    monkeypatch.setattr(Driver, "cuStreamGetCaptureInfo_v2", lambda *_: 900)
    world.use(64)
    world.driver.captures[64] = 1
    with pytest.raises(mm.DeviceError, match="cuStreamGetCaptureInfo_v2 returned 900"):
        world.current()
    assert world.driver.mode == 0


def test_finished_work_lets_go_of_weights_that_go(world):
    layer = Linear(mm.Weights.quantize(world.context, np.ones((32, 64), np.float32), INT8))
    world.use(64)
    world.current()
    assert world.planted.waited == []
    world.driver.captures[64] = 1  # nobody may wait now
    del layer.weights
    gc.collect()
    assert world.planted.waited == []
    layer = Linear(mm.Weights.quantize(world.context, np.ones((32, 64), np.float32), INT8))
    world.driver.captures = {}
    del layer
    gc.collect()
    assert world.planted.waited == [64]


@pytest.fixture
def shared(world, monkeypatch):
    """The planted device is the one to which layers move."""
    on_cpu = mm.Context(mm.Backend.CPU)
    monkeypatch.setattr(layers, "_context_for", lambda device: world.context if device == CUDA else on_cpu)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *sizes, device=None, **others: empty(*sizes, **others))
    return on_cpu


def moved(layer, device):
    """As to() does, for torch has no such device here."""
    return layer._apply(lambda tensor: types.SimpleNamespace(device=device))


def test_layers_that_move(world, shared):
    weights = mm.Weights.quantize(shared, np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32), INT8)
    layer, twin, w = Linear(weights), Linear(weights), weights.unpack()
    number = layer._number
    assert moved(layer, CUDA) is layer
    assert device_of(layer.weights) == CUDA and layer._number != number and (layer.weights.unpack() == w).all()
    assert moved(twin, CUDA).weights is layer.weights  # what layers share, they go on to share
    there = layer.weights
    assert moved(layer, CUDA).weights is there and moved(layer, torch.device("meta")).weights is there
    assert device_of(moved(layer, torch.device("cpu")).weights) == torch.device("cpu")
    assert (layer.weights.unpack() == w).all()
    kept = layer.weights
    assert layer.half().weights is kept


def test_layers_that_cannot_move(shared):
    part = mm.Part(mm.Format.NF4, np.zeros((2, 16), np.uint8), np.ones((2, 1), np.float32), group_size=32, k=32)
    layer = Linear(mm.Weights.pack(shared, part))
    before = layer.weights
    words = "to cuda:0: the codes of these weights cannot be found again, because their format is NF4, .*, and they come from no safetensors file"
    with pytest.raises(mm.UnsupportedError, match=words):
        moved(layer, CUDA)
    assert layer.weights is before


def test_devices_of_layers_and_activations(world, shared):
    on_cuda = Linear(mm.Weights.quantize(world.context, np.ones((32, 64), np.float32), INT8))
    with pytest.raises(mm.ArgumentError, match=r'x is on cpu, expected cuda:0, for which the weights are packed; Linear\.to\("cpu"\) packs'):
        on_cuda(torch.ones(2, 64))
    model = torch.nn.Sequential(torch.nn.Linear(64, 32, bias=False))
    quantize_(model, INT8, world.context)
    assert device_of(model[0].weights) == CUDA
    model = torch.nn.Sequential(torch.nn.Linear(64, 32))
    quantize_(model, INT8)
    assert model[0].weights.context._owner is shared._owner and model(torch.ones(2, 64)).shape == (2, 32)


def test_the_contexts_of_devices():
    on_cpu = layers._context_for(torch.device("cpu"))
    assert on_cpu.device.backend != mm.Backend.CUDA and layers._context_for(torch.device("cpu"))._owner is on_cpu._owner
    if not any(device.backend == mm.Backend.CUDA and not device.why_not for device in mm.devices()):
        with pytest.raises(mm.NoDeviceError):
            layers._context_for(CUDA)
