"""Times the CUDA backend on an NVIDIA GPU: products of quantized weights beside torch's products of 16-bit weights (cuBLAS) and a
kernel that only reads as many bytes; all products of a decoder's step; mixtures of experts. It prints tables and checks what it times.
METAL_MARLIN_KERNEL=NAME forces a kernel.

./dev bench --backend cuda runs this program. The exit status is 1 if a product is wrong or refused."""
import argparse
import ctypes
import dataclasses
import datetime
import itertools
import json
import os
import pathlib
import statistics
import sys

import numpy as np
import torch

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bindings/python"))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":65536:1")  # KiB, twice what NVIDIA recommends for Hopper

import metal_marlin as mm  # noqa: E402

# K, N, and the most rows of A that a model gives it.
SHAPES = {"fc1": (4096, 11776, 4096), "fc2": (11776, 4096, 4096), "square": (4096, 4096, 4096), "wide": (8192, 8192, 4096),
          "large": (8192, 28672, 4096), "lm_head": (2880, 201088, 8)}
# A type and what it groups of activations of INT8; then the error that is allowed, over the mean square of a row. What rounds
# activations or weights errs by the square of half a unit in the last place, a third of it in the mean.
COMPUTES = {"default": (mm.Compute.DEFAULT, 0, 1e-5), "fp8": (mm.Compute.FP8, 0, 3e-3), "w16": (mm.Compute.W16, 0, 3e-5),
            "int8": (mm.Compute.INT8, 0, 5e-4), "int8-128": (mm.Compute.INT8, 128, 5e-4), "int8-row": (mm.Compute.INT8, 2**31 - 1, 5e-4)}
ROTATING_BYTES, LEAST_COPIES = 720 << 20, 4  # many times the last cache of any GPU so far
PLACES = 1 << 20  # where the codes of a copy may begin
CHECKED, CHECKED_OF_EXPERTS = 64, 16  # columns; routed rows and columns, because each row has another expert to decode
WARM_UP = 2  # rounds before those that count


