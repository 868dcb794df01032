"""On an NVIDIA GPU: torch's tensors where they lie, its streams, graphs and compiled models. Elsewhere it says why it does not run.

It also runs without pytest, and on the sources of the package: with METAL_MARLIN_LIBRARY, the path of the library, and
PYTHONPATH=bindings/python, as `python bindings/python/tests/test_cuda.py`.
"""

from __future__ import annotations

import copy
import gc
import os
import pathlib
import pickle
import time
import unittest

import metal_marlin as mm
import numpy as np
from metal_marlin import _library

try:
    import torch
    from metal_marlin import _torch_streams
    from metal_marlin.torch import Linear, device_of, load_quantized_, quantize_
except ImportError:
    torch = None

GIVEN = os.environ.get("METAL_MARLIN_LIBRARY", "")
if pathlib.Path(GIVEN).is_file():  # taken where the package has none inside
    _library.SYSTEM_NAME = os.path.abspath(GIVEN)


def why_not() -> str:
    """Why this machine cannot run these tests; "" when it can."""
    if torch is None:
        return "there is no torch of version 2.4 or newer"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    found = [device for device in mm.devices() if device.backend == mm.Backend.CUDA]
    return found[0].why_not if found else "the library sees no CUDA device"


WHY_NOT = why_not()
FORMATS = {
    "INT4 g32": mm.Quantize(mm.Format.INT4, 32),
    "INT4 g128": mm.Quantize(mm.Format.INT4, 128),
    "INT8": mm.Quantize(mm.Format.INT8),
    "FP4": mm.Quantize(mm.Format.FP4),
    "MXFP4": mm.Quantize(mm.Format.MXFP4),
    "NVFP4": mm.Quantize(mm.Format.NVFP4),
}
MXFP4 = FORMATS["MXFP4"]
# Long enough that work behind it is not done when the next call begins.
CYCLES = 200_000_000


def context() -> mm.Context:
    from metal_marlin.context import shared_context

    return shared_context(mm.Backend.CUDA, torch.cuda.current_device())


def numbers(*shape, dtype=None, seed=0):
    found = torch.from_numpy(np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32))
    return found.to("cuda", dtype or torch.float32)


def packed(n, k, quantize=MXFP4, seed=1) -> mm.Weights:
    floats = np.random.default_rng((seed, n, k)).standard_normal((n, k)).astype(np.float32)
    return mm.Weights.quantize(context(), floats, quantize)


class Small(torch.nn.Module if torch else object):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 320), torch.nn.Linear(320, 256, bias=False)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x))) + x


