"""Writing checkpoints again, and stopping that."""

from __future__ import annotations

import errno
import os
import signal
import threading

import metal_marlin as mm
import numpy as np
import pytest
from conftest import GPTQ, write_safetensors
from metal_marlin.conversion import Team
from metal_marlin.progress import Watch

MXFP4 = mm.Quantize(mm.Format.MXFP4)
W = np.random.default_rng(7).standard_normal((1024, 512)).astype(np.float32)  # two stripes: fewer are not worth a second task


@pytest.fixture(scope="module")
def floats(tmp_path_factory):
    path = tmp_path_factory.mktemp("floats") / "model.safetensors"
    write_safetensors(path, {"w.weight": W, "odd.weight": W[:5, :3], "norm.weight": W[0]})
    return mm.Checkpoint(path)


@pytest.mark.parametrize(
    ("name", "quantize", "options", "layout"),
    [
        ("out", MXFP4, {}, mm.Layout.ROWS),
        ("out.gguf", mm.Quantize(mm.Format.NVFP4), {}, mm.Layout.GGUF),
        ("out", mm.Quantize(mm.Format.INT4, 128), {"scheme": mm.Scheme.GPTQ, "asymmetric": True}, mm.Layout.GPTQ_V2),
        ("out", mm.Quantize(mm.Format.INT4, 64, scales_mse=True, prune_2_4=True), {"column_norms": [W[0] ** 2]}, mm.Layout.ROWS),
    ],
)
def test_what_is_written_is_what_was_told(context, floats, tmp_path, name, quantize, options, layout):
    calls = []
    (outcome,) = floats.convert(tmp_path / name, ["w"], quantize, progress=lambda *call: calls.append(call), **options)
    assert (outcome.name, outcome.status, outcome.reason) == ("w", mm.Status.OK, "")
    assert (outcome.n, outcome.k, outcome.experts, outcome.source, outcome.format) == (1024, 512, 1, mm.Format.NONE, quantize.format)
    assert outcome.group_size == (quantize.group_size or {mm.Format.MXFP4: 32, mm.Format.NVFP4: 16}[quantize.format])
    assert outcome.bytes_before == W.nbytes and outcome.bytes_after < W.nbytes / 6
    assert outcome.zeros == ("asymmetric" in options) and outcome.sparse_2_4 == quantize.prune_2_4

    written = mm.Checkpoint(tmp_path / name)
    layer = next(layer for layer in written.layers() if layer.format == quantize.format)
    assert layer.name in ("w", "w.weight") and layer.layout == layout
    w = mm.Weights.load(context, written, layer.name).unpack()
    assert np.isclose(outcome.squared_error, ((w - W).astype(np.float64) ** 2).sum())
    assert np.isclose(outcome.squared_norm, (W.astype(np.float64) ** 2).sum())
    assert np.isclose(outcome.kept_norm, (W[w != 0].astype(np.float64) ** 2).sum(), rtol=0.02 if quantize.prune_2_4 else 0.1)
    if quantize.prune_2_4:
        kept = np.abs(W * W[0] ** 2).reshape(-1, 4).argsort(1)[:, :2]  # the two least of four
        assert not np.take_along_axis(w.reshape(-1, 4), kept, 1).any()
    assert (written.tensor("norm.weight") == W[0]).all()
    done = [call[0] for call in calls]
    assert calls and done == sorted(done) and {call[1] for call in calls} <= {0, W.nbytes + 15 * 4 + 512 * 4}
    assert "w" in {call[2] for call in calls}


def test_types_of_blocks_and_layouts_that_keep_every_value(context, floats, tmp_path):
    none = mm.Quantize(mm.Format.NONE)
    (k_quant,) = floats.convert(tmp_path / "k.gguf", ["w"], none, types=["Q4_K"], column_norms=[np.abs(W[0])])
    assert (k_quant.format, k_quant.exact, k_quant.additive_zeros) == (mm.Format.INT4, False, True)
    first = mm.Checkpoint(tmp_path / "k.gguf")
    (mlx,) = first.convert(tmp_path / "mlx", ["w.weight"], none, scheme=mm.Scheme.MLX)
    assert mlx.exact and mlx.squared_error == 0 and mlx.group_size == 32
    written = ((first, "w.weight"), (mm.Checkpoint(tmp_path / "mlx"), "w"))
    values = [mm.Weights.load(context, file, name).unpack() for file, name in written]
    assert (values[0] == values[1]).all()
    with pytest.raises(mm.MarlinError, match="expected one of Q4_0"):
        floats.convert(tmp_path / "bad.gguf", ["w"], none, types=["Q9_K"])
    with pytest.raises(ValueError, match="1 layers, found 2"):
        floats.convert(tmp_path / "bad.gguf", ["w"], none, types=["Q4_K", "Q6_K"])