@dataclasses.dataclass(frozen=True)
class Form:
    """Weights of a format. zeros: additive, of the type of the scales; sparse: 2:4, pruned when they are packed."""

    format: mm.Format
    group: int
    scales: mm.DType
    zeros: bool = False
    sparse: bool = False

    @property
    def bits(self):
        eight, floats = (mm.Format.INT8, mm.Format.UINT8, mm.Format.FP8), self.format == mm.Format.BFLOAT16
        return 16 if floats else 8 if self.format in eight else 4

    def bytes(self, n, k):
        """Of packed weights. A slot of 2:4 weights has half a code, and a position."""
        groups = -(-k // self.group) * (1 + self.zeros) * {mm.DType.F32: 4, mm.DType.F16: 2, mm.DType.BF16: 2}.get(self.scales, 1)
        return n * k * (3 if self.sparse else self.bits) // 8 + n * groups * (self.bits != 16)


ROW = 1 << 30
F32, F16, BF16 = mm.DType.F32, mm.DType.F16, mm.DType.BF16
FORMS = {
    "mxfp4": Form(mm.Format.MXFP4, 32, mm.DType.E8M0), "nvfp4": Form(mm.Format.NVFP4, 16, mm.DType.E4M3),
    "int4": Form(mm.Format.INT4, 128, F16), "q4_0": Form(mm.Format.INT4, 32, F16), "q4_1": Form(mm.Format.INT4, 32, F16, True),
    "q4_k": Form(mm.Format.INT4, 32, F32, True), "int4-g64": Form(mm.Format.INT4, 64, F16), "mlx": Form(mm.Format.INT4, 64, BF16, True),
    "q8_0": Form(mm.Format.INT8, 32, F16), "int8": Form(mm.Format.INT8, 128, F16), "int4-row": Form(mm.Format.INT4, ROW, F16),
    "int8-row": Form(mm.Format.INT8, ROW, F16), "q6_k": Form(mm.Format.INT8, 16, F32), "q5_k": Form(mm.Format.INT8, 32, F32, True),
    "mlx8": Form(mm.Format.UINT8, 64, BF16, True), "fp8": Form(mm.Format.FP8, 128, F32), "nf4": Form(mm.Format.NF4, 64, F32),
    "bf16": Form(mm.Format.BFLOAT16, ROW, BF16), "mxfp4-2:4": Form(mm.Format.MXFP4, 32, mm.DType.E8M0, False, True),
    "int4-2:4": Form(mm.Format.INT4, 128, F16, False, True)}


class RandomWeights:
    """Copies have the same codes, each from another place on, and scales of their own, which make products about 1 to 30."""

    def __init__(self, most):
        random = np.random.default_rng(1)
        self.codes = random.integers(0, 256, most + PLACES, np.uint8)
        self.fp8 = np.where(self.codes & 127 == 127, self.codes ^ 1, self.codes)  # no NaN
        self.bf16 = (torch.rand(most + PLACES, generator=torch.manual_seed(2)) * 2 - 1).bfloat16().view(torch.uint16).numpy()

    def part(self, form, n, k, copy, rows=slice(None)):
        start, random = copy * 8191 % PLACES, np.random.default_rng(copy)
        if form.format == mm.Format.BFLOAT16:
            return mm.Part(form.format, mm.Bits(self.bf16[start:start + n * k].reshape(n, k)[rows], BF16))
        codes = self.fp8 if form.format == mm.Format.FP8 else self.codes
        codes = codes[start:start + n * k * form.bits // 8].reshape(n, -1)[rows]
        groups = (n, -(-k // form.group))
        if form.scales == mm.DType.E8M0:
            scales = mm.Bits(random.integers(118, 122, groups, np.uint8)[rows], form.scales)  # 2^-9 to 2^-6
        elif form.scales == mm.DType.E4M3:
            scales = mm.Bits(random.integers(8, 48, groups, np.uint8)[rows], form.scales)  # 2^-6 to 0.47
        else:
            floats = ((1 + random.random(groups, np.float32)) / 512)[rows]
            scales = {F32: floats, F16: floats.astype(np.float16), BF16: mm.Bits((floats.view(np.uint32) >> 16).astype(np.uint16), BF16)}[form.scales]
        return mm.Part(form.format, codes.view(np.int8) if form.format == mm.Format.INT8 else codes, scales, scales if form.zeros else None,
                       min(form.group, k), k=k, layout=mm.Layout.ROWS, additive_zeros=form.zeros, prune_2_4=form.sparse)

    def values(self, cpu, form, n, k, copy, rows):
        """float64 [rows, K] on the GPU, decoded by the CPU backend."""
        return torch.from_numpy(mm.Weights.pack(cpu, self.part(form, n, k, copy, rows)).unpack()).cuda().double()


def two_inputs(epilogue):
    return epilogue in (mm.Epilogue.SWIGLU, mm.Epilogue.SWIGLU_OAI)


def finished(epilogue, sums):
    """What an epilogue makes of sums. The first half of the columns are gates."""
    gate, up = sums.chunk(2, -1) if two_inputs(epilogue) else (sums, None)
    if epilogue == mm.Epilogue.SWIGLU:
        return gate * gate.sigmoid() * up
    if epilogue == mm.Epilogue.SWIGLU_OAI:
        gate, up = gate.clamp(max=7), up.clamp(-7, 7)
        return gate * (1.702 * gate).sigmoid() * (up + 1)
    return gate


def some_of(count, most):
    """The first, the last and others at random."""
    return np.unique(np.r_[0, count - 1, np.random.default_rng(1).permutation(count)[:most - 2]])


def rows_of(columns, n, epilogue):
    """The rows of W that these columns of C come from: with two inputs all gate rows, and then all up rows."""
    return np.r_[columns, columns + n // 2] if two_inputs(epilogue) else columns


def error_of(found, wanted):
    """The largest of any row: the sum of squared errors over the sum of squares. Rounding to bfloat16 alone makes 3e-6."""
    errors = (found.double() - wanted).square().sum(-1) / wanted.square().sum(-1)
    return float(errors.nan_to_num(nan=float("inf")).max())


class ReadFloor:
    """The kernel that only reads (read_floor.cu): the least time that a product can take."""

    def __init__(self, path):
        self.driver, module, self.function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
        self.result = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.check(self.driver.cuModuleLoad(ctypes.byref(module), str(path).encode()))
        self.check(self.driver.cuModuleGetFunction(ctypes.byref(self.function), module, b"read_floor"))

    def check(self, error):
        if error:
            sys.exit(f"read_floor: the driver gives error {error}")

    def read(self, memory, start, count):
        """`count` bytes of the tensor, on torch's current stream."""
        values = ctypes.c_uint64(memory.data_ptr() + start), ctypes.c_uint64(count // 16), ctypes.c_uint64(self.result.data_ptr())
        arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(each) for each in values))
        blocks, threads = 528, 512  # all that an H200 runs at once
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(self.driver.cuLaunchKernel(self.function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, None))


class Bench:
    def __init__(self, options):
        self.options, self.right, self.heads = options, True, None
        torch.cuda.set_stream(torch.cuda.Stream())
        library = mm.Library(TOP / "build/cuda/libmetal-marlin.so")
        self.context, self.cpu = mm.Context(mm.Backend.CUDA, library=library), mm.Context(mm.Backend.CPU, library=library)
        self.stream = mm.Stream(self.context, native=torch.cuda.current_stream())
        self.floor = ReadFloor(options.read_floor)
        self.dtype = torch.float16 if options.activations == "f16" else torch.bfloat16

    def numbers(self, *shape):
        """From -1 to 1."""
        return torch.rand(shape, device="cuda").mul_(2).sub_(1).to(self.dtype)

    def room(self, *shape):
        return torch.empty(shape, dtype=self.dtype, device="cuda")

    def repeated(self, count):
        """Bytes of numbers, the same block again and again: caches do not see what is in them."""
        block = self.numbers(16 << 20)
        return block.repeat(-(-count // (32 << 20)))[:-(-count // 2)]

    def graph(self, work):
        """After a run that counts for nothing: it loads kernels, which a graph that is being captured would not bear."""
        work()
        self.stream.wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="relaxed"):
            work()
        return graph

    def products(self, products, rows):
        """A graph of these products, one after another."""
        mm.prepare(products, rows, self.stream)
        return self.graph(lambda: [product.run(self.stream) for product in products])

    def times(self, graphs):
        """Microseconds of replays, [graph][round]. In a round each graph has its turn. All replays are given to the stream before the
        first is waited for: no time has the launch of its graph in it."""
        def timed(graph):
            moments = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            moments[0].record()
            graph.replay()
            moments[1].record()
            return moments

        rounds = [[timed(graph) for graph in graphs] for _ in range(WARM_UP + self.options.rounds)][WARM_UP:]
        torch.cuda.synchronize()
        return [[1e3 * begin.elapsed_time(end) for begin, end in each] for each in zip(*rounds)]

    def measured(self, graphs, counts, multiplications):
        """Fields of a line: of our graph, of one that only reads and, if there is one, of torch's. Each graph has this many products."""
        ours, read, *dense = ([time / count for time in each] for each, count in zip(self.times(graphs), counts))
        ratio = lambda over, under: statistics.median(a / b for a, b in zip(over, under))
        us = statistics.median(ours)
        return {"us": us, "read_us": statistics.median(read), "times_read": ratio(ours, read),
                "cublas_us": statistics.median(dense[0]) if dense else None, "speedup_over_cublas": ratio(dense[0], ours) if dense else None,
                "tflops": 2e-6 * multiplications / us}

    def table(self, text):
        self.heads = None
        print(f"metal-marlin on {torch.cuda.get_device_name()}, torch {torch.__version__}, {datetime.date.today()}\n{text}\n"
              f"{self.options.activations} activations and results. Medians of {self.options.rounds} replays, back to back; the graphs of "
              "a line take turns.\n\n  us          a product, or all products of the line\n  read_us     a kernel that only reads as many "
              "bytes as the weights have\n  cublas_us   torch's products of 16-bit weights\n  error       the largest sum of squared errors "
              "of a row, over that of its squares\n")

    def line(self, place, measure):
        """A line of the table and its record: its place, and what measure() gives. A product that the library refuses, as one that
        METAL_MARLIN_KERNEL's kernel does not serve, does not end the race."""
        try:
            fields, error = measure()
        except mm.UnsupportedError as refused:
            self.right = False
            print(*place.values(), f"not served: {refused}", flush=True)
            return
        fields = {**place, **fields, "error": error, "right": error <= COMPUTES[self.options.compute][2]}
        self.right = self.right and fields["right"]
        shown = lambda value: {type(None): lambda: "-", float: lambda: f"{value:.0f}" if value >= 100 else f"{value:.3g}",
                               dict: lambda: " ".join(value.values())}.get(type(value), lambda: str(value))()
        if self.heads is None:
            self.heads = list(fields)
            print(*(f"{head:>9}" for head in self.heads))
        print(*(f"{shown(fields[head]):>{max(9, len(head))}}" for head in self.heads), flush=True)
        if self.options.json:
            common = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "activations": self.options.activations,
                      "compute": self.options.compute, "rounds": self.options.rounds}
            print(json.dumps({**common, **fields}), file=self.options.json, flush=True)


def copies_of(count):
    """How many weights of this size take turns, so that what is read is never in a cache and a graph has several products."""
    return max(LEAST_COPIES, ROTATING_BYTES // count + 1)


def race_products(bench):
    options = bench.options
    bench.table("C[M, N] = A[M, K] W[N, K]^T. Each product of a graph has weights of its own (more than 750 MB in all).")
    compute, group, _ = COMPUTES[options.compute]
    made = RandomWeights(max(k * n for k, n, _ in map(SHAPES.get, options.shapes)))
    for name in options.shapes:
        k, n, most = SHAPES[name]
        dense = bench.repeated(copies_of(2 * n * k) * 2 * n * k).view(-1, n, k)
        every = [m for m in options.rows if m <= most]
        columns = some_of(n, CHECKED)
        for word in options.formats:
            form = FORMS[word]
            size = form.bytes(n, k)
            packed = [mm.Weights.pack(bench.context, made.part(form, n, k, copy)) for copy in range(copies_of(size))]
            last = made.values(bench.cpu, form, n, k, len(packed) - 1, columns)
            floor = bench.repeated(size * len(packed))
            for m in every:
                def measure():
                    a, c = bench.numbers(m, k), bench.room(m, n)
                    products = [mm.Gemm(a, each, out=c, compute=compute, activation_group=group) for each in packed]
                    ours = bench.products(products, m)
                    c.fill_(float("nan"))
                    ours.replay()
                    error = error_of(c[:, columns], a.double() @ last.T)
                    read = bench.graph(lambda: [bench.floor.read(floor, i * size, size) for i in range(len(packed))])
                    other = bench.graph(lambda: [torch.matmul(a, each.T, out=c) for each in dense])
                    counts = len(packed), len(packed), len(dense)
                    fields = bench.measured((ours, read, other), counts, m * n * k)
                    return {**fields, "kernel": products[0].explain()["kernel"]}, error

                bench.line({"shape": name, "k": k, "n": n, "format": word, "group": form.group, "m": m}, measure)


# All products of a model's step in one graph, in the order of a model. Each has weights of its own, so that a step reads them all
# from memory, as a model does. The activations of a kind of product are the same random numbers in every layer: a chain of random
# layers would overflow or vanish, and takes no other time.
LAYERS = 32
KINDS = {"qkv": (4096, 12288), "out": (4096, 4096), "gate_up": (4096, 22016), "down": (11008, 4096)}
HEAD = (4096, 32000)


def time_decoder(bench):
    options = bench.options
    bench.table("All products of a decoder for M tokens: 32 layers of qkv 4096 -> 12288, out 4096 -> 4096, gate_up 4096 -> 22016\n"
                "with SwiGLU (not in cuBLAS) and down 11008 -> 4096; head 4096 -> 32000. Each layer has weights of its own.")
    epilogues = {"gate_up": mm.Epilogue.SWIGLU}
    step = [(name, *KINDS[name], layer) for layer in range(LAYERS) for name in KINDS] + [("head", *HEAD, 0)]
    last = {name: (k, n, layer) for name, k, n, layer in step}  # whose product is the one that is left in C
    counts = [k * n for _, k, n, _ in step]
    made, elements, dense = RandomWeights(max(counts)), sum(counts), []
    if options.dense:
        dense = [each.view(n, k) for each, (_, k, n, _) in zip(bench.repeated(2 * elements).split(counts), step)]
    for word in options.formats:
        form = FORMS[word]
        packed = [mm.Weights.pack(bench.context, made.part(form, n, k, layer)) for _, k, n, layer in step]
        size = sum(form.bytes(n, k) for _, k, n, _ in step)
        floor = bench.repeated(size)
        for m in options.rows:
            def measure():
                a = bench.numbers(m, 11008)
                rows = {k: a.flatten()[:m * k].view(m, k) for k in (4096, 11008)}
                c = {name: bench.room(m, n) for name, (_, n, _) in last.items()}
                gated = lambda name, n: c[name].flatten()[:m * n // 2].view(m, -1) if name in epilogues else c[name]
                products = [mm.Gemm(rows[k], each, out=gated(name, n), epilogue=epilogues.get(name, mm.Epilogue.NONE))
                            for each, (name, k, n, _) in zip(packed, step)]
                ours = bench.products(products, m)
                for each in c.values():
                    each.fill_(float("nan"))
                ours.replay()
                error = 0
                for name, (k, n, layer) in last.items():
                    epilogue = epilogues.get(name, mm.Epilogue.NONE)
                    columns = some_of(n // (1 + two_inputs(epilogue)), CHECKED)
                    w = made.values(bench.cpu, form, n, k, layer, rows_of(columns, n, epilogue))
                    error = max(error, error_of(gated(name, n)[:, columns], finished(epilogue, rows[k].double() @ w.T)))
                graphs = [ours, bench.graph(lambda: bench.floor.read(floor, 0, size))]
                if dense:
                    graphs.append(bench.graph(lambda: [torch.matmul(rows[k], w.T, out=c[name]) for w, (name, k, *_) in zip(dense, step)]))
                fields = bench.measured(graphs, (1, 1, 1), m * elements)
                kernels = {name: product.explain()["kernel"] for product, (name, *_) in zip(products, step) if name != "head"}
                return {**fields, "tokens_per_second": 1e6 * m / fields["us"], "weight_bytes": size,
                        "kernels": {**kernels, "head": products[-1].explain()["kernel"]}}, error

            bench.line({"model": "decoder", "format": word, "group": form.group, "m": m}, measure)


# Mixtures of experts. Products of a graph take turns at several stacks of experts and route their tokens anew, so that a frequent
# expert's weights have left the caches when it is met again.
WIDTH, STACKS = 2880, 4
GATE_UP, DOWN = ("gate_up", 2 * WIDTH, mm.Epilogue.SWIGLU_OAI, False), ("down", WIDTH, mm.Epilogue.NONE, True)
CASES = {"single": [("down", WIDTH, mm.Epilogue.NONE, False)], "gpt-oss": [GATE_UP, DOWN]}  # N, epilogue, sums of a token's rows


class Router:
    """Draws the experts of tokens. The r-th most frequent expert, a random one, has a weight of 1 / r^skew."""

    def __init__(self, experts, skew, seed):
        self.random = np.random.default_rng(seed)
        self.logs = -skew * np.log(1 + self.random.permutation(experts))

    def draw(self, tokens, top_k):
        """int32 [tokens, top_k]; those of a token differ."""
        keys = self.logs + self.random.gumbel(size=(tokens, len(self.logs)))
        return np.argsort(-keys, -1)[:, :top_k].astype(np.int32)


def time_experts(bench):
    options = bench.options
    count, top_k = options.expert_count, options.top_k
    bench.table("Mixtures of experts: single is 2880 -> 2880 with a row of C for each expert of a token; gpt-oss is gate_up\n"
                "2880 -> 5760 with SWIGLU_OAI, and down 2880 -> 2880, which sums the experts of a token. The tokens of each\n"
                "product of a graph are routed anew, to one of four stacks of experts in turn. The r-th most frequent expert\n"
                "has a weight of 1 / r^skew. touched: different experts of a product's tokens, in the mean; MB: their weights.")
    made = RandomWeights(2 * WIDTH * WIDTH)
    for word in options.formats:
        form = FORMS[word]
        pack = lambda n, first: mm.Weights.pack(bench.context, *(made.part(form, n, WIDTH, first + i) for i in range(count)), experts=count)
        stacks = {name: [pack(n, stack * count) for stack in range(STACKS)] for name, n, *_ in (GATE_UP, DOWN)}
        # Two products, so that one reads what the other before it did not.
        floor = bench.repeated(2 * count * form.bytes(2 * WIDTH, WIDTH))
        for (case, steps), skew, tokens in itertools.product(CASES.items(), options.skew, options.rows):
            of_expert = sum(form.bytes(n, WIDTH) for _, n, *_ in steps)

            def measure():
                routers = [Router(count, skew, stack + 1) for stack in range(STACKS)]  # whose frequent experts are others
                draws = [routers[0].draw(tokens, top_k)]
                turns = -(-copies_of(len(np.unique(draws[0])) * of_expert) // STACKS) * STACKS
                draws += [routers[turn % STACKS].draw(tokens, top_k) for turn in range(1, turns)]
                distinct, ids = [len(np.unique(each)) for each in draws], torch.from_numpy(np.stack(draws)).cuda()
                a, slots, sums = bench.numbers(tokens, WIDTH), bench.room(tokens, top_k, WIDTH), bench.room(tokens, WIDTH)
                scales = torch.rand(tokens, top_k, device="cuda") * 0.45 + 0.05
                products = [mm.Gemm(slots if summed else a, stacks[name][turn % STACKS], out=sums if summed else slots, epilogue=epilogue,
                                    expert_ids=ids[turn], expert_scales=scales if summed else None)
                            for turn in range(turns) for name, _, epilogue, summed in steps]
                ours = bench.products(products, tokens)
                slots.fill_(float("nan")), sums.fill_(float("nan"))
                ours.replay()
                error = error_of_experts((a, slots, sums), scales, draws[-1])

                def read():
                    at = 0
                    for touched, (_, n, *_) in itertools.product(distinct, steps):
                        size = touched * form.bytes(n, WIDTH)
                        at = 0 if at + size > 2 * len(floor) else at
                        bench.floor.read(floor, at, size)
                        at += size

                fields = bench.measured((ours, bench.graph(read)), (turns, turns), tokens * top_k * sum(n * WIDTH for _, n, *_ in steps))
                touched = sum(distinct) / turns
                return {**fields, "distinct_experts": touched, "weight_megabytes": 1e-6 * touched * of_expert,
                        "kernels": {name: product.explain()["kernel"] for product, (name, *_) in zip(products, steps)}}, error

            def error_of_experts(memory, scales, ids):
                """Of the last turn, whose results are left. The results of gate_up are the activations of down."""
                (a, slots, sums), error = memory, 0
                for name, n, epilogue, summed in steps:
                    columns = some_of(n // (1 + two_inputs(epilogue)), CHECKED_OF_EXPERTS)
                    for token in some_of(tokens, max(3, CHECKED_OF_EXPERTS // top_k)):
                        rows = (slots[token] if summed else a[token].expand(top_k, -1)).double()
                        first, of_w = (STACKS - 1) * count, rows_of(columns, n, epilogue)
                        ws = [made.values(bench.cpu, form, n, WIDTH, first + int(expert), of_w) for expert in ids[token]]
                        each = torch.stack([finished(epilogue, row @ w.T) for row, w in zip(rows, ws)])
                        wanted = (each * scales[token, :, None]).sum(0, True) if summed else each
                        error = max(error, error_of((sums[token] if summed else slots[token]).view(len(wanted), -1)[:, columns], wanted))
                return error

            bench.line({"model": "experts", "products": case, "format": word, "group": form.group, "experts": count, "top_k": top_k, "skew": skew,
                        "tokens": tokens}, measure)


MODES = {"products": (race_products, [1, 8, 16, 64, 128, 256, 512, 2048]), "decoder": (time_decoder, [1, 2, 4, 8, 16, 64, 512]),
         "experts": (time_experts, [1 << i for i in range(10)])}


def parsed():
    def some(kind, known=None):
        def parse(text):
            values = [kind(part) for part in text.split(",")]
            if known is not None and not set(values) <= set(known):
                raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}, found {text}")
            return values
        return parse

    parser = argparse.ArgumentParser(prog="./dev bench --backend cuda", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, mode = parser.add_argument, parser.add_mutually_exclusive_group()
    mode.add_argument("--decoder", dest="mode", action="store_const", const="decoder", help="all products of a decoder of 7 B weights in one graph")
    mode.add_argument("--experts", dest="mode", action="store_const", const="experts", help="mixtures of experts")
    mode.add_argument("--shapes", type=some(str, SHAPES), help=f"single products of these shapes: {', '.join(SHAPES)} (lm_head has up to 8 rows)")
    add("--rows", type=some(int), help="M, or tokens, with commas between")
    add("--formats", type=some(str, FORMS), default=["mxfp4"], help=f"of the weights, with commas between: {', '.join(FORMS)}")
    add("--activations", choices=("bf16", "f16"), default="bf16", help="and results; torch's weights, too")
    add("--compute", choices=COMPUTES, default="default", help="of single products; fp8 is for weights of FP4 and FP8, and int8-128 and int8-row have longer "
        "groups of activations")
    add("--rounds", type=int, default=11, help="in which each graph is replayed once")
    add("--dense", action="store_true", help="with --decoder torch's products, too, whose weights take 13 GB")
    add("--expert-count", type=int, default=128, help="experts of a product")
    add("--top-k", type=int, default=4, help="experts of a token")
    add("--skew", type=some(float), default=[0.0, 1.0], help="how uneven experts are: 0 all are equally frequent, 1 by Zipf's law")
    add("--json", type=pathlib.Path, help="a file for one JSON record a line (build/cuda-TABLE.jsonl if no table is named)")
    add("--read-floor", type=pathlib.Path, default=TOP / "build/cuda/tests/cuda/read_floor.fatbin", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compute != "default" and options.mode:
        parser.error(f"--compute is for single products, not for --{options.mode}")
    if options.top_k > options.expert_count:
        parser.error(f"--top-k {options.top_k}: expected at most the {options.expert_count} of --expert-count")
    return options


def main():
    given, right = parsed(), True
    named = [given.mode or "products"] if given.mode or given.shapes or given.json or given.compute != "default" else ["products", "decoder"]
    for name in named:
        run, rows = MODES[name]
        path = given.json or (TOP / f"build/cuda-{name}.jsonl" if len(named) > 1 else None)
        options = argparse.Namespace(**{**vars(given), "rows": given.rows or rows, "shapes": given.shapes or list(SHAPES),
                                        "json": path and path.open("w")})
        bench = Bench(options)
        run(bench)
        right = right and bench.right
        print()
    if not right:
        sys.exit("A product is wrong or refused.")


if __name__ == "__main__":
    main()
