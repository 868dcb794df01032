"""examples/distributed/layers.py: ranks that share a layer give what one process gives."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading

import metal_marlin as mm
import numpy as np
import pytest
from conftest import DATA, TOP, write_safetensors

# Each start of torch takes seconds: one a test, unless everything is wanted.
WHOLE = "METAL_MARLIN_WHOLE" in os.environ
PATH = TOP / "examples" / "distributed" / "layers.py"
spec = importlib.util.spec_from_file_location("layers", PATH)
assert spec is not None and spec.loader is not None
layers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(layers)


def on_threads(ranks, work):
    """The results of work(rank, add) on as many threads, whose sums are of all of them."""
    barrier, given, results = threading.Barrier(ranks, timeout=60), [None] * ranks, [None] * ranks

    def run(rank):
        def add(values):
            given[rank] = values.copy()
            barrier.wait()
            values[...] = np.sum(given, axis=0)
            barrier.wait()

        results[rank] = work(rank, add)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_an_mlp_over_ranks(tmp_path, context, ranks):
    random = np.random.default_rng(5)
    values = {"gate": (96, 64), "up": (96, 64), "down": (64, 96)}
    write_safetensors(tmp_path / "floats.safetensors", {f"{k}.weight": random.standard_normal(v).astype(np.float32) for k, v in values.items()})
    mm.Checkpoint(tmp_path / "floats.safetensors").convert(tmp_path / "model.gguf", list(values), mm.Quantize(mm.Format.NONE), types=["Q4_0", "Q4_0", "Q8_0"])
    file = mm.Checkpoint(tmp_path / "model.gguf")
    names = [info.name for info in file.layers()]
    gate, up, down = (mm.Weights.load(context, file, next(n for n in names if n.startswith(k))).unpack().astype(np.float64) for k in values)
    x = random.standard_normal((3, 64)).astype(np.float32)
    expected = (silu(x @ gate.T) * (x @ up.T)) @ down.T
    wanted = tuple(next(n for n in names if n.startswith(k)) for k in values)
    for found in on_threads(ranks, lambda rank, add: layers.Mlp(context, file, wanted, rank, ranks, add)(x)):
        assert np.allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def mixture():
    """A checkpoint, the names of its gate, up and down, and what is known of them."""
    file = mm.Checkpoint(DATA / "qwen3moe-gptq-experts")
    found = {info.name.rsplit(".", 1)[1]: info for info in file.layers() if info.experts > 1}
    return file, tuple(found[part].name for part in ("gate_proj", "up_proj", "down_proj")), found


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_experts_over_ranks(context, ranks):
    file, names, found = mixture()
    experts, k = found["gate_proj"].experts, found["gate_proj"].k
    random = np.random.default_rng(6)
    x = random.standard_normal((4, k)).astype(np.float32)
    ids = np.array([random.permutation(experts)[:2] for _ in range(4)], np.int32)
    shares = random.random((4, 2)).astype(np.float32)
    gate, up, down = (mm.Weights.load(context, file, name).unpack().astype(np.float64).reshape(experts, -1, found[part].k)
                      for name, part in zip(names, ("gate_proj", "up_proj", "down_proj")))
    expected = np.zeros((4, down.shape[1]))
    for t in range(4):
        for slot, e in enumerate(ids[t]):
            expected[t] += shares[t, slot] * (down[e] @ (silu(gate[e] @ x[t]) * (up[e] @ x[t])))
    for result in on_threads(ranks, lambda rank, add: layers.Experts(context, file, names, rank, ranks, add)(x, ids, shares)):
        assert np.allclose(result, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_one_expert_a_token_has_the_bits_of_one_process(context, ranks):
    file, names, found = mixture()
    random = np.random.default_rng(7)
    x = random.standard_normal((9, found["gate_proj"].k)).astype(np.float32)
    ids = random.integers(0, found["gate_proj"].experts, (9, 1), np.int32)
    shares = random.random((9, 1)).astype(np.float32)
    whole = on_threads(1, lambda rank, add: layers.Experts(context, file, names, rank, 1, add)(x, ids, shares))[0]
    for result in on_threads(ranks, lambda rank, add: layers.Experts(context, file, names, rank, ranks, add)(x, ids, shares)):
        assert (result == whole).all()


def torchrun(ranks, *arguments):
    """What so many processes print."""
    pytest.importorskip("torch", reason="there is no torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_experts_over_torch(tmp_path):
    """Processes over gloo: sums of all ranks, of experts too, and the same bits on each."""
    program = tmp_path / "program.py"
    program.write_text(f"""
