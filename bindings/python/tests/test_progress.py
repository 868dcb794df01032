"""How far a load is, and stopping one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import metal_marlin as mm
import numpy as np
import pytest
from conftest import DOWN, GPTQ, write_safetensors
from metal_marlin import progress

MXFP4 = mm.Quantize(mm.Format.MXFP4)


@pytest.fixture(scope="module")
def floats(tmp_path_factory):
    """Two layers of 1024 rows: 16 panels of 64 each."""
    path = tmp_path_factory.mktemp("floats") / "model.safetensors"
    w = np.random.default_rng(6).standard_normal((1024, 256)).astype(np.float32)
    write_safetensors(path, {"first.weight": w, "second.weight": w[::-1]})
    return mm.Checkpoint(path)


def usable(context):
    eye = np.eye(32, dtype=np.float32)
    weights = mm.Weights.quantize(context, eye, mm.Quantize(mm.Format.INT8))
    return bool((mm.gemm(eye, weights) == weights.unpack().T).all())


def test_progress_goes_from_nothing_to_all(context, floats):
    calls = []
    mm.Weights.load(context, floats, ["first", "second"], MXFP4, progress=lambda *call: calls.append(call))
    total = 2 * 1024 * 256
    assert calls[0] == (0, total, "first") and calls[-1] == (total, total, "first") and calls == sorted(calls)
    calls.clear()
    loaded = mm.load_layers(context, floats, quantize=MXFP4, progress=lambda *call: calls.append(call))
    sizes = [layer.bytes for layer in floats.layers()]
    assert list(loaded) == ["first", "second"]
    assert calls[0] == (0, sum(sizes), "first") and calls[-1] == (sum(sizes), sum(sizes), "second") and calls == sorted(calls)
    # Without a format the floats are left out.
    assert mm.load_layers(context, floats) == {}


def test_an_exception_stops_the_load_and_comes_out(context, floats):
    class Enough(Exception):
        pass

    calls = []

    def stop(done, total, layer):
        calls.append(done)
        raise Enough(layer)

    with pytest.raises(Enough, match="first"):
        mm.Weights.load(context, floats, "first", MXFP4, progress=stop)
    assert calls == [0] and usable(context)


@pytest.mark.parametrize("at", [1, 2])
def test_ctrl_c_stops_the_load(context, floats, at):
    calls = []

    def interrupt(*call):
        calls.append(call)
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        mm.load_layers(context, floats, quantize=MXFP4, progress=interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert len(calls) == at and usable(context)


def test_a_handler_that_goes_on_leaves_a_cancelled_load(context, floats):
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        with pytest.raises(mm.CancelledError):
            mm.Weights.load(context, floats, "first", MXFP4, progress=lambda *_: os.kill(os.getpid(), signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [1] and usable(context)


def test_loads_on_other_threads_leave_signals_alone(context, floats):
    found = []
    thread = threading.Thread(target=lambda: found.append(mm.Weights.load(context, floats, "first", MXFP4)))
    thread.start()
    thread.join()
    assert found[0].info().n == 1024


CHILD = f"""
import signal, sys
import metal_marlin as mm
signal.signal(signal.SIGINT, signal.default_int_handler)
context, file = mm.Context(), mm.Checkpoint(sys.argv[1])
try:
    print("loading", flush=True)
    while True:
        mm.Weights.load(context, file, ["first"] * 64, mm.Quantize(mm.Format.INT4, 32, scales_mse=True))
except KeyboardInterrupt:
    weights = mm.Weights.load(context, mm.Checkpoint({str(GPTQ)!r}), {DOWN!r})
    print("usable", weights.unpack().shape)
"""


def test_a_signal_from_outside(floats, tmp_path):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"first.weight": np.random.default_rng(6).standard_normal((1024, 256)).astype(np.float32)})
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "loading\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert (out, child.returncode) == ("usable (96, 384)\n", 0), err


class Terminal:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


def test_the_bar(context, floats, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)  # as if it were not installed
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    mm.load_layers(context, floats, quantize=MXFP4, progress=True)
    lines = terminal.text.split("\r")
    assert lines[1].startswith("  0% [..............................] first") and lines[1].endswith("first")
    assert any(line.startswith("100% [##############################] second") for line in lines)
    assert lines[-1] == "" and lines[-2].strip() == ""  # wiped at the end
    monkeypatch.undo()
    bar = progress.Bar()
    bar(1, 2, "layer")
    bar.close()
    assert capsys.readouterr().err == ""  # no terminal


def test_the_bar_of_tqdm(monkeypatch):
    class Fake:
        made = []

        def __init__(self, **_):
            self.n, self.total, self.layers, self.closed = 0, None, [], False
            Fake.made.append(self)

        def set_postfix_str(self, text, refresh):
            self.layers.append(text)

        def update(self, more):
            self.n += more

        def close(self):
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm", type("tqdm", (), {"tqdm": Fake}))
    with progress.shown(True) as told:
        told(3, 10, "a")
        told(10, 10, "b")
    (bar,) = Fake.made
    assert (bar.n, bar.total, bar.layers, bar.closed) == (10, 10, ["a", "b"], True)
