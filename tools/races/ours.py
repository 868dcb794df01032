"""metal-marlin as a candidate, through its Python package and, for the time, through tools/races/race.cc; and the limits."""
import ctypes
import dataclasses
import itertools
import pathlib
import sys

import numpy as np
from peer import Absent, Peer, Product
from weights import bf16_bits

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bindings" / "python"))

import metal_marlin as mm  # noqa: E402
from metal_marlin import _abi  # noqa: E402
from metal_marlin._library import Owner  # noqa: E402
from metal_marlin.operands import operand  # noqa: E402
from metal_marlin.products import Call  # noqa: E402

SUFFIX = "dylib" if sys.platform == "darwin" else "so"
TWO = ctypes.c_double * 2


class Race:
    """race.cc, built into `folder`/tools, and the library of that folder."""

    def __init__(self, folder):
        self.library = mm.Library(folder / f"libmetal-marlin.{SUFFIX}")
        self.c = ctypes.CDLL(str(folder / "tools" / "libmetal-marlin-races.so"))  # a MODULE is .so on macOS, too
        self.c.compare_limits_create.restype = ctypes.c_void_p
        self.c.compare_processor.restype = ctypes.c_char_p
        self.c.compare_rotation_bytes.restype = ctypes.c_uint64
        self.c.compare_read_sample.restype = self.c.compare_dot_sample.restype = ctypes.c_double

    def processor(self):
        return self.c.compare_processor().decode()

    def threads(self):
        return self.c.compare_threads()

    def rotation_bytes(self):
        return self.c.compare_rotation_bytes()

    def isa(self, kind=mm.Backend.CPU):
        return next(each.isa_or_arch for each in mm.devices(self.library) if each.backend == kind)

    def about(self, kind=mm.Backend.CPU):
        return f"metal-marlin {'.'.join(map(str, self.library.version))}, {self.isa(kind)}"

    def time_products(self, descs):
        times, error = TWO(), _abi.marlin_error(struct_size=ctypes.sizeof(_abi.marlin_error))
        array = (ctypes.POINTER(_abi.marlin_gemm_desc) * len(descs))(*map(ctypes.pointer, descs))
        if self.c.compare_time_products(array, len(descs), times, ctypes.byref(error)) != 0:
            raise RuntimeError(error.message.decode())
        return tuple(times)

    def time_graphs(self, compute, backend, graphs):
        times, array = TWO(), (ctypes.c_void_p * len(graphs))(*graphs)
        if self.c.compare_time_graphs(compute, ctypes.c_void_p(backend), array, len(graphs), times) != 0:
            raise RuntimeError("ggml_backend_graph_compute failed")
        return tuple(times)


class Limits:
    """Samples of reading memory and of the instructions, by the command's own code (tools/machine_limits.h)."""

    def __init__(self, race, threads):
        self.race, self.handle = race, ctypes.c_void_p(race.c.compare_limits_create(threads))

    def instruction(self, isa, compute):
        name = ctypes.create_string_buffer(64)
        kind = mm.Compute.INT8 if compute == "int8" else mm.Compute.DEFAULT
        dtype = mm.DType[compute.upper()] if compute != "int8" else mm.DType.F32
        self.race.c.compare_instruction(isa.encode(), kind, dtype, name, len(name))
        return name.value.decode()

    def sample(self, instruction):
        """Bytes a second for "read", else operations a second."""
        if instruction == "read":
            return self.race.c.compare_read_sample(self.handle)
        return self.race.c.compare_dot_sample(self.handle, instruction.encode())


def pack(context, parts):
    """Each part an expert; one is plain weights."""
    within, keeps = context._live(), []
    descs = [part.desc(keeps) for part in parts]
    array = (ctypes.POINTER(_abi.marlin_pack_desc) * len(descs))(*map(ctypes.pointer, descs))
    owner = Owner(within.library, _abi.marlin_weights(), keeps=within)
    return mm.Weights(owner.create("marlin_weights_pack", within.handle, array, len(descs), len(descs)))


def call(gemm, ids):
    """With ids, int32 [M, top_k], that of a mixture of experts, whose `out` has rows for all of them."""
    if ids is None:
        return Call(gemm)
    out = gemm.out
    made = Call(dataclasses.replace(gemm, out=out[:len(ids)]))
    made.desc.c.rows, made.desc.expert_ids = len(out), operand(ids, "ids").matrix()
    return made


class Ours(Peer):
    """One of our own backends: "cpu" or "metal"."""

    name, mixtures = "ours", True

    def __init__(self, race, threads, backend, computes):
        self.race, self.copies, self.variants = race, [], {each: each for each in computes}
        kind = mm.Backend[backend.upper()]
        self.context = mm.Context(kind, threads=threads, library=race.library)
        self.isa, self.about = race.isa(kind), race.about(kind)

    def prepare(self, weights, copies):
        self.forget()
        fmt = weights.format
        bits = {"mxfp4": mm.DType.E8M0, "nvfp4": mm.DType.E4M3}.get(fmt.base)

        def part(rows):
            scales, zeros = weights.scales[rows], None if weights.zeros is None else weights.zeros[rows]
            return mm.Part(mm.Format[fmt.base.upper()], weights.codes[rows], mm.Bits(scales, bits) if bits else scales, zeros, fmt.group,
                           k=weights.k, layout=mm.Layout.ROWS, additive_zeros=fmt.additive)

        parts = [part(slice(e, e + weights.n)) for e in range(weights.experts)]
        try:
            self.copies = [pack(self.context, parts) for _ in range(copies)]
        except mm.MarlinError as error:
            raise Absent(str(error)) from None
        self.n, self.bytes = weights.n, self.copies[0].info().bytes
        # All variants go on where the last one stopped: none finds in a cache what another one has read.
        self.turn = itertools.count()

    def product(self, variant, a, ids=None):
        draws = [None] if ids is None else ids
        out = np.zeros((len(a) if ids is None else ids[0].size, self.n), np.float32)
        given = mm.Bits(bf16_bits(a), mm.DType.BF16) if variant == "bf16" else a.astype(np.float16) if variant == "f16" else a
        compute = mm.Compute.INT8 if variant == "int8" else mm.Compute.DEFAULT
        calls = [call(mm.Gemm(given, self.copies[i % len(self.copies)], out=out, compute=compute), draws[i % len(draws)])
                 for i in range(max(len(self.copies), len(draws)))]

        def time(count):
            return self.race.time_products([calls[next(self.turn) % len(calls)].desc for _ in range(count)])

        def result():
            self.race.time_products([calls[0].desc])
            return out

        explained = ctypes.create_string_buffer(256)
        self.race.library.call("marlin_explain", ctypes.byref(calls[0].desc), explained, len(explained), None)
        return Product(time, result, explained.value.decode().splitlines()[0].removeprefix("kernel: "))

    def forget(self):
        self.copies = []
