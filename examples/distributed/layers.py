"""Layers that ranks share, in Python: each rank loads its own shard, and one sum over all ranks ends each layer.

    torchrun --nproc-per-node 2 examples/distributed/layers.py MODEL.gguf

`sum_over_ranks` adds a float32 array over all ranks, in place. over_torch() makes it of torch.distributed: gloo between
processors, NCCL between GPUs.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable
from typing import Any

import metal_marlin as mm
import numpy as np

Sum = Callable[[np.ndarray], None]
# How long a rank waits for the others: a rank that hangs ends all.
TIMEOUT = datetime.timedelta(seconds=120)


def part_of(size: int, unit: int, rank: int, ranks: int) -> tuple[int, int]:
    """The first element and the number of elements of a rank. Cuts lie at multiples of `unit`."""
    borders = [size if r == ranks else size // unit * r // ranks * unit for r in (rank, rank + 1)]
    return borders[0], borders[1] - borders[0]


def unit_of(size: int, ranks: int) -> int:
    """The largest length that every group and super-block of this size can be cut at."""
    for unit in (256, 128, 64, 32):
        if size % unit == 0 and size // unit >= ranks:
            return unit
    raise ValueError(f"ranks: expected at most {size // 32} for {size} columns, found {ranks}")


class Mlp:
    """down(silu(gate x) * up x): columns of gate and up, rows of down."""

    def __init__(self, context: mm.Context, file: mm.Checkpoint, names: tuple[str, str, str], rank: int, ranks: int, add: Sum) -> None:
        gate, up, down = names
        sizes = {info.name: info for info in file.layers()}
        width = sizes[gate].n
        first, count = part_of(width, unit_of(width, ranks), rank, ranks)
        rows, columns = mm.Shard((first, 0, 0), (count, 0, 0)), mm.Shard((0, first, 0), (0, count, 0))
        self.gate, self.up = (mm.Weights.load(context, file, name, shards=[rows]) for name in (gate, up))
        self.down = mm.Weights.load(context, file, down, shards=[columns])
        self.add = add

    def __call__(self, x: np.ndarray) -> np.ndarray:
        hidden = mm.gemm(x, self.gate, epilogue=mm.Epilogue.SILU) * mm.gemm(x, self.up)
        result = mm.gemm(np.ascontiguousarray(hidden), self.down)
        self.add(result)
        return result


class Experts:
    """A mixture whose experts are spread over the ranks: each rank multiplies by its own, and others add nothing. Of more ranks than
    experts, some have none. With one expert a token the sum has the bits of one process: all terms but one are 0."""

    def __init__(self, context: mm.Context, file: mm.Checkpoint, names: tuple[str, str, str], rank: int, ranks: int, add: Sum) -> None:
        sizes = {info.name: info for info in file.layers()}
        self.first, self.count = part_of(sizes[names[0]].experts, 1, rank, ranks)
        self.columns, self.add = sizes[names[2]].n, add
        if self.count == 0:  # which for a shard would be all
            return
        own = [mm.Shard((0, 0, self.first), (0, 0, self.count))]
        self.gate, self.up, self.down = (mm.Weights.load(context, file, name, shards=own) for name in names)

    def __call__(self, x: np.ndarray, ids: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """x [T, K] float32, ids [T, top_k] int32 among all experts, shares [T, top_k] float32."""
        result = np.zeros((len(x), self.columns), np.float32)
        if self.count != 0:
            own = (ids - self.first).astype(np.int32)  # of experts that others have: outside, which adds nothing
            gate = mm.gemm(x, self.gate, epilogue=mm.Epilogue.SILU, expert_ids=own)
            hidden = np.ascontiguousarray(gate * mm.gemm(x, self.up, expert_ids=own))
            mm.gemm(hidden, self.down, out=result, expert_ids=own, expert_scales=shares)
        self.add(result)
        return result


def join(backend: str, device: str) -> tuple[int, int, Any]:
    """Joins the other ranks through torch.distributed: the rank, the number of ranks, and the torch.device of this one, "cpu" or
    "cuda". torchrun has set the environment; without it there is one rank. leave() has to be called at the end."""
    import torch
    import torch.distributed as dist

    found = torch.device(device)
    if found.type == "cuda":  # each rank of a host has a GPU of its own
        found = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(found)
    alone: dict[str, Any] = {} if "RANK" in os.environ else {"rank": 0, "world_size": 1, "store": dist.HashStore()}
    dist.init_process_group(backend, timeout=TIMEOUT, **alone)
    return dist.get_rank(), dist.get_world_size(), found


def leave() -> None:
    """Of all ranks at their end. A process that ends without it may abort, because threads of gloo are still at work."""
    import torch.distributed as dist

    dist.destroy_process_group()


def over_torch(backend: str = "gloo") -> tuple[int, int, Sum]:
    """The rank, the number of ranks and the sum of torch.distributed."""
    import torch
    import torch.distributed as dist

    rank, ranks, device = join(backend, "cuda" if backend == "nccl" else "cpu")

    def add(values: np.ndarray) -> None:
        moved = torch.from_numpy(values).to(device)
        dist.all_reduce(moved)
        if device.type != "cpu":
            values[...] = moved.cpu().numpy()

    return rank, ranks, add


def main() -> None:
    rank, ranks, add = over_torch()
    file = mm.Checkpoint(sys.argv[1])
    names = ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight")
    layer = Mlp(mm.Context(mm.Backend.CPU), file, names, rank, ranks, add)
    x = np.linspace(-1, 1, layer.gate.info().k, dtype=np.float32)[None]
    y = layer(x)
    if rank == 0:
        print(f"y = {y[0, 0]:.4f} {y[0, 1]:.4f} ... {y[0, -1]:.4f} on {ranks} ranks")
    leave()


if __name__ == "__main__":
    main()
