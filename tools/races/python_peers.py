"""Candidates that are called from Python. Their times include Python's cost of a call, which is some microseconds."""
import itertools

import numpy as np
from peer import Peer, Product, imported, needs, timed_in_python
from weights import bf16_bits


class Mlx(Peer):
    """MLX: quantized_matmul, on the CPU, or on a Mac's GPU beside our Metal backend."""

    name = "mlx"
    MODES = {"mxfp4": "mxfp4", "nvfp4": "nvfp4", "int4-zeros": "affine", "int4-zeros-g64": "affine"}

    def __init__(self, backend):
        self.mx = imported("mlx.core")
        self.mx.set_default_device(self.mx.cpu if backend == "cpu" else self.mx.gpu)
        self.types = {"bf16": self.mx.bfloat16, **({"f32": self.mx.float32} if backend == "cpu" else {"f16": self.mx.float16})}
        self.variants = {each: each for each in self.types}
        self.about = f"mlx {self.mx.__version__}, {self.mx.default_device()}"

    def prepare(self, weights, copies):
        self.forget()
        mode, group = self.MODES.get(weights.format.name), weights.format.group
        needs(mode, f"mlx has no {weights.format.name}")
        needs(weights.k % max(group, 32) == 0, f"mlx wants K in multiples of {max(group, 32)}")
        self.options = {"group_size": group, "bits": 4, "mode": mode, "transpose": True}
        parts = [weights.codes.view(np.uint32), weights.scales] + ([weights.zeros] if mode == "affine" else [])
        # Every call would convert scales and zeros whose type differs from the type of the activations.
        self.copies = {}
        for variant in self.variants:
            as_wanted = lambda part: self.mx.array(part) if part.dtype != np.float32 else self.mx.array(part).astype(self.types[variant])
            shared = mode != "affine" and self.copies
            made = next(iter(self.copies.values())) if shared else [[as_wanted(part) for part in parts] for _ in range(copies)]
            self.mx.eval(made)
            self.copies[variant] = made
        self.turn = itertools.cycle(range(copies))

    def product(self, variant, a):
        x, mx, last = self.mx.array(a).astype(self.types[variant]), self.mx, [None]
        mx.eval(x)

        def run(copy):
            last[0] = mx.quantized_matmul(x, *self.copies[variant][copy], **self.options)
            mx.eval(last[0])

        return Product(timed_in_python(run, self.turn), lambda: np.array(last[0].astype(mx.float32)))

    def forget(self):
        self.copies = {}


class OnnxRuntime(Peer):
    """MatMulNBits with one session per copy. accuracy_level 0 keeps float32 activations; 4 rounds them to INT8."""

    name = "onnxruntime"
    variants = {"level0": "f32", "level4": "int8"}

    def __init__(self, threads):
        self.ort, self.onnx = imported("onnxruntime"), imported("onnx")
        self.about = f"onnxruntime {self.ort.__version__}"
        # All sessions share one pool; otherwise the threads of each session would spin.
        self.ort.set_global_thread_pool_sizes(threads, 1)
        self.spins = True

    def _model(self, weights, level):
        helper, types = self.onnx.helper, self.onnx.TensorProto
        n, k, group = weights.n, weights.k, weights.format.group
        codes = weights.codes.reshape(n, k // group, group // 2)
        scales = np.ascontiguousarray(weights.scales, np.float32).reshape(-1)
        node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["c"], domain="com.microsoft", K=k, N=n, bits=4, block_size=group,
                                accuracy_level=level)
        graph = helper.make_graph(
            [node], "product", [helper.make_tensor_value_info("a", types.FLOAT, ["m", k])],
            [helper.make_tensor_value_info("c", types.FLOAT, ["m", n])],
            [helper.make_tensor("b", types.UINT8, codes.shape, codes.tobytes(), raw=True),
             helper.make_tensor("s", types.FLOAT, scales.shape, scales.tobytes(), raw=True)])
        domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=9).SerializeToString()

    def prepare(self, weights, copies):
        self.forget()
        needs(weights.format.name in ("int4", "int4-g128"), f"MatMulNBits has no {weights.format.name}")
        needs(weights.k % weights.format.group == 0, f"the model is made for K in multiples of {weights.format.group}")
        options = self.ort.SessionOptions()
        options.use_per_session_threads = False
        for variant, level in {"level0": 0, "level4": 4}.items():
            model = self._model(weights, level)
            self.copies[variant] = [self.ort.InferenceSession(model, options, ["CPUExecutionProvider"]) for _ in range(copies)]
        self.turn, self.n = itertools.cycle(range(copies)), weights.n

    def product(self, variant, a):
        out, bindings = np.zeros((len(a), self.n), np.float32), []
        a = np.ascontiguousarray(a, np.float32)
        for session in self.copies[variant]:
            binding = session.io_binding()
            binding.bind_input("a", "cpu", 0, np.float32, a.shape, a.ctypes.data)
            binding.bind_output("c", "cpu", 0, np.float32, out.shape, out.ctypes.data)
            bindings.append((session, binding))

        def run(copy):
            session, binding = bindings[copy]
            session.run_with_iobinding(binding)

        product = Product(timed_in_python(run, self.turn), lambda: out)
        product.keeps = a  # the bindings have its address only
        return product

    def forget(self):
        self.copies = {}