def test_threads_write_the_same(floats, tmp_path):
    files = []
    for threads in (1, 3, 0):
        path = tmp_path / f"{threads}.gguf"
        floats.convert(path, ["w"], MXFP4, threads=threads)
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]


def test_layers_that_do_not_fit_and_files_that_are_there(floats, tmp_path):
    with pytest.raises(mm.MarlinError, match="odd"):
        floats.convert(tmp_path / "a", ["w", "odd"], mm.Quantize(mm.Format.NVFP4), scheme=mm.Scheme.GGUF)
    outcomes = floats.convert(tmp_path / "a.gguf", ["w", "odd"], mm.Quantize(mm.Format.NVFP4), skip_unfit=True, dry_run=True)
    by_name = {each.name: each for each in outcomes}
    assert by_name["w"].status == mm.Status.OK and by_name["w"].squared_error == 0
    assert by_name["odd"].status < 0 and by_name["odd"].reason and by_name["odd"].format == mm.Format.NONE
    assert list(tmp_path.iterdir()) == []
    floats.convert(tmp_path / "b", ["w"], MXFP4, shard_bytes=1 << 18)
    assert len(list((tmp_path / "b").glob("*.safetensors"))) > 1
    with pytest.raises(mm.FileError) as there:
        floats.convert(tmp_path / "b", ["w"], MXFP4, shard_bytes=1 << 18)
    assert there.value.errno == errno.EEXIST
    floats.convert(tmp_path / "b", ["w"], MXFP4, shard_bytes=1 << 18, overwrite=True)
    for layers, options, error, words in [
        ([], {}, mm.ArgumentError, "no layers"),
        (["none"], {}, mm.NotFoundError, "none"),
        (["w"], {"column_norms": [None, None]}, mm.ArgumentError, "one a layer"),
        (["w"], {"threads": -1}, ValueError, "max_workers"),
    ]:
        with pytest.raises(error, match=words):
            floats.convert(tmp_path / "c", layers, MXFP4, **options)
    assert not (tmp_path / "c").exists()


def test_it_says_what_is_odd(tmp_path):
    file, heard = mm.Checkpoint(GPTQ), []
    name = next(file.layers()).name
    file.convert(tmp_path / "a", [name], MXFP4, log=lambda level, text: heard.append((level, text)))
    assert heard and heard[0][0] == 2 and name in heard[0][1]

    def raises(level, text):
        raise RuntimeError("in log")

    with pytest.raises(RuntimeError, match="in log"):
        file.convert(tmp_path / "b", [name], MXFP4, log=raises)


class Enough(Exception):
    pass


def stop(*_):
    raise Enough


def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(("progress", "error"), [(stop, Enough), (interrupt, KeyboardInterrupt)])
def test_stopping_leaves_old_files(context, floats, tmp_path, progress, error):
    path = tmp_path / "model.gguf"
    floats.convert(path, ["w"], MXFP4)
    before = path.read_bytes()
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(error):
        floats.convert(path, ["w"], mm.Quantize(mm.Format.NVFP4), overwrite=True, progress=progress)
    assert signal.getsignal(signal.SIGINT) is handler
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.gguf"]
    assert mm.Weights.load(context, mm.Checkpoint(path), "w.weight").info().n == 1024


def test_a_handler_that_raises_loses_no_task():
    """In the middle of parallel_for: all tasks have run when it returns, and the exception is there for the call."""
    watch, ran, asked = Watch(None), [], threading.get_ident()

    def task(_, index):
        assert threading.get_ident() != asked
        if index == 3:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        threading.Event().wait(0.01)
        ran.append(index)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with Team(3, watch) as team:
            team.run(None, 40, task, None)
            assert sorted(ran) == list(range(40))
            team.run(None, 0, task, None)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert watch.tell(0, 0, "") == 1
    with pytest.raises(Enough), watch.during():
        pass