import sys
import numpy as np, metal_marlin as mm
sys.path.insert(0, {str(PATH.parent)!r})
import layers
rank, ranks, add = layers.over_torch()
values = np.full(3, rank + 1, np.float32)
add(values)
assert (values == ranks * (ranks + 1) // 2).all()
file, names, context = mm.Checkpoint({str(DATA / "qwen3moe-gptq-experts")!r}), {mixture()[1]!r}, mm.Context(mm.Backend.CPU, threads=1)
x = np.random.default_rng(3).standard_normal((6, {mixture()[2]["gate_proj"].k})).astype(np.float32)
for ids in (np.array([[0, 1], [2, 3], [1, 2], [3, 0], [0, 2], [1, 3]], np.int32), np.array([[0], [1], [2], [3], [3], [1]], np.int32)):
    shares = np.linspace(0.1, 0.9, ids.size, dtype=np.float32).reshape(ids.shape)
    found = layers.Experts(context, file, names, rank, ranks, add)(x, ids, shares)
    whole = layers.Experts(context, file, names, 0, 1, lambda _: None)(x, ids, shares)
    assert np.allclose(found, whole, rtol=1e-5, atol=1e-5 * np.abs(whole).max())
    assert ids.shape[1] > 1 or (found == whole).all()
sys.stdout.write(f"right on {{rank}}\\n")  # at once, since the processes share the pipe
layers.leave()
""")
    for ranks in (2, 3, 8) if WHOLE else (3,):
        assert sorted(torchrun(ranks, program).split("\n"))[1:] == [f"right on {rank}" for rank in range(ranks)]


def test_a_decoder_layer_over_torch():
    """The columns of the ranks have the bits of one rank, and their sums are within the bound."""
    shape = ["--hidden", "256", "--heads", "8", "--key-heads", "2", "--past", "8", "--rows", "1,12", "--calls", "1", "--rounds", "1", "--threads", "1"]
    for extra in (["--format", "int4"], ["--format", "mxfp4", "--dtype", "bfloat16"])[: 2 if WHOLE else 1]:
        lines = [json.loads(line) for line in torchrun(2, PATH.parent / "decoder_layer.py", "--backend", "gloo", "--device", "cpu", *shape, *extra).splitlines()]
        right = [each for each in lines if each["measured"] == "right"]
        assert [each["rows"] for each in right] == [1, 12] and all(each["right"] for each in right), right
        assert all(each["columns_have_the_bits_of_one_rank"] and each["row_invariant_columns_have_them"] for each in right), right
        assert all(0 < each["rows_share_of_bound"] <= 1 for each in right), right
        timed = [each for each in lines if each["measured"] == "layer"]
        assert all(each["layer_ms"] > 0 and each["bytes_of_a_sum"] == each["rows"] * 256 * (4 if "int4" in extra else 2) for each in timed), timed
        assert sum(each["measured"] == "sum" for each in lines) == 13
    alone = subprocess.run([sys.executable, PATH.parent / "decoder_layer.py", *shape, "--shards", "3"], capture_output=True, text=True, timeout=300)
    assert alone.returncode == 1 and "expected a divisor of 2 heads of keys" in alone.stderr, alone.stderr


def test_a_packed_container_is_the_same(context, tmp_path):
    file = mm.Checkpoint(DATA / "sharded-gptq")
    names = [info.name for info in file.layers()]
    half = mm.Shard((32, 0, 0), (16, 0, 0))
    loads = [mm.Load(names[:2]), mm.Load(names[2], shards=[half])]
    mm.save(context, file, tmp_path / "model.marlin", loads, rank=1, ranks=2)
    packed = mm.Checkpoint(tmp_path / "model.marlin")
    assert [info.name for info in packed.layers()] == ["+".join(names[:2]), names[2]]
    assert (packed.values["marlin.rank"], packed.values["marlin.ranks"]) == (1, 2)
    assert (mm.Weights.load(context, packed, names[:2]).unpack() == mm.Weights.load(context, file, names[:2]).unpack()).all()
    assert (mm.Weights.load(context, packed, names[2]).unpack() == mm.Weights.load(context, file, names[2]).unpack()[32:48]).all()
    with pytest.raises(mm.FileError):
        mm.save(context, file, tmp_path / "model.marlin")
    mm.save(context, file, tmp_path / "model.marlin", overwrite=True)
    with pytest.raises(mm.ArgumentError):
        mm.save(context, file, tmp_path / "other.marlin", rank=2, ranks=2)
    bad = bytearray((tmp_path / "model.marlin").read_bytes())
    bad[5000] ^= 1
    (tmp_path / "bad.marlin").write_bytes(bad)
    with pytest.raises(mm.FormatError, match="checksum"):
        for info in (broken := mm.Checkpoint(tmp_path / "bad.marlin")).layers():
            mm.Weights.load(context, broken, info.name)