def small(quantize=MXFP4):
    """Quantized on the CPU, and the layers that it was made of."""
    torch.manual_seed(0)
    model = Small().eval().requires_grad_(False)
    quantize_(model, quantize)
    return model


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OnCuda(unittest.TestCase):
    def close_to(self, found, x, w, bias=None):
        """Compares with float64 on the CPU. The error is one of sums in float32, and one of rounding the result."""
        self.assertEqual(found.device.type, "cuda")
        x64, w64 = x.detach().cpu().double(), torch.from_numpy(w).double()
        want = x64 @ w64.T
        if bias is not None:
            want = want + bias.detach().cpu().double()
        rounding = {torch.float32: 2.0**-22, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}[found.dtype]
        bound = (x64.abs() @ w64.abs().T) * 2.0**-15 + want.abs() * rounding + 1e-6
        worst = ((found.detach().cpu().double() - want).abs() / bound).max()
        self.assertLessEqual(float(worst), 1.0, f"{found.dtype}, {tuple(x.shape)} times {w.shape}: {float(worst)} of the bound")

    def test_layers(self):
        for name, quantize in FORMATS.items():
            for n, k in ((320, 512), (72, 200)):
                weights = packed(n, k, quantize)
                w = weights.unpack()
                for dtype in (torch.float32, torch.float16, torch.bfloat16):
                    layer = Linear(weights, numbers(n, dtype=dtype, seed=2))
                    for rows in (1, 3, 64, 300):
                        with self.subTest(format=name, n=n, k=k, dtype=dtype, rows=rows):
                            x = numbers(rows, k, dtype=dtype)
                            found = layer(x)
                            self.assertEqual((found.dtype, found.device), (dtype, x.device))
                            self.close_to(found, x, w, layer.bias)

    def test_shapes_of_activations(self):
        layer = Linear(packed(320, 256))
        w = layer.weights.unpack()
        for x in (numbers(2, 5, 256), numbers(5, 2, 256).transpose(0, 1), numbers(8, 300)[:, 20:276], numbers(256)):
            with self.subTest(shape=x.shape, strides=x.stride()):
                self.close_to(layer(x), x, w)
        self.assertEqual(layer(numbers(0, 256)).shape, (0, 320))

    def test_compute_of_layers(self):
        weights, x = packed(320, 256), numbers(70, 256, dtype=torch.bfloat16)
        rounded, exact = Linear(weights, compute=mm.Compute.INT8)(x), Linear(weights)(x)
        self.assertFalse(torch.equal(rounded, exact))
        self.assertLess(float((rounded - exact).abs().max() / exact.abs().max()), 0.05)

    def test_operands_where_they_lie(self):
        weights, x = packed(320, 256), numbers(9, 300, dtype=torch.float16)[:, 4:260]
        w, bias, out = weights.unpack(), numbers(320), torch.empty(9, 320, device="cuda")
        self.assertIs(mm.gemm(x, weights, bias, out), out)
        self.close_to(out, x, w, bias)
        before = out.clone()
        mm.gemm(x, weights, out=out, accumulate=True)
        self.close_to(out - before, x, w)
        mm.gemm(x, weights, out=out, epilogue=mm.Epilogue.SILU)
        plain = torch.empty_like(out)
        mm.gemm(x, weights, out=plain)
        torch.testing.assert_close(out, torch.nn.functional.silu(plain), rtol=1e-4, atol=1e-4)
        two = [torch.empty(9, 320, device="cuda") for _ in range(2)]
        mm.gemm_many([mm.Gemm(x, weights, out=each) for each in two])
        self.assertTrue(torch.equal(two[0], plain) and torch.equal(two[1], plain))
        self.assertIn("kernel", mm.Gemm(x, weights, out=out).explain())
        # Pinned memory of the host is the host's, and Context.zeros() goes with a device.
        pinned = x.cpu().contiguous().pin_memory()
        self.close_to(torch.from_numpy(mm.gemm(pinned, weights, out=np.empty((9, 320), np.float32))).cuda(), x, w)
        both = context().zeros((9, 320))
        mm.gemm(x, weights, out=both)
        self.close_to(torch.from_numpy(both).cuda(), x, w)

    def test_unpacked_where_it_is_wanted(self):
        weights = packed(96, 256)
        w, out = torch.from_numpy(weights.unpack()), torch.empty(10, 256, device="cuda")
        weights.unpack(5, out=out)
        self.assertTrue(torch.equal(out.cpu(), w[5:15]))
        ids = torch.tensor([[7, 0], [95, 7]], dtype=torch.int32, device="cuda")
        rows = torch.empty(2, 2, 256, device="cuda")
        weights.unpack_rows(ids, out=rows)
        self.assertTrue(torch.equal(rows.cpu(), w[ids.cpu().long()]))
        self.assertTrue(torch.equal(weights.unpack_rows(ids), rows))

    def test_order_with_the_work_of_streams(self):
        """x is written behind a long wait, on a stream that is not the default one; so is what the result replaces."""
        weights = packed(320, 256)
        w, layer, side = weights.unpack(), Linear(weights), torch.cuda.Stream()
        want, out = numbers(4, 256, seed=5), torch.empty(4, 320, device="cuda")

        def late():
            x = torch.zeros(4, 256, device="cuda")
            torch.cuda._sleep(CYCLES)
            x.copy_(want)
            return x

        def by_the_layer():
            return layer(late())

        def by_default():
            return mm.gemm(late(), weights, out=out)

        def on_a_stream():
            with mm.Stream(context(), native=side) as stream:
                return mm.gemm(late(), weights, out=out, stream=stream)

        def on_the_number_of_a_stream():
            with mm.Stream(context(), native=side.cuda_stream) as stream:
                return mm.gemm(late(), weights, out=out, stream=stream)

        def from_another_stream():
            other = torch.cuda.Stream()
            with mm.Stream(context(), native=side) as stream, torch.cuda.stream(other):
                found = mm.gemm(late(), weights, out=out, stream=stream)
                other.wait_stream(side)
            side.wait_stream(other)
            return found

        for run in (by_the_layer, by_default, on_a_stream, on_the_number_of_a_stream, from_another_stream):
            with self.subTest(run=run.__name__):
                torch.cuda.synchronize()
                out.zero_()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    found = run() + 0
                side.synchronize()
                self.close_to(found, want, w)
        with self.assertRaisesRegex(mm.ArgumentError, "the library's own Stream cannot wait"), mm.Stream(context()) as stream:
            mm.gemm(want, weights, out=out, stream=stream)

    def test_graphs(self):
        model = small().cuda()
        x, other = numbers(5, 256), numbers(5, 256, seed=9)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        given = x.clone()
        with torch.cuda.graph(graph):
            result = model(given)
        for each in (x, other, x):
            given.copy_(each)
            graph.replay()
            found = result.clone()
            torch.testing.assert_close(found, model(each), rtol=1e-4, atol=1e-4)
        # Two graphs at once share no memory: each is right whatever the other does meanwhile.
        second, more = torch.cuda.CUDAGraph(), numbers(64, 256, seed=3)
        with torch.cuda.graph(second):
            wide = model(more)
        want, streams = (model(given).clone(), model(more).clone()), (torch.cuda.Stream(), torch.cuda.Stream())
        torch.cuda.synchronize()
        for _ in range(20):
            for one, stream in zip((graph, second), streams):
                with torch.cuda.stream(stream):
                    one.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(result, want[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(wide, want[1], rtol=1e-4, atol=1e-4)

    def test_graphs_without_a_first_run(self):
        """Kernels are loaded and memory is reserved while the stream is being captured."""
        for rows in (1, 12, 130):
            layer = Linear(packed(192, 384, FORMATS["NVFP4"], seed=rows), numbers(192, dtype=torch.bfloat16))
            x = numbers(rows, 384, dtype=torch.bfloat16)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = layer(x)
            for seed in (1, 2):
                with self.subTest(rows=rows, seed=seed):
                    x.copy_(numbers(rows, 384, dtype=torch.bfloat16, seed=seed))
                    graph.replay()
                    torch.cuda.synchronize()
                    self.close_to(result, x, layer.weights.unpack(), layer.bias)

    def test_what_graphs_keep_goes_with_them(self):
        layer, x = Linear(packed(320, 256)), numbers(40, 256)
        layer(x)

        def captured():
            before, graph = set(_torch_streams._captured), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                layer(x)
            added = set(_torch_streams._captured) - before
            self.assertEqual(len(added), 1)
            return graph, added

        (first, key), (second, other_key) = captured(), captured()
        self.assertTrue(key | other_key <= set(_torch_streams._captured))
        first.reset()
        second.reset()
        del first, second
        gc.collect()
        torch.cuda.synchronize()
        for _ in range(200):  # the driver tells it on a thread of its own
            with _torch_streams._lock:
                _torch_streams._forget_graphs()
            if not (key | other_key) & set(_torch_streams._captured):
                return
            time.sleep(0.01)
        self.fail("the streams of graphs that are gone are still kept")

    def test_prepared_products_on_a_stream_of_the_caller(self):
        """With the functions of the package itself, without the operator."""
        weights, x, out = packed(320, 256), numbers(64, 256), torch.empty(64, 320, device="cuda")
        side = torch.cuda.Stream()
        stream = mm.Stream(context(), native=side)
        product = mm.Gemm(x, weights, out=out)
        self.assertGreaterEqual(mm.prepare([product], 64, stream), 0)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=side):
            product.run(stream)
            with self.assertRaisesRegex(mm.ArgumentError, "captured"):
                stream.wait(0)
        x.copy_(numbers(64, 256, seed=8))
        graph.replay()
        torch.cuda.synchronize()
        self.close_to(out, x, weights.unpack())
        stream.wait()

    def test_compiled(self):
        model = small().cuda()
        for backend, dynamic in (("aot_eager", True), ("aot_eager", False), ("cudagraphs", False)):
            torch._dynamo.reset()
            compiled = torch.compile(model, fullgraph=True, backend=backend, dynamic=dynamic)
            for rows in (1, 3, 7):
                for seed in range(4):  # a graph is captured after the first runs
                    with self.subTest(backend=backend, dynamic=dynamic, rows=rows, seed=seed), torch.no_grad():
                        x = numbers(rows, 256, seed=seed)
                        torch.testing.assert_close(compiled(x).clone(), model(x), rtol=1e-4, atol=1e-4)

    def test_the_operator(self):
        layer = Linear(packed(320, 256), numbers(320))
        arguments = (numbers(4, 256), layer.bias, layer._number, 320)
        torch.library.opcheck(torch.ops.metal_marlin.linear.default, arguments)

    def test_devices_that_do_not_fit(self):
        on_cpu = small().up
        on_cuda = copy.deepcopy(on_cpu).cuda()
        x = numbers(3, 256)
        with self.assertRaisesRegex(mm.ArgumentError, r'x is on cuda:0, expected cpu, .*Linear\.to\("cuda:0"\)'):
            on_cpu(x)
        with self.assertRaisesRegex(mm.ArgumentError, r'x is on cpu, expected cuda:0, .*Linear\.to\("cpu"\)'):
            on_cuda(x.cpu())
        with self.assertRaisesRegex(mm.ArgumentError, "bias is on cpu, expected cuda:0"):
            torch.ops.metal_marlin.linear(x, on_cpu.bias, on_cuda._number, 320)
        out = torch.empty(3, 320, device="cuda")
        with self.assertRaisesRegex(mm.ArgumentError, "a is on CUDA device 0, expected host memory for a context of the CPU backend"):
            mm.gemm(x, on_cpu.weights)
        with self.assertRaisesRegex(mm.ArgumentError, "c is on CUDA device 0|out is on CUDA device 0 and a in host memory"):
            mm.gemm(x.cpu(), on_cuda.weights, out=out)
        with self.assertRaisesRegex(mm.ArgumentError, "a is on CUDA device 0 and bias in host memory, expected all arrays of a call on one device"):
            mm.gemm(x, on_cuda.weights, on_cpu.bias.detach(), out)
        self.assertTrue(torch.equal(mm.gemm(x, on_cuda.weights), mm.gemm(x, on_cuda.weights, out=out)))
        with self.assertRaisesRegex(mm.ArgumentError, "values is on CUDA device 0, expected host memory"):
            mm.Weights.quantize(context(), x, MXFP4)
        with self.assertRaisesRegex(mm.ArgumentError, "native is a stream of CUDA, expected none for a context of the CPU backend"):
            mm.Stream(mm.Context(mm.Backend.CPU), native=torch.cuda.current_stream())

    def test_experts(self):
        floats = np.random.default_rng(4).standard_normal((3, 96, 256)).astype(np.float32)
        parts = [mm.Part(mm.Format.MXFP4, each) for each in floats]
        weights = mm.Weights.pack(context(), *parts, experts=3)
        on_cpu = mm.Weights.pack(mm.Context(mm.Backend.CPU), *parts, experts=3)
        for tokens in (1, 5, 70):
            x = numbers(tokens, 256)
            ids = torch.from_numpy(np.random.default_rng(tokens).integers(0, 3, (tokens, 2), np.int32)).cuda()
            scales = numbers(tokens, 2, seed=6)
            each, summed = torch.empty(tokens, 2, 96, device="cuda"), torch.empty(tokens, 96, device="cuda")
            mm.gemm(x, weights, out=each, expert_ids=ids)
            mm.gemm(x, weights, out=summed, expert_ids=ids, expert_scales=scales)
            host = [tensor.cpu().numpy() for tensor in (x, ids, scales)]
            want = mm.gemm(host[0], on_cpu, expert_ids=host[1])
            want_summed = mm.gemm(host[0], on_cpu, expert_ids=host[1], expert_scales=host[2])
            with self.subTest(tokens=tokens):
                torch.testing.assert_close(each.cpu(), torch.from_numpy(want), rtol=1e-4, atol=1e-3)
                torch.testing.assert_close(summed.cpu(), torch.from_numpy(want_summed), rtol=1e-4, atol=1e-3)
                with self.assertRaisesRegex(mm.ArgumentError, "expert_ids in host memory"):
                    mm.gemm(x, weights, out=each, expert_ids=host[1])

    def test_moved_models(self):
        model, x = small(), numbers(6, 256)
        w, want = model.up.weights.unpack(), model(x.cpu())
        self.assertEqual(device_of(model.up.weights).type, "cpu")
        model.tied = model.down
        self.assertIs(model.cuda(), model)
        self.assertEqual(device_of(model.up.weights), torch.device("cuda", 0))
        self.assertTrue((model.up.weights.unpack() == w).all())
        torch.testing.assert_close(model(x).cpu(), want, rtol=1e-3, atol=1e-3)
        self.assertIs(model.to("cuda:0").up.weights, model.up.weights)  # nothing is packed anew
        half = copy.deepcopy(model).to(torch.bfloat16)
        self.assertIs(half.up.weights, model.up.weights)
        self.assertEqual(half(x.to(torch.bfloat16)).dtype, torch.bfloat16)
        back = model.cpu()
        self.assertTrue((back.up.weights.unpack() == w).all())
        self.assertTrue(torch.equal(back(x.cpu()), want))
        # Layers that share weights go on to share them.
        shared = mm.Weights.quantize(mm.Context(mm.Backend.CPU), w, MXFP4)
        pair = torch.nn.Sequential(Linear(shared), Linear(shared)).cuda()
        self.assertIs(pair[0].weights, pair[1].weights)

    def test_saved_and_loaded(self):
        model, x = small().cuda(), numbers(6, 256)
        want = model(x)
        state = model.state_dict()
        self.assertTrue(all(tensor.is_cuda for tensor in state.values()))
        again = Small().to("meta")
        load_quantized_(again, state)
        self.assertTrue(torch.equal(again(x), want))
        host = {name: tensor.cpu() for name, tensor in state.items()}
        on_cpu = Small().to("meta")
        load_quantized_(on_cpu, host)
        torch.testing.assert_close(on_cpu(x.cpu()), want.cpu(), rtol=1e-3, atol=1e-3)
        chosen = Small().to("meta")
        load_quantized_(chosen, host, context())
        self.assertTrue(torch.equal(chosen(x), want))
        model.load_state_dict(host)
        self.assertTrue(torch.equal(model(x), want))
        self.assertTrue(torch.equal(pickle.loads(pickle.dumps(model))(x), want))

    def test_quantized_on_the_device(self):
        torch.manual_seed(0)
        model = Small().eval().cuda()
        self.assertEqual(quantize_(model, MXFP4), ["up", "down"])
        self.assertEqual(device_of(model.up.weights).type, "cuda")
        want, x = small(), numbers(6, 256)
        torch.testing.assert_close(model(x).detach().cpu(), want(x.cpu()), rtol=1e-3, atol=1e-3)
        # A model on the CPU, for the GPU: what is not replaced has to be moved.
        given = Small().eval()
        quantize_(given, MXFP4, context())
        self.assertEqual(given.up.bias.device.type, "cuda")
        self.assertEqual(given(x).device.type, "cuda")

    def test_memory_of_weights_that_go(self):
        layer, x = Linear(packed(8192, 4096)), numbers(4, 4096)
        layer(x)
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        size = layer.weights.info().bytes
        del layer
        gc.collect()
        self.assertGreaterEqual(torch.cuda.mem_get_info()[0] - before, size * 3 // 4)

    def test_several_devices(self):
        if torch.cuda.device_count() < 2:
            self.skipTest("there is one CUDA device")
        model, x = small(), numbers(6, 256)
        want = model.cuda()(x)
        second = copy.deepcopy(model).to("cuda:1")
        self.assertEqual(device_of(second.up.weights), torch.device("cuda", 1))
        torch.testing.assert_close(second(x.to("cuda:1")).cpu(), want.cpu(), rtol=1e-4, atol=1e-4)
        with self.assertRaisesRegex(mm.ArgumentError, "x is on cuda:0, expected cuda:1"):
            second(x)
        with torch.cuda.device(1), self.assertRaisesRegex(mm.ArgumentError, "a is on CUDA device 1, expected CUDA device 0"):
            mm.gemm(x.to("cuda:1"), model.up.weights, out=torch.empty(6, 320, device="cuda:1"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
