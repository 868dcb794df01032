"""ggml's CPU backend as a candidate. Its libraries are loaded at run time, and its functions are declared here."""
import ctypes
import importlib.util
import itertools
import pathlib
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p

import numpy as np
from peer import Peer, Product, needs

# The numbers of the types are those of GGUF files.
TYPES = {"int4": (2, b"q4_0"), "int4-zeros": (3, b"q4_1"), "int8": (8, b"q8_0"), "mxfp4": (39, b"mxfp4"), "nvfp4": (40, b"nvfp4"),
         "q5_0": (6, b"q5_0"), "q5_1": (7, b"q5_1"), "q2_k": (10, b"q2_K"), "q3_k": (11, b"q3_K"), "q4_k": (12, b"q4_K"),
         "q5_k": (13, b"q5_K"), "q6_k": (14, b"q6_K"), "iq4_nl": (20, b"iq4_nl"), "iq4_xs": (23, b"iq4_xs")}
F32, I32 = 0, 26
ALIGNMENT = 4096  # of what shares a buffer
NODES = 8  # of a graph: three are used


QUIET = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)(lambda _level, _text, _user: None)


class InitParams(ctypes.Structure):
    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


class Feature(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("value", c_char_p))


# name: (library, result, arguments...)
FUNCTIONS = {
    "ggml_version": ("base", c_char_p),
    "ggml_log_set": ("base", None, c_void_p, c_void_p),
    "ggml_init": ("base", c_void_p, InitParams),
    "ggml_free": ("base", None, c_void_p),
    "ggml_tensor_overhead": ("base", c_size_t),
    "ggml_graph_overhead_custom": ("base", c_size_t, c_size_t, c_bool),
    "ggml_type_name": ("base", c_char_p, c_int),
    "ggml_new_tensor_3d": ("base", c_void_p, c_void_p, c_int, c_int64, c_int64, c_int64),
    "ggml_mul_mat": ("base", c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_mul_mat_id": ("base", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_new_graph_custom": ("base", c_void_p, c_void_p, c_size_t, c_bool),
    "ggml_build_forward_expand": ("base", None, c_void_p, c_void_p),
    "ggml_backend_alloc_ctx_tensors_from_buft": ("base", c_void_p, c_void_p, c_void_p),
    "ggml_backend_buft_alloc_buffer": ("base", c_void_p, c_void_p, c_size_t),
    "ggml_backend_buffer_get_base": ("base", c_void_p, c_void_p),
    "ggml_backend_buffer_free": ("base", None, c_void_p),
    "ggml_backend_tensor_alloc": ("base", c_int, c_void_p, c_void_p, c_void_p),
    "ggml_backend_buft_name": ("base", c_char_p, c_void_p),
    "ggml_backend_tensor_set": ("base", None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_tensor_get": ("base", None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_graph_compute": ("base", c_int, c_void_p, c_void_p),
    "ggml_backend_reg_dev_get": ("base", c_void_p, c_void_p, c_size_t),
    "ggml_backend_reg_get_proc_address": ("base", c_void_p, c_void_p, c_char_p),
    "ggml_backend_dev_supports_op": ("base", c_bool, c_void_p, c_void_p),
    "ggml_backend_cpu_buffer_type": ("base", c_void_p),
    "ggml_backend_cpu_init": ("cpu", c_void_p),
    "ggml_backend_cpu_set_n_threads": ("cpu", None, c_void_p, c_int),
    "ggml_backend_cpu_reg": ("cpu", c_void_p),
}


def wheel():
    """The folder of the installed libggml-python, which is built for any processor with AVX2."""
    found = importlib.util.find_spec("libggml")
    needs(found, "no libggml-python is installed")
    return pathlib.Path(found.origin or found.submodule_search_locations[0]).parent


class Ggml(Peer):
    """`folder` has libggml-base.so and libggml-cpu.so. One process can load only one ggml."""

    variants = {"q8": "int8"}  # it rounds activations to 8 bits, whatever is asked
    spins = True
    mixtures = True

    def __init__(self, race, threads, folder, name="ggml"):
        self.name, self.race, self.context, self.buffer, self.products = name, race, None, None, []
        self._load(pathlib.Path(folder))
        self.f.ggml_log_set(QUIET, None)
        self.backend = self.f.ggml_backend_cpu_init()
        needs(self.backend, "ggml_backend_cpu_init failed")
        self.f.ggml_backend_cpu_set_n_threads(self.backend, threads)
        self.registry = self.f.ggml_backend_cpu_reg()
        self.device = self.f.ggml_backend_reg_dev_get(self.registry, 0)
        self.about = f"ggml {self.f.ggml_version().decode()}, {' '.join(self._features())}"

    def _load(self, folder):
        self.f, libraries = type("Functions", (), {})(), {}
        for part in ("base", "cpu"):
            found = sorted([*folder.glob(f"**/libggml-{part}.so"), *folder.glob(f"**/libggml-{part}.dylib")])
            needs(found, f"no libggml-{part} in {folder}")
            try:
                libraries[part] = ctypes.CDLL(str(found[0]))
            except OSError as error:
                needs(False, str(error))
        for name, (part, result, *arguments) in FUNCTIONS.items():
            function = getattr(libraries[part], name, None)
            needs(function, f"{folder}: this ggml has no {name}")
            function.restype, function.argtypes = result, arguments
            setattr(self.f, name, function)

    def _procedure(self, name, result, *arguments):
        address = self.f.ggml_backend_reg_get_proc_address(self.registry, name)
        return ctypes.CFUNCTYPE(result, *arguments)(address) if address else None

    def _features(self):
        each = self._procedure(b"ggml_backend_get_features", ctypes.POINTER(Feature), c_void_p)(self.registry)
        names = itertools.takewhile(lambda feature: feature.name, (each[i] for i in itertools.count()))
        return [feature.name.decode() for feature in names if feature.value != b"0"]

    def _arena(self, tensors, graphs):
        bytes_ = (tensors + 4) * self.f.ggml_tensor_overhead() + graphs * (self.f.ggml_graph_overhead_custom(NODES, False) + 64)
        return self.f.ggml_init(InitParams(bytes_, None, True))

    def _operands(self, context, k, m, top_k):
        """The activations, and the ids of experts or None."""
        if not top_k:
            return self.f.ggml_new_tensor_3d(context, F32, k, m, 1), None
        return self.f.ggml_new_tensor_3d(context, F32, k, 1, m), self.f.ggml_new_tensor_3d(context, I32, top_k, m, 1)

    def _multiply(self, context, weights, x, ids):
        return self.f.ggml_mul_mat_id(context, weights, x, ids) if ids else self.f.ggml_mul_mat(context, weights, x)

    def _make(self, buffer_type, number, weights, copies):
        """Makes the copies in a buffer of this type. Returns False, and makes none, if the backend does not multiply by such buffers."""
        self.context = self._arena(copies + 3, 0)
        self.copies = [self.f.ggml_new_tensor_3d(self.context, number, weights.k, weights.n, weights.experts) for _ in range(copies)]
        self.buffer = self.f.ggml_backend_alloc_ctx_tensors_from_buft(self.context, buffer_type)
        needs(self.buffer, "ggml has no memory for the weights")
        product = self._multiply(self.context, self.copies[0], *self._operands(self.context, weights.k, 4, weights.experts > 1 and 1))
        if self.f.ggml_backend_dev_supports_op(self.device, product):
            return True
        self.forget()
        return False

    def prepare(self, weights, copies):
        self.forget()
        number, name = TYPES.get(weights.format.name, (0, b""))
        needs(name, f"ggml has no {weights.format.name}")
        needs(self.f.ggml_type_name(number) == name, f"this ggml has no {name.decode()}")
        block = 64 if weights.format.name == "nvfp4" else 32
        needs(weights.k % block == 0, f"ggml wants K in multiples of {block}")
        extra = self._procedure(b"ggml_backend_dev_get_extra_bufts", ctypes.POINTER(c_void_p), c_void_p)
        types = list(itertools.takewhile(bool, extra(self.device))) if extra else []
        chosen = next((each for each in [*types, self.f.ggml_backend_cpu_buffer_type()] if self._make(each, number, weights, copies)), None)
        needs(chosen, f"ggml does not multiply by {name.decode()} here")
        self.place = self.f.ggml_backend_buft_name(chosen).decode()
        blocks = weights.blocks()
        for each in self.copies:
            self.f.ggml_backend_tensor_set(each, blocks.ctypes.data, 0, blocks.nbytes)
        self.n, self.turn = weights.n, itertools.count()

    def product(self, _variant, a, ids=None):
        a, draws = np.ascontiguousarray(a, np.float32), [None] if ids is None else ids
        count, rows = max(len(self.copies), len(draws)), len(a) if ids is None else ids[0].size
        context = self._arena(2 * count + 2 * len(draws) + 2, count)
        operands = [self._operands(context, a.shape[1], len(a), 0 if ids is None else ids.shape[-1]) for _ in draws]
        results = [self._multiply(context, self.copies[i % len(self.copies)], *operands[i % len(draws)]) for i in range(count)]
        # Like the other candidates, use one matrix for the activations of all copies and one for the results.
        places = [(x, a, 0) for x, _ in operands]
        used = -(-a.nbytes // ALIGNMENT) * ALIGNMENT
        for (_, tensor), draw in zip(operands, draws):
            if tensor:
                places.append((tensor, draw, used))
                used += -(-draw.nbytes // ALIGNMENT) * ALIGNMENT
        buffer = self.f.ggml_backend_buft_alloc_buffer(self.f.ggml_backend_cpu_buffer_type(), used + 4 * rows * self.n)
        self.products.append((context, buffer))
        needs(buffer, "ggml has no memory for the results")
        base = self.f.ggml_backend_buffer_get_base(buffer)
        for tensor, values, at in places:
            self.f.ggml_backend_tensor_alloc(buffer, tensor, base + at)
            self.f.ggml_backend_tensor_set(tensor, values.ctypes.data, 0, values.nbytes)
        for each in results:
            self.f.ggml_backend_tensor_alloc(buffer, each, base + used)
        graphs = [self.f.ggml_new_graph_custom(context, NODES, False) for _ in results]
        for graph, result in zip(graphs, results):
            self.f.ggml_build_forward_expand(graph, result)

        def time(calls):
            turns = [graphs[next(self.turn) % count] for _ in range(calls)]
            return self.race.time_graphs(self.f.ggml_backend_graph_compute, self.backend, turns)

        def result():
            self.race.time_graphs(self.f.ggml_backend_graph_compute, self.backend, graphs[:1])
            out = np.empty((rows, self.n), np.float32)
            self.f.ggml_backend_tensor_get(results[0], out.ctypes.data, 0, out.nbytes)
            return out

        return Product(time, result, self.place)

    def forget(self):
        for context, buffer in [*self.products, (self.context, self.buffer)]:
            if context:
                self.f.ggml_backend_buffer_free(buffer)
                self.f.ggml_free(context)
        self.context, self.buffer, self.copies, self.products = None, None, [], []
