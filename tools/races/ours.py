"""metal-marlin as a candidate, and the limits. Products run through the Python package; times come from tools/races/race.cc."""
import ctypes
import itertools
import pathlib
import sys

import numpy as np
from peer import Absent, Peer, Product
from weights import bf16_bits

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bindings" / "python"))

import metal_marlin as mm  # noqa: E402

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

    def device(self, kind=mm.Backend.CPU):
        return next(each for each in mm.devices(self.library) if each.backend == kind)

    def threads(self):
        return self.device().threads

    def rotation_bytes(self):
        return self.c.compare_rotation_bytes()

    def isa(self, kind=mm.Backend.CPU):
        return self.device(kind).isa_or_arch

    def about(self, kind=mm.Backend.CPU):
        return f"metal-marlin {'.'.join(map(str, self.library.version))}, {self.isa(kind)}"

    def time_products(self, descriptors):
        times, message = TWO(), ctypes.create_string_buffer(256)
        array = (ctypes.c_void_p * len(descriptors))(*(each.address for each in descriptors))
        if self.c.compare_time_products(array, len(descriptors), times, message, ctypes.c_size_t(len(message))) != 0:
            raise RuntimeError(message.value.decode())
        return tuple(times)

    def time_graphs(self, compute, backend, graphs):
        times, array = TWO(), (ctypes.c_void_p * len(graphs))(*graphs)
        if self.c.compare_time_graphs(compute, ctypes.c_void_p(backend), array, len(graphs), times) != 0:
            raise RuntimeError("ggml_backend_graph_compute failed")
        return tuple(times)


class Limits:
    """Takes samples of reading memory and of the instructions with the command's own code (tools/machine_limits.h)."""

    def __init__(self, race, threads):
        self.race, self.handle = race, ctypes.c_void_p(race.c.compare_limits_create(threads))

    def instruction(self, isa, compute):
        name = ctypes.create_string_buffer(64)
        kind = mm.Compute.INT8 if compute == "int8" else mm.Compute.DEFAULT
        dtype = mm.DType[compute.upper()] if compute != "int8" else mm.DType.F32
        self.race.c.compare_instruction(isa.encode(), kind, dtype, name, len(name))
        return name.value.decode()

    def sample(self, instruction):
        """Bytes per second for "read", else operations per second."""
        if instruction == "read":
            return self.race.c.compare_read_sample(self.handle)
        return self.race.c.compare_dot_sample(self.handle, instruction.encode())


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
            if fmt.blocks:
                return mm.Part(mm.Format[fmt.base.upper()], weights.data[rows], k=weights.k, layout=mm.Layout.GGUF,
                               additive_zeros=fmt.additive, two_level_scales=fmt.blocks.elements == 256)
            scales, zeros = weights.scales[rows], None if weights.zeros is None else weights.zeros[rows]
            return mm.Part(mm.Format[fmt.base.upper()], weights.codes[rows], mm.Bits(scales, bits) if bits else scales, zeros, fmt.group,
                           k=weights.k, layout=mm.Layout.ROWS, additive_zeros=fmt.additive)

        parts = [part(slice(e, e + weights.n)) for e in range(weights.experts)]
        try:
            self.copies = [mm.Weights.pack(self.context, *parts, experts=len(parts)) for _ in range(copies)]
        except mm.MarlinError as error:
            raise Absent(str(error)) from None
        self.n, self.bytes = weights.n, self.copies[0].info().bytes
        # Each variant continues at the copy where the last one stopped, so that no variant finds in a cache the data of another one.
        self.turn = itertools.count()

    def product(self, variant, a, ids=None):
        draws = [None] if ids is None else ids
        leading = (len(a),) if ids is None else ids[0].shape
        out = np.zeros((*leading, self.n), np.float32)
        given = mm.Bits(bf16_bits(a), mm.DType.BF16) if variant == "bf16" else a.astype(np.float16) if variant == "f16" else a
        compute = mm.Compute.INT8 if variant == "int8" else mm.Compute.DEFAULT
        products = [mm.Gemm(given, self.copies[i % len(self.copies)], out=out, compute=compute, expert_ids=draws[i % len(draws)])
                    for i in range(max(len(self.copies), len(draws)))]
        calls = [product.descriptor() for product in products]

        def time(count):
            return self.race.time_products([calls[next(self.turn) % len(calls)] for _ in range(count)])

        def result():
            self.race.time_products(calls[:1])
            return out.reshape(-1, self.n)

        return Product(time, result, products[0].explain()["kernel"])

    def forget(self):
        self.copies = []
