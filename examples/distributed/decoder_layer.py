#!/usr/bin/env python3
"""One layer of a decoder on several ranks, measured: tensor parallelism over torch.distributed, with NCCL between GPUs.

    torchrun --nproc-per-node 2 examples/distributed/decoder_layer.py --backend nccl --device cuda
    torchrun --nproc-per-node 2 examples/distributed/decoder_layer.py --backend gloo --device cpu --hidden 256
    decoder_layer.py --shards 1,2,4,8              # one process: what a rank of so many takes without the others

Each rank holds whole heads, with their columns of q, k and v and their rows of attention out, and as many columns of gate and up
as rows of down. Two sums over all ranks end the layer's halves (Shoeybi et al., "Megatron-LM", 2019). The default shape is that
of Llama 70B. Weights are random codes of 4 bits. On GPUs the layer with its sums is one CUDA graph.

Rank 0 prints one JSON object a line: for each number of rows the milliseconds of the layer, of the layer without sums, of its
four products and of its two sums, and then how the ranks' products compare with those of one rank; at the end the milliseconds of
sums of several sizes. The exit status is 1 when a product lies outside of its bound.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import metal_marlin as mm
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as functional
from layers import join, leave, part_of
from metal_marlin.products import prepare

GROUP = {"int4": 128, "mxfp4": 32}
SUM_BYTES = [1 << power for power in range(12, 25)]
# Relative to the sum of |a| |w|: what sums in float32 may differ by when they add in another order.
SUMMATION = 2.0**-15
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
Part = tuple[int, int]  # the first element, and how many


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of a layer: widths in elements, heads of queries, and heads of keys and values."""

    hidden: int
    heads: int
    key_heads: int
    mlp: int

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    def sizes(self) -> dict[str, tuple[int, int]]:
        """[N, K] of each matrix."""
        keys = (self.key_heads * self.head, self.hidden)
        return {"q": (self.hidden, self.hidden), "k": keys, "v": keys, "o": (self.hidden, self.hidden),
                "gate": (self.mlp, self.hidden), "up": (self.mlp, self.hidden), "down": (self.hidden, self.mlp)}

    def share(self, rank: int, ranks: int, unit: int) -> dict[str, Part]:
        """What a rank has of each: rows of q, k, v, gate and up, columns of o and down. Cuts lie at multiples of `unit`."""
        if self.key_heads % ranks or self.mlp // unit < ranks or self.head * (self.heads // self.key_heads) % unit:
            raise SystemExit(f"ranks: expected a divisor of {self.key_heads} heads of keys, of whole groups of {unit}, found {ranks}")
        keys, mlp = part_of(self.key_heads, 1, rank, ranks), part_of(self.mlp, unit, rank, ranks)
        queries = tuple(each * self.hidden // self.key_heads for each in keys)
        keys = tuple(each * self.head for each in keys)
        return {"q": queries, "k": keys, "v": keys, "o": queries, "gate": mlp, "up": mlp, "down": mlp}


# What one product multiplies by, and the matrices whose columns a rank has: all others are cut along N.
FUSED = {"qkv": ("q", "k", "v"), "o": ("o",), "gate_up": ("gate", "up"), "down": ("down",)}
CUT_ALONG_K = ("o", "down")


def random_part(name: str, n: int, k: int, kind: str, own: Part) -> mm.Part:
    """A rank's part of random weights with a variance of about 1 / k. All ranks draw the same whole matrix."""
    random, group = np.random.default_rng(zlib.crc32(name.encode())), GROUP[kind]
    codes = np.frombuffer(random.bytes(n * k // 2), np.uint8).reshape(n, k // 2)
    if kind == "int4":  # codes have a root mean square of 4.6, those of FP4 have 2.9
        scales: Any = ((0.5 + random.random((n, k // group))) / (4.6 * k**0.5)).astype(np.float16)
    else:
        scales = (127 + random.integers(-1, 2, (n, k // group)) - round(np.log2(2.9 * k**0.5))).astype(np.uint8)
    first, count = own
    if name in CUT_ALONG_K:
        codes, scales = codes[:, first // 2 : (first + count) // 2], scales[:, first // group : (first + count) // group]
        k = count
    else:
        codes, scales = codes[first : first + count], scales[first : first + count]
        n = count
    codes, scales = np.ascontiguousarray(codes), np.ascontiguousarray(scales)
    if kind == "mxfp4":
        return mm.Part(mm.Format.MXFP4, codes, mm.Bits(scales, mm.DType.E8M0), n=n, k=k, layout=mm.Layout.ROWS)
    return mm.Part(mm.Format.INT4, codes, scales, group_size=group, n=n, k=k, layout=mm.Layout.ROWS)


class Device:
    """Where a rank computes: a device of torch with a context of the library on it, and the stream for both."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.torch, self.cuda = device, device.type == "cuda"
        if not self.cuda and options.threads:
            torch.set_num_threads(options.threads)
        library = mm.Library(options.library) if options.library else None
        backend = mm.Backend.CUDA if self.cuda else mm.Backend.CPU
        self.context = mm.Context(backend, device.index or 0, threads=0 if self.cuda else options.threads, library=library)
        self.side = torch.cuda.Stream() if self.cuda else None
        self.stream = mm.Stream(self.context, native=self.side) if self.cuda else None

    def current(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.stream(self.side) if self.cuda else contextlib.nullcontext()

    def wait(self) -> None:
        if self.stream is not None:
            self.stream.wait()
            torch.cuda.synchronize()

    def milliseconds(self, work: Callable[[], None], calls: int) -> float:
        """Of one call, of so many in a row."""
        self.wait()
        begun = time.perf_counter()
        if not self.cuda:
            for _ in range(calls):
                work()
            return (time.perf_counter() - begun) * 1e3 / calls
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self.current():
            start.record()
            for _ in range(calls):
                work()
            end.record()
        self.wait()
        return float(start.elapsed_time(end)) / calls


class Layer:
    """The weights of a rank, or of one of `ranks` that computes without the others."""

    def __init__(self, shape: Shape, kind: str, device: Device, rank: int, ranks: int) -> None:
        self.shape, self.device, self.ranks, self.kind = shape, device, ranks, kind
        self.own = shape.share(rank, ranks, GROUP[kind])
        self.weights = {fused: mm.Weights.pack(device.context, *(self.part(name) for name in names)) for fused, names in FUSED.items()}

    def part(self, name: str) -> mm.Part:
        return random_part(name, *self.shape.sizes()[name], self.kind, self.own[name])

    @property
    def bytes(self) -> int:
        return sum(each.info().bytes for each in self.weights.values())


class Step:
    """A layer on some rows, behind `past` others: arrays that stay, so that a graph may be made of it."""

    def __init__(self, layer: Layer, x: torch.Tensor, past: int, add: Callable[[torch.Tensor], None]) -> None:
        self.layer, self.x, self.add, self.past = layer, x, add, past
        shape, rows, own = layer.shape, x.shape[0], layer.own
        self.heads, self.key_heads = own["q"][1] // shape.head, own["k"][1] // shape.head

        def empty(columns: int) -> torch.Tensor:
            return torch.empty(rows, columns, dtype=x.dtype, device=x.device)

        widths = {name: weights.info().n for name, weights in layer.weights.items()}
        self.normed, self.second, self.between, self.result = (empty(shape.hidden) for _ in range(4))
        self.qkv, self.attended, self.o = empty(widths["qkv"]), empty(own["o"][1]), empty(shape.hidden)
        self.gated, self.down = empty(own["down"][1]), empty(shape.hidden)
        random = torch.Generator().manual_seed(2)
        cache = torch.randn(2, shape.key_heads, past + rows, shape.head, generator=random)
        first = own["k"][0] // shape.head
        self.cache = cache[:, first : first + self.key_heads].to(x.device, x.dtype).contiguous()
        self.angles, self.mask = self._rotation(), self._mask()
        weights = layer.weights
        self.products = {
            "qkv": mm.Gemm(self.normed, weights["qkv"], out=self.qkv),
            "o": mm.Gemm(self.attended, weights["o"], out=self.o),
            "gate_up": mm.Gemm(self.second, weights["gate_up"], out=self.gated, epilogue=mm.Epilogue.SWIGLU),
            "down": mm.Gemm(self.gated, weights["down"], out=self.down),
        }
        if layer.device.cuda:
            with layer.device.current():
                prepare(list(self.products.values()), rows, layer.device.stream)

    def _rotation(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [rows, 1, head] of rotary embedding (Su et al., "RoFormer", 2021)."""
        head, rows = self.layer.shape.head, self.x.shape[0]
        speeds = 500000.0 ** (-torch.arange(0, head, 2) / head)
        angles = torch.outer(torch.arange(self.past, self.past + rows), speeds).repeat(1, 2)[:, None]
        return angles.cos().to(self.x), angles.sin().to(self.x)

    def _mask(self) -> torch.Tensor | None:
        """A row sees those up to itself. Queries that share keys are rows of one head."""
        rows = self.x.shape[0]
        seen = torch.ones(rows, self.past + rows, dtype=torch.bool, device=self.x.device).tril(self.past)
        return None if rows == 1 else seen.repeat(self.heads // self.key_heads, 1)

    def _attention(self) -> None:
        rows, head, (cosines, sines) = self.x.shape[0], self.layer.shape.head, self.angles
        turned, values = self.qkv.view(rows, -1, head).split([self.heads + self.key_heads, self.key_heads], dim=1)
        low, high = turned.chunk(2, dim=-1)
        turned = turned * cosines + torch.cat((-high, low), dim=-1) * sines
        queries, keys = turned.split([self.heads, self.key_heads], dim=1)
        self.cache[0, :, self.past :].copy_(keys.transpose(0, 1))
        self.cache[1, :, self.past :].copy_(values.transpose(0, 1))
        shared = self.heads // self.key_heads
        queries = queries.reshape(rows, self.key_heads, shared, head).permute(1, 2, 0, 3).reshape(1, self.key_heads, shared * rows, head)
        found = functional.scaled_dot_product_attention(queries, self.cache[0][None], self.cache[1][None], self.mask)
        found = found.view(self.key_heads, shared, rows, head).permute(2, 0, 1, 3)
        self.attended.view(rows, self.key_heads, shared, head).copy_(found)

    def multiply(self, name: str) -> None:
        self.products[name].run(self.layer.device.stream)

    def multiply_all(self) -> None:
        for name in self.products:
            self.multiply(name)

    def sum_all(self) -> None:
        self.add(self.o)
        self.add(self.down)

    def run(self, add: Callable[[torch.Tensor], None] | None = None) -> None:
        add = add or self.add
        width = (self.layer.shape.hidden,)
        self.normed.copy_(functional.rms_norm(self.x, width, eps=1e-5))
        self.multiply("qkv")
        self._attention()
        self.multiply("o")
        add(self.o)
        torch.add(self.x, self.o, out=self.between)
        self.second.copy_(functional.rms_norm(self.between, width, eps=1e-5))
        self.multiply("gate_up")
        self.multiply("down")
        add(self.down)
        torch.add(self.between, self.down, out=self.result)

    def run_without_sums(self) -> None:
        self.run(lambda _: None)


class Job:
    """The ranks, and what they do together."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rank, self.ranks, device = join(options.backend, options.device)
        self.device = Device(options, device)
        self.dtype = getattr(torch, options.dtype or ("bfloat16" if self.device.cuda else "float32"))
        self.shape = Shape(options.hidden, options.heads, options.key_heads, options.mlp)
        self.graph_error = "" if self.device.cuda and options.graph else "not asked for"

    def add(self, values: torch.Tensor) -> None:
        if self.ranks > 1:
            dist.all_reduce(values)

    def largest(self, value: float) -> float:
        """Of all ranks."""
        found = torch.tensor([value], dtype=torch.float64, device=self.device.torch)
        if self.ranks > 1:
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return float(found.item())

    def graphed(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work as a CUDA graph, or as it is where no graph is to be had; graph_error says why."""
        with self.device.current():
            for _ in range(3):
                work()
        self.device.wait()
        if self.graph_error:
            return work
        graph, error = torch.cuda.CUDAGraph(), ""
        try:
            # The threads of NCCL look at events of theirs meanwhile.
            with torch.cuda.graph(graph, stream=self.device.side, capture_error_mode="thread_local"):
                work()
        except Exception as failure:  # the timings say that there was no graph, and why
            error = f"{type(failure).__name__}: {failure}"
        if self.largest(float(bool(error))):
            self.graph_error = error or "another rank could not capture"
            return work
        return graph.replay

    def timed(self, work: Callable[[], None]) -> float:
        """Milliseconds: the median of several rounds, on the slowest rank."""
        work, options = self.graphed(work), self.options
        with self.device.current():
            for _ in range(options.calls):
                work()
        self.device.wait()
        rounds = []
        for _ in range(options.rounds):
            self.largest(0)  # all begin at once
            rounds.append(self.device.milliseconds(work, options.calls))
        return self.largest(statistics.median(rounds))

    def input(self, rows: int, columns: int, seed: int = 1) -> torch.Tensor:
        random = torch.Generator().manual_seed(seed)
        return torch.randn(rows, columns, generator=random).to(self.device.torch, self.dtype)

    def measure(self, layer: Layer, rows: int) -> dict[str, Any]:
        step = Step(layer, self.input(rows, self.shape.hidden), self.options.past, self.add)
        found: dict[str, Any] = {"measured": "layer", "ranks": self.ranks, "shards": layer.ranks, "rows": rows}
        found["layer_ms"] = self.timed(step.run)
        found["without_sums_ms"] = self.timed(step.run_without_sums)
        found["products_ms"] = self.timed(step.multiply_all)
        found["sums_ms"] = self.timed(step.sum_all) if self.ranks > 1 else 0.0
        found["share_of_communication"] = max(0.0, 1 - found["without_sums_ms"] / found["layer_ms"])
        found["bytes_of_a_sum"] = step.o.numel() * step.o.element_size()
        found["bytes_of_weights"] = layer.bytes
        return found

    def measure_sums(self) -> Iterator[dict[str, Any]]:
        for size in SUM_BYTES:
            values = torch.zeros(size // self.input(1, 1).element_size(), dtype=self.dtype, device=self.device.torch)
            yield {"measured": "sum", "ranks": self.ranks, "bytes": size, "ms": self.timed(lambda values=values: self.add(values))}

    # --- against one rank ------------------------------------------------------------------------------------------------

    def product(self, layer: Layer, name: str, a: torch.Tensor, row_invariant: bool = False) -> torch.Tensor:
        out = torch.empty(a.shape[0], layer.weights[name].info().n, dtype=a.dtype, device=a.device)
        with self.device.current():
            mm.Gemm(a, layer.weights[name], out=out, row_invariant=row_invariant).run(self.device.stream)
        self.device.wait()
        return out

    def magnitudes(self, whole: Layer, name: str, a: torch.Tensor) -> torch.Tensor:
        """The sums of |a| |w|, float64 [rows, N]."""
        info = whole.weights[name].info()
        values = torch.empty(info.n, info.k, dtype=torch.float32, device=a.device)
        with self.device.current():
            whole.weights[name].unpack(out=values, stream=self.device.stream)
        self.device.wait()
        return (a.abs().float() @ values.abs().T).double()

    def check_columns(self, layer: Layer, whole: Layer, name: str, rows: int, row_invariant: bool) -> tuple[bool, float]:
        """Whether the bits are those of one rank, and the largest difference as a share of its bound."""
        a = self.input(rows, self.shape.hidden, 3)
        all_columns, at = [], 0
        for each in FUSED[name]:
            first, count = layer.own[each]
            all_columns += range(at + first, at + first + count)
            at += self.shape.sizes()[each][0]
        columns = torch.tensor(all_columns, device=a.device)
        found, wanted = (self.product(each, name, a, row_invariant) for each in (layer, whole))
        wanted = wanted[:, columns]
        bound = 2 * SUMMATION * self.magnitudes(whole, name, a)[:, columns] + 2 * ROUNDING[self.dtype] * wanted.double().abs()
        return torch.equal(found, wanted), float(((found.double() - wanted.double()).abs() / bound).max())

    def check_rows(self, layer: Layer, whole: Layer, name: str, rows: int) -> float:
        """The largest difference of the sum over ranks from one rank, as a share of its bound."""
        first, count = layer.own[name]
        a = self.input(rows, self.shape.sizes()[name][1], 4)
        found, wanted = self.product(layer, name, a[:, first : first + count].contiguous()), self.product(whole, name, a).double()
        parts = found.float().abs()
        self.add(parts)
        self.add(found)
        self.device.wait()
        rounding = ROUNDING[self.dtype] * (self.ranks * parts.double() + wanted.abs())
        bound = 2 * SUMMATION * self.magnitudes(whole, name, a) + rounding
        return float(((found.double() - wanted).abs() / bound).max())

    def check(self, layer: Layer, whole: Layer, rows: int) -> dict[str, Any]:
        columns, invariant = (
            [self.check_columns(layer, whole, name, rows, each) for name in FUSED if name not in CUT_ALONG_K] for each in (False, True)
        )
        sums = [self.check_rows(layer, whole, name, rows) for name in CUT_ALONG_K]
        results = []
        for each, add in ((layer, self.add), (whole, lambda _: None)):
            step = Step(each, self.input(rows, self.shape.hidden), self.options.past, add)
            with self.device.current():
                step.run()
            self.device.wait()
            results.append(step.result.double())
        error = float((results[0] - results[1]).abs().max() / results[1].abs().max())
        found: dict[str, Any] = {
            "measured": "right",
            "ranks": self.ranks,
            "rows": rows,
            "columns_have_the_bits_of_one_rank": not self.largest(float(not all(same for same, _ in columns))),
            "row_invariant_columns_have_them": not self.largest(float(not all(same for same, _ in invariant))),
            "columns_share_of_bound": self.largest(max(share for _, share in columns + invariant)),
            "rows_share_of_bound": self.largest(max(sums)),
            "layer_relative_error": self.largest(error),
        }
        found["right"] = bool(max(found["columns_share_of_bound"], found["rows_share_of_bound"]) <= 1
                              and found["layer_relative_error"] <= max(16 * ROUNDING[self.dtype], 2 * SUMMATION))
        return found


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"type": lambda text: [int(each) for each in text.split(",")]}
    parser.add_argument("--backend", default="gloo", choices=["gloo", "nccl"], help="of torch.distributed")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--heads", type=int, help="of queries; default: of 128 elements each, and 8 or more")
    parser.add_argument("--key-heads", type=int, default=8, help="of keys and values")
    parser.add_argument("--mlp", type=int, help="default: 3.5 times the width")
    parser.add_argument("--format", default="int4", choices=list(GROUP), help="int4 with groups of 128, or mxfp4")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], help="of activations and sums")
    parser.add_argument("--rows", default=[1, 16, 512], **numbers)
    parser.add_argument("--past", type=int, default=1024, help="rows before these, whose keys and values are there")
    parser.add_argument("--shards", default=[], **numbers, help="with one process: the numbers of ranks that it is the first of")
    parser.add_argument("--calls", type=int, default=20, help="in a row, which are timed together")
    parser.add_argument("--rounds", type=int, default=7, help="of so many calls; the median counts")
    parser.add_argument("--threads", type=int, default=0, help="of a rank on the CPU")
    parser.add_argument("--library", help="the path of libmetal-marlin.so; default: that of the package")
    parser.add_argument("--no-graph", dest="graph", action="store_false", help="no CUDA graph")
    parser.add_argument("--no-check", dest="check", action="store_false", help="no comparison with one rank")
    options = parser.parse_args()
    options.heads = options.heads or max(8, options.hidden // 128)
    options.mlp = options.mlp or options.hidden * 7 // 2
    return options


def main() -> None:
    options = parsed()
    job = Job(options)
    name = torch.cuda.get_device_name() if job.device.cuda else "CPU"
    common = {"device": name, "backend": options.backend, "format": options.format, "dtype": str(job.dtype).split(".")[1],
              **dataclasses.asdict(job.shape), "past": options.past}
    right = True

    def tell(found: dict[str, Any]) -> None:
        if job.rank == 0:
            found["graph"] = not job.graph_error
            if not job.device.cuda and job.ranks * max(1, options.threads) > len(os.sched_getaffinity(0)):
                found["oversubscribed"] = True  # ranks take turns on the processors
            print(json.dumps({**common, **found}), flush=True)

    if options.shards and job.ranks > 1:
        raise SystemExit(f"--shards: expected one process, found {job.ranks}")
    for shards in options.shards or [job.ranks]:
        layer = Layer(job.shape, options.format, job.device, job.rank, shards)
        whole = Layer(job.shape, options.format, job.device, 0, 1) if options.check and not options.shards else None
        for rows in options.rows:
            tell(job.measure(layer, rows))
            if whole is not None:
                tell(found := job.check(layer, whole, rows))
                right = right and found["right"]
    if job.ranks > 1:
        for found in job.measure_sums():
            tell(found)
    if job.graph_error and job.device.cuda and job.rank == 0:
        print(f"no CUDA graph: {job.graph_error}", file=sys.stderr)
    leave()
    sys.exit(not right)


if __name__ == "__main__":
    main()
