"""Torch tensors as operands, the operator, and models whose linear layers are replaced."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys

import metal_marlin as mm
import pytest
from conftest import DATA, DOWN, GPTQ
from test_codes import layers_of_the_data
from metal_marlin.operands import operand

torch = pytest.importorskip("torch", minversion="2.4")
from metal_marlin.torch import Linear, _weights, load_checkpoint_, load_quantized_, quantize_  # noqa: E402

INT8 = mm.Quantize(mm.Format.INT8)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 96), torch.nn.Linear(96, 64, bias=False)
        self.head = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(64, 32))

    def forward(self, x):
        return self.head(self.down(torch.tanh(self.up(x))) + x)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Small().eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_are_used_where_they_lie(weights, dtype):
    x = torch.randn(8, 400, dtype=dtype)[:, :384]
    out = torch.empty(8, 96, dtype=dtype)
    assert operand(x, "a").address == x.data_ptr()
    assert mm.gemm(x, weights, out=out) is out
    want = x.double() @ torch.from_numpy(weights.unpack()).double().T
    assert (out.double() - want).abs().max() <= want.abs().max() * (2**-7 if dtype != torch.float32 else 2**-18)
    # Tensors in, tensors out, of the same type.
    mine = mm.gemm(x, weights)
    assert mine.dtype == dtype and torch.equal(mine, out)
    assert torch.equal(mm.Linear(weights)(x[None]), out[None])
    some = mm.gemm_many([mm.Gemm(x, weights), mm.Gemm(x[0], weights)])
    assert torch.equal(some[0], out) and some[1].shape == (96,) and some[1].dtype == dtype
    with mm.Stream(weights.context) as stream:
        later = mm.gemm(x, weights, stream=stream)
    assert torch.equal(later, out)
    ids = torch.tensor([[3, 0], [95, 3]])
    assert torch.equal(weights.unpack_rows(ids), torch.from_numpy(weights.unpack())[ids])


def freed():
    x = torch.zeros(8, 384)
    x.untyped_storage().resize_(0)
    return x


BAD = {
    "freed": (freed, mm.ArgumentError, "freed"),
    "on no device": (lambda: torch.zeros(8, 384, device="meta"), ValueError, "meta"),
    "columns apart": (lambda: torch.zeros(384, 8).T, mm.ArgumentError, "contiguous"),
    "one row for all": (lambda: torch.zeros(384).expand(8, 384), mm.ArgumentError, "overlap"),
    "double": (lambda: torch.zeros(8, 384, dtype=torch.float64), TypeError, "a has dtype float64, expected one of float32"),
    "whole numbers": (lambda: torch.zeros(8, 384, dtype=torch.int32), TypeError, "a has dtype int32, expected one of float32"),
    "wants gradients": (lambda: torch.zeros(8, 384, requires_grad=True), BufferError, "requires_grad|gradient"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tensors(weights, case):
    make, kind, message = BAD[case]
    with pytest.raises(kind, match=message):
        mm.gemm(make(), weights)


def test_quantize_replaces_linear_layers(model):
    x = torch.randn(2, 5, 64)
    want = model(x)
    heard = []
    assert quantize_(model, INT8, progress=lambda *call: heard.append(call)) == ["up", "down", "head.1"]
    assert heard[0] == (0, 96 * 64 * 2 + 64 * 32, "up") and heard[-1][0] == heard[-1][1]
    assert all(type(layer) is Linear for layer in (model.up, model.down, model.head[1]))
    assert "64, 96, INT8, group_size=32, bias=True" in repr(model)
    found = model(x)
    assert found.shape == (2, 5, 32) and (found - want).abs().max() < 0.05
    exact = torch.nn.functional.linear(x, torch.from_numpy(model.up.weights.unpack()), model.up.bias)
    torch.testing.assert_close(model.up(x), exact)
    torch.testing.assert_close(model.up(x.transpose(0, 1)), exact.transpose(0, 1))
    torch.testing.assert_close(model.up(x[..., None].expand(2, 5, 64, 2)[..., 0]), exact)
    assert torch.equal(copy.deepcopy(model)(x), found)


def test_some_layers_and_tied_ones(model):
    model.head[1] = torch.nn.Linear(64, 96)
    model.head[1].weight = model.up.weight
    assert quantize_(model, INT8, wanted=lambda name, _: name != "down") == ["up", "head.1"]
    assert type(model.down) is torch.nn.Linear and model.up.weights is model.head[1].weights
    # A model in bfloat16 stays in it.
    half = Small().to(torch.bfloat16)
    quantize_(half, mm.Quantize(mm.Format.INT4, 32))
    assert half(torch.randn(3, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_the_operator(model):
    quantize_(model, INT8)
    layer = model.up
    arguments = (torch.randn(4, 64), layer.bias, layer._number, 96)
    torch.library.opcheck(torch.ops.metal_marlin.linear.default, arguments)
    with pytest.raises(mm.ShapeError):
        layer(torch.randn(4, 63))


def test_weights_go_with_their_layers():
    own = Small()
    quantize_(own, INT8)
    number = own.up._number
    assert number in _weights
    del own
    gc.collect()
    assert number not in _weights


def test_compiled_as_one_graph(model):
    quantize_(model, INT8)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch.no_grad():
        for rows in (1, 3, 7):
            x = torch.randn(rows, 64)
            torch.testing.assert_close(compiled(x), model(x))


def test_torch_is_loaded_only_when_asked_for():
    program = "import sys, metal_marlin; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_what_comes_before(context, dtype):
    """As through a torch.nn.Linear of the same weights, also when a compiler traces both directions."""
    weights = mm.Weights.load(context, mm.Checkpoint(DATA / "gptq-v1-asym-g64-actorder"), DOWN)
    info, bias = weights.info(), torch.randn(weights.info().n, dtype=dtype)
    layer, same = Linear(weights, bias), torch.nn.Linear(info.k, info.n, dtype=dtype)
    layer.bias.requires_grad_()
    with torch.no_grad():
        same.weight.copy_(torch.from_numpy(weights.unpack()))
        same.bias.copy_(bias)
    ids, table, grade = torch.tensor([[3, 1, 4], [1, 5, 9]]), torch.randn(10, info.k, dtype=dtype), torch.randn(2, 3, info.n, dtype=dtype)

    def gradients(linear):
        embedding = torch.nn.Embedding.from_pretrained(table.clone(), freeze=False)
        y = linear(embedding(ids))
        (y * grade).sum().backward()
        return y, embedding.weight.grad

    wanted = gradients(same)
    for each in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        layer.bias.grad = None
        for found, like in zip((*gradients(each), layer.bias.grad), (*wanted, same.bias.grad)):
            assert found.dtype == dtype
            torch.testing.assert_close(found, like, rtol=2**-6 if dtype == torch.bfloat16 else 1e-4, atol=0.1 if dtype == torch.bfloat16 else 1e-4)
    x = table.clone().requires_grad_()
    y = Linear(mm.Weights.load(context, mm.Checkpoint(GPTQ), DOWN))(torch.nn.functional.pad(x, (0, 384 - info.k)))
    gc.collect()
    y.sum().backward()  # the layer is gone
    torch.library.opcheck(torch.ops.metal_marlin.linear.default, (table.clone().requires_grad_(), bias, layer._number, info.n))


def test_dir_shows_what_is_public():
    assert dir(mm.torch) == ["Linear", "load_checkpoint_", "load_quantized_", "quantize_"]


def test_a_whole_model_that_is_a_linear_is_an_error(context, tmp_path):
    linear, quantized = torch.nn.Linear(64, 32), Small()
    quantize_(quantized, INT8)
    state = {name.removeprefix("up."): tensor for name, tensor in quantized.state_dict().items() if name.startswith("up.")}
    for attempt in (lambda: quantize_(linear, INT8), lambda: load_quantized_(linear, state), lambda: load_checkpoint_(linear, mm.Checkpoint(GPTQ))):
        with pytest.raises(mm.ArgumentError, match="model is a Linear itself"):
            attempt()
    assert not list(linear.children())
    with pytest.raises(TypeError, match="model is a dict, expected a Module"):
        quantize_({}, INT8)


def test_a_layer_under_two_names(model):
    model.again = model.up
    assert quantize_(model, INT8) == ["up", "down", "head.1", "again"]
    assert type(model.again) is Linear and model.again.weights is model.up.weights


class Nested(torch.nn.Module):
    """Has a module for each layer of a checkpoint, under its name."""

    def __init__(self, checkpoint, bias):
        super().__init__()
        for info in checkpoint.layers():
            parent = self
            *parents, last = info.name.split(".")
            for each in parents:
                parent.add_module(each, parent._modules.get(each, torch.nn.Module()))
                parent = getattr(parent, each)
            parent.add_module(last, torch.nn.Linear(info.k, info.n, bias))


def test_a_checkpoint_into_a_model(tmp_path):
    file = mm.Checkpoint(DATA / "mlx-mixed-3-6")
    infos = {info.name: info for info in file.layers()}
    model, heard = Nested(file, True), []
    own = model.lm_head.bias.detach().clone()
    names = load_checkpoint_(model, file, progress=lambda *call: heard.append(call))
    assert names == list(infos) and heard[0][0] == 0 and heard[-1][0] == heard[-1][1] == sum(info.bytes for info in infos.values())
    for name, info in infos.items():
        layer = model.get_submodule(name)
        assert type(layer) is Linear and layer.weights.info().n == info.n and layer.weights.info().format == info.format
    assert torch.equal(model.lm_head.bias, own)
    some = Nested(file, False).to("meta")
    assert load_checkpoint_(some, file, names=lambda name: name if name == "lm_head" else None, compute=mm.Compute.INT8) == ["lm_head"]
    assert some.lm_head.compute == mm.Compute.INT8 and some.lm_head(torch.ones(1, infos["lm_head"].k)).shape == (1, infos["lm_head"].n)
    untouched = Nested(file, False)
    with pytest.raises(mm.ArgumentError, match=r"lm_head is \[32, 64\] in the checkpoint, expected a Linear head of it, found no such module"):
        load_checkpoint_(untouched, file, names=lambda name: name.replace("lm_head", "head"))
    untouched.lm_head = torch.nn.Linear(64, 31)
    with pytest.raises(mm.ArgumentError, match=r"expected a Linear lm_head of it, found Linear\(in_features=64, out_features=31"):
        load_checkpoint_(untouched, file)
    assert not any(type(layer) is Linear for layer in untouched.modules())


QUANTIZED = {
    "INT4": mm.Quantize(mm.Format.INT4, 32),
    "INT4, least error": mm.Quantize(mm.Format.INT4, 32, scales_mse=True),
    "INT8": INT8,
    "FP4": mm.Quantize(mm.Format.FP4),
    "MXFP4": mm.Quantize(mm.Format.MXFP4),
    "NVFP4": mm.Quantize(mm.Format.NVFP4),
    "NVFP4, 2:4": mm.Quantize(mm.Format.NVFP4, prune_2_4=True),
    "BFLOAT16": mm.Quantize(mm.Format.BFLOAT16),
}


@pytest.mark.parametrize("case", QUANTIZED)
def test_saved_and_loaded(model, tmp_path, case):
    """As a state, which torch loads without unpickling code, and whole."""
    quantize_(model, QUANTIZED[case])
    x = torch.randn(5, 64)
    want = model(x)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    empty = Small().to("meta")
    assert load_quantized_(empty, state) == ["up", "down", "head.1"]
    assert torch.equal(empty(x), want)
    # Into a model that was quantized otherwise.
    other = Small()
    quantize_(other, mm.Quantize(mm.Format.INT8, 16))
    assert not torch.equal(other(x), want)
    other.load_state_dict(state)
    assert torch.equal(other(x), want) and other.up.weights.info().format == model.up.weights.info().format
    torch.save(model, tmp_path / "model.pt")
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=False)(x), want)


def test_states_of_every_layer_there_is(context, tmp_path):
    """Whatever a file holds, torch saves and loads it with the other layers of the model."""
    for name, weights in layers_of_the_data(context):
        if weights.info().experts != 1:
            continue
        model = torch.nn.Sequential(Linear(weights), torch.nn.LayerNorm(weights.info().n))
        torch.save(model.state_dict(), tmp_path / "state.pt")
        state = torch.load(tmp_path / "state.pt", weights_only=True)
        empty = torch.nn.Sequential(torch.nn.Linear(weights.info().k, weights.info().n, bias=False), torch.nn.LayerNorm(weights.info().n)).to("meta")
        load_quantized_(empty, state)
        assert (empty[0].weights.unpack().view("u4") == weights.unpack().view("u4")).all(), name
        model.load_state_dict(state)
        assert model[0].weights is not weights and (model[0].weights.unpack() == weights.unpack()).all(), name


def test_states_that_do_not_fit(model):
    quantize_(model, INT8)
    state = model.state_dict()
    lacking = {name: tensor for name, tensor in state.items() if name != "up.codes"}
    with pytest.raises(RuntimeError, match=r"Missing key.*up\.codes"):
        model.load_state_dict(lacking)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*up\.nothing"):
        model.load_state_dict({**state, "up.nothing": torch.zeros(1)})
    with pytest.raises(RuntimeError, match=r"up\.codes: expected a layer \[96, 64\], found \[64, 96\]"):
        model.load_state_dict({**state, **{f"up.{name}": state[f"down.{name}"] for name in ("packing", "codes", "scales")}})
    with pytest.raises(RuntimeError, match=r"lacks \['up.bias'\]"):
        load_quantized_(Small(), {name: tensor for name, tensor in state.items() if name != "up.bias"})
    with pytest.raises(mm.ArgumentError, match=r"up is \[96, 64\] in the model, but \[64, 96\] in the state"):
        load_quantized_(Small(), {**state, **{f"up.{name}": state[f"down.{name}"] for name in ("packing", "codes", "scales")}})
    with pytest.raises(mm.ArgumentError, match=r"the state has up\.packing, expected up\.codes as well"):
        load_quantized_(Small(), lacking)
    with pytest.raises(mm.ArgumentError, match=r"the state has up\.packing, expected up\.scales as well"):
        load_quantized_(Small(), {name: tensor for name, tensor in state.items() if name != "up.scales"})
    with pytest.raises(mm.ArgumentError, match="head.1 is not there in the model, expected a Linear as in the state"):
        smaller = Small()
        smaller.head = torch.nn.Sequential(torch.nn.ReLU())
        load_quantized_(smaller, state)
    with pytest.raises(mm.ArgumentError, match="version 9, expected 1 to 2"):
        load_quantized_(Small(), {**state, "up.packing": torch.full((10,), 9)})
    with pytest.raises(mm.ArgumentError, match="up.packing names a file, as version 0.1 saved some layers: load the layer from that file"):
        load_quantized_(Small(), {**state, "up.packing": torch.tensor([2, -1])})


def test_compute_of_layers(model):
    x = torch.randn(5, 64)
    quantize_(model, INT8, compute=mm.Compute.INT8)
    assert "compute=INT8" in repr(model)
    want = mm.gemm(x.numpy(), model.up.weights, model.up.bias.detach().numpy(), compute=mm.Compute.INT8)
    assert torch.equal(model.up(x), torch.from_numpy(want))
    assert not torch.equal(model.up(x), Linear(model.up.weights, model.up.bias)(x))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    with pytest.raises(TypeError, match="compute is 'int8', expected a Compute, as Compute.INT8"):
        quantize_(Small(), INT8, compute="int8")
    with pytest.raises(TypeError, match="quantize is a Format, expected a Quantize"):
        quantize_(Small(), mm.Format.INT4)
