"""Linear layers of torch models. The operator is registered from Python; nothing here links libtorch."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from . import errors
from ._abi import Backend, Compute, DType, Format, Layout
from ._library import constant, expected
from ._torch_streams import current_stream, release
from .checkpoint import Checkpoint
from .codes import FLOATS
from .context import Context, shared_context
from .operands import Bits
from .products import Gemm
from .progress import Wanted, shown
from .quantize import Quantize
from .weights import Part, Weights

__all__ = ["Linear", "load_checkpoint_", "load_quantized_", "quantize_"]


def __dir__() -> list[str]:
    return __all__  # what a newcomer looks for, without what this file imports


# Operators take tensors and numbers, so weights go by number: those that live. A number is never used again.
_weights: weakref.WeakValueDictionary[int, Weights] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def _linear(
    x: torch.Tensor, bias: torch.Tensor | None, weights: int, columns: int, compute: int = 0, activation_group: int = 0
) -> torch.Tensor:
    found = _weights[weights]
    _check_devices(x, bias, found)
    out = x.new_empty((*x.shape[:-1], columns))
    # A tensor that wants gradients does not lend its memory.
    product = Gemm(
        x.detach().contiguous(),
        found,
        None if bias is None else bias.detach(),
        out,
        Compute(compute),
        activation_group=activation_group,
    )
    if x.device.type == "cpu":
        product.run()
    else:
        with torch.cuda.device(x.device), current_stream(found._live()._keeps) as stream:
            product.run(stream)
    return out


def _check_devices(x: torch.Tensor, bias: torch.Tensor | None, weights: Weights) -> None:
    device = device_of(weights)
    if x.device != device:
        how = f'Linear.to("{x.device}") packs the weights for it, as to() of the whole model does'
        raise errors.argument(f"x is on {x.device}, expected {device}, for which the weights are packed; {how}")
    if bias is not None and bias.device != device:
        raise errors.argument(f"bias is on {bias.device}, expected {device}, for which the weights are packed")


def device_of(weights: Weights) -> torch.device:
    """Where activations have to be for these weights. Other devices than those of CUDA take them from host memory."""
    backend, index = weights._live()._keeps.where
    return torch.device("cuda", index) if backend == Backend.CUDA else torch.device("cpu")


def _context_for(device: torch.device) -> Context:
    """The shared one for activations on this device."""
    if device.type == "cuda":
        return shared_context(Backend.CUDA, torch.cuda.current_device() if device.index is None else device.index)
    # A GPU of Apple's shares the host's memory. To ask for other devices would wake up drivers that nobody needs.
    return shared_context(Backend.AUTO if sys.platform == "darwin" else Backend.CPU)


def _shape_of(
    x: torch.Tensor, bias: torch.Tensor | None, weights: int, columns: int, compute: int = 0, activation_group: int = 0
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], columns))


def _gradient(dy: torch.Tensor, weights: int, columns: int) -> torch.Tensor:
    """dy W, in float32, with the rows of W decoded some at a time."""
    found = _weights[weights]
    _check_devices(dy, None, found)
    info, rows = found.info(), max(1, ROWS_OF_GRADIENT // columns)
    of_rows, out = dy.detach().reshape(-1, info.n), dy.new_zeros((*dy.shape[:-1], columns), dtype=torch.float32)
    for first in range(0, info.n, rows):
        some = dy.new_empty((min(rows, info.n - first), columns), dtype=torch.float32)
        with contextlib.nullcontext() if dy.device.type == "cpu" else torch.cuda.device(dy.device):
            found.unpack(first, out=some)
        out.view(-1, columns).addmm_(of_rows[:, first : first + len(some)].float(), some)
    return out.to(dy.dtype)


def _shape_of_gradient(dy: torch.Tensor, weights: int, columns: int) -> torch.Tensor:
    return dy.new_empty((*dy.shape[:-1], columns))


def _keep(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
    x, bias, ctx.weights = inputs[:3]
    ctx.columns, ctx.bias_type = x.shape[-1], None if bias is None else bias.dtype
    ctx.keeps = _weights.get(ctx.weights)  # the layer may go before its gradient is asked for


def _gradients(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    of_x, of_bias = ctx.needs_input_grad[:2]
    dx = torch.ops.metal_marlin.linear_gradient(dy, ctx.weights, ctx.columns) if of_x else None
    return dx, dy.reshape(-1, dy.shape[-1]).sum(0).to(ctx.bias_type) if of_bias else None, None, None, None, None


# Weights that are decoded at a time.
ROWS_OF_GRADIENT = 2**22
_operator: Any = torch.library.custom_op("metal_marlin::linear", _linear, mutates_args=(), device_types=("cpu", "cuda"))
_operator.register_fake(_shape_of)
_operator.register_autograd(_gradients, setup_context=_keep)
_backward: Any = torch.library.custom_op("metal_marlin::linear_gradient", _gradient, mutates_args=(), device_types=("cpu", "cuda"))
_backward.register_fake(_shape_of_gradient)

# The tensors of a layer in a state_dict, beside its bias. `packing` says what the others are: a version and the numbers of PACKED.
# `codes` are those of the layout, or a copy of a file, which has none.
PACKING, VALUES, SCALES, ZEROS, TENSOR_SCALE = "packing", "codes", "scales", "zeros", "tensor_scale"
OWN = (PACKING, VALUES, SCALES, ZEROS, TENSOR_SCALE)
VERSION, COPY = 2, -2
PACKED = ("layout", "format", "group_size", "n", "k", "obeys_2_4", "gate_up_interleaved", "additive_zeros", "two_level_scales")


def _state_of(weights: Weights) -> dict[str, torch.Tensor]:
    info, saved = weights.info(), weights.saved()
    if info.experts != 1:
        raise errors.argument(f"the weights have {info.experts} experts, expected a plain layer")
    if isinstance(saved, bytes):
        state = {PACKING: torch.tensor([VERSION, COPY]), VALUES: torch.frombuffer(bytearray(saved), dtype=torch.uint8)}
        return {name: tensor.to(device_of(weights)) for name, tensor in state.items()}
    part = dataclasses.replace(saved[0], n=info.n, k=info.k)
    state = {PACKING: torch.tensor([VERSION, *(int(getattr(part, name)) for name in PACKED)]), VALUES: _tensor(part.values)}
    for name, array in ((SCALES, part.scales), (ZEROS, part.zeros)):
        if array is not None:
            state[name] = _tensor(array)
    if part.tensor_scale is not None:
        state[TENSOR_SCALE] = torch.tensor([part.tensor_scale], dtype=torch.float32)
    return {name: tensor.to(device_of(weights)) for name, tensor in state.items()}


def _tensor(array: Any) -> torch.Tensor:
    """Of bytes where torch has no such type, or numpy had it from ml_dtypes."""
    bits = array.array if isinstance(array, Bits) else array
    if isinstance(array, Bits) and array.dtype == DType.BF16 or bits.dtype.name == "bfloat16":
        return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(bits)


def _weights_of(context: Context, state: Mapping[str, Any], name: str) -> Weights:
    """name: of the layer in the state, "" or with a dot at its end."""
    version, *packing = state[name + PACKING].tolist()
    values = state[name + VALUES].cpu()
    if version == 1:  # has no layout, and lacks what is behind gate_up_interleaved
        packing = [int(Layout.AUTO), *packing, 0, 0]
    elif version == VERSION and packing == [COPY]:
        return Weights.restore(context, values.numpy().tobytes())
    elif packing == [-1]:
        raise errors.argument(f"{name}{PACKING} names a file, as version 0.1 saved some layers: load the layer from that file")
    if version not in (1, VERSION) or len(packing) != len(PACKED):
        raise errors.argument(f"{name}{PACKING} is of version {version}, expected 1 to {VERSION}")
    fields: dict[str, Any] = dict(zip(PACKED, packing))
    fields |= {field: bool(fields[field]) for field in PACKED[5:]}
    fields["format"], fields["layout"] = Format(fields["format"]), Layout(fields["layout"])
    for field in (SCALES, ZEROS):
        if name + field in state:
            fields[field] = state[name + field].cpu()
    if SCALES not in fields and fields["layout"] != Layout.GGUF and fields["format"] not in FLOATS:
        raise errors.argument(f"the state has {name}{PACKING}, expected {name}{SCALES} as well")
    if SCALES in fields and fields[SCALES].dtype == torch.uint8:
        fields[SCALES] = Bits(fields[SCALES], DType.E8M0 if fields["format"] == Format.MXFP4 else DType.E4M3)
    if name + TENSOR_SCALE in state:
        fields["tensor_scale"] = float(state[name + TENSOR_SCALE])
    return Weights.pack(context, Part(values=values, **fields))


# Of weights that were moved: what they were packed into, so that layers that share weights go on to do so.
_moved: weakref.WeakKeyDictionary[Weights, weakref.ref[Weights]] = weakref.WeakKeyDictionary()


def _moved_to(weights: Weights, device: torch.device) -> Weights:
    context = _context_for(device)
    known = _moved[weights]() if weights in _moved else None
    if known is not None and known.context._owner is context._owner:
        return known
    try:
        found = Weights.restore(context, weights.saved(floats=False), weights.info().experts)
    except errors.MarlinError as error:
        raise errors.from_status(error.status, f"to {device}: {error.message}") from None
    _moved[weights] = weakref.ref(found)
    return found


class Linear(torch.nn.Module):
    """y = x W^T + bias on packed weights: x [..., K] of float32, float16 or bfloat16 gives y [..., N] of the same type.

    x and the bias are on the device for which the weights are packed, a CUDA device or else the CPU. `to`, `cuda` and `cpu` of the
    layer or of its model pack the weights anew for another device, from what Weights.saved() gives. On a CUDA device the layer
    runs on torch's current stream, and may be captured into a graph.

    x has a gradient, dy W, and so has a bias that asks for one; the weights have none. A state_dict holds what Weights.saved() gives: codes and scales, or for
    some weights a copy of the file's layer. load_state_dict() packs or loads them; so torch.save() works with it and
    with whole models.

    compute           DEFAULT: activations as given; INT8: activations rounded to INT8, which is faster for many rows
    activation_group  of INT8, as Gemm has it
    """

    def __init__(
        self,
        weights: Weights,
        bias: torch.Tensor | None = None,
        compute: Compute = Compute.DEFAULT,
        activation_group: int = 0,
    ) -> None:
        super().__init__()
        constant(compute, Compute, "compute")
        self.compute, self.activation_group = compute, activation_group
        device = device_of(expected(weights, Weights, "weights"))
        if bias is not None and bias.device.type != "meta":
            bias = bias.to(device)
        self.bias = None if bias is None else torch.nn.Parameter(bias.detach(), requires_grad=False)
        self._take(weights)

    def _take(self, weights: Weights) -> None:
        info = weights.info()
        self.in_features, self.out_features = info.k, info.n
        self.weights = weights
        self._number = next(_numbers)
        _weights[self._number] = weights
        if device_of(weights).type == "cuda":
            weakref.finalize(weights, release, weakref.ref(weights._live()._keeps)).atexit = False

    def _go_to(self, device: torch.device) -> None:
        if device.type in ("cpu", "cuda") and device != device_of(self.weights):
            self._take(_moved_to(self.weights, device))

    def _apply(self, fn: Any, recurse: bool = True) -> Linear:
        """What moves the tensors of a module: the device to which this one moves the weights is where an empty one goes."""
        self._go_to(fn(torch.empty(0, device=device_of(self.weights))).device)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = self._number, self.out_features, int(self.compute), self.activation_group
        result: torch.Tensor = torch.ops.metal_marlin.linear(x, self.bias, *numbers)
        return result

    def extra_repr(self) -> str:
        info = self.weights.info()
        compute = f", compute={self.compute.name}" if self.compute != Compute.DEFAULT else ""
        group = f", group_size={info.group_size}"
        return f"{self.in_features}, {self.out_features}, {info.format.name}{group}, bias={self.bias is not None}{compute}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Another process has other numbers, and torch.load() may have put the bias on another device."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._take(self.weights)
        if self.bias is not None:
            self._go_to(self.bias.device)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.update({prefix + name: tensor for name, tensor in _state_of(self.weights).items()})

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any) -> None:
        # local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        missing, unexpected, messages = arguments[-3:]
        own = [prefix + name for name in OWN]
        unexpected[:] = [name for name in unexpected if name not in own]
        absent = [name for name in own[:2] if name not in state_dict]
        missing += absent
        if absent:
            return
        try:
            weights = _weights_of(self.weights.context, state_dict, prefix)
        except (errors.MarlinError, TypeError, ValueError) as error:
            messages.append(f"{prefix}{VALUES}: {error}")
            return
        found, expected_ = weights.info(), self.weights.info()
        if (found.n, found.k) != (expected_.n, expected_.k):
            messages.append(f"{prefix}{VALUES}: expected a layer [{expected_.n}, {expected_.k}], found [{found.n}, {found.k}]")
        else:
            self._take(weights)


def _modules(model: torch.nn.Module) -> list[tuple[str, Any]]:
    """Under all their names: each name of a layer that a model has twice is replaced."""
    return list(model.named_modules(remove_duplicate=False))


def _check_model(model: torch.nn.Module) -> None:
    if isinstance(expected(model, torch.nn.Module, "model"), torch.nn.Linear):
        how = "Linear(Weights.quantize(context, values, quantize), bias) makes one"
        raise errors.argument(f"model is a Linear itself, which nothing can replace in place, expected a module that has some: {how}")


def _replace(model: torch.nn.Module, name: str, layer: torch.nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, layer)


def quantize_(
    model: torch.nn.Module,
    quantize: Quantize,
    context: Context | None = None,
    wanted: Callable[[str, torch.nn.Linear], bool] = lambda name, layer: True,
    progress: Wanted = None,
    compute: Compute = Compute.DEFAULT,
) -> list[str]:
    """Replaces the torch.nn.Linear layers of a model, in place, and returns their names. Each is freed when it is replaced. All are
    taken, a head (lm_head) as well, unless `wanted` says otherwise.

    quantize   format, group size and how
    context    for the new layers, whose bias goes to its device. None: one for the device of each layer
    wanted     asked with the name and layer: whether to replace it
    progress   called with the done and all elements and a layer's name; True: a bar
    compute    of the new layers
    """
    expected(quantize, Quantize, "quantize")
    constant(compute, Compute, "compute")
    _check_model(model)
    layers = [(name, layer) for name, layer in _modules(model) if type(layer) is torch.nn.Linear and wanted(name, layer)]
    names, total, done = [name for name, _ in layers], sum(layer.weight.numel() for _, layer in layers), 0
    packed: dict[int, Weights] = {}  # tied layers stay tied
    with shown(progress) as told:
        while layers:
            name, layer = layers.pop(0)
            if told is not None:
                told(done, total, name)
            done += layer.weight.numel()
            weights = packed.get(id(layer.weight))
            if weights is None:
                own = context if context is not None else _context_for(layer.weight.device)
                weights = packed[id(layer.weight)] = Weights.quantize(own, layer.weight.detach().cpu().contiguous(), quantize)
            _replace(model, name, Linear(weights, layer.bias, compute))
        if told is not None and names:
            told(total, total, names[-1])
    return names


def load_quantized_(
    model: torch.nn.Module, state: Mapping[str, Any], context: Context | None = None, compute: Compute = Compute.DEFAULT
) -> list[str]:
    """Fills a model of torch.nn.Linear layers, in place, from the state_dict of one that quantize_() has changed, and returns the
    names of the layers that it replaces. Nothing is quantized. The model takes all other tensors as the state has them, so that it
    may have been made on the device "meta". What is missing, or too much, is a RuntimeError, as of load_state_dict().

    context  for the new layers. None: one for the device that the state has their codes on
    compute  of the new layers
    """
    constant(compute, Compute, "compute")
    _check_model(model)
    rest, names = dict(state), [name[: -len(PACKING) - 1] for name in state if name.endswith(f".{PACKING}")]
    layers, modules = list[Linear](), dict(_modules(model))
    for name in names:
        layer, prefix = modules.get(name), f"{name}."
        if not isinstance(layer, (torch.nn.Linear, Linear)):
            found = "not there" if layer is None else f"a {type(layer).__name__}"
            raise errors.argument(f"{name} is {found} in the model, expected a Linear as in the state")
        if prefix + VALUES not in state:
            raise errors.argument(f"the state has {prefix}{PACKING}, expected {prefix}{VALUES} as well")
        own = context if context is not None else _context_for(state[prefix + VALUES].device)
        weights = _weights_of(own, state, prefix)
        n, k, info = int(layer.out_features), int(layer.in_features), weights.info()
        if (n, k) != (info.n, info.k):
            raise errors.argument(f"{name} is [{n}, {k}] in the model, but [{info.n}, {info.k}] in the state")
        layers.append(Linear(weights, layer.bias, compute))
        _replace(model, name, layers[-1])
        for tensor in OWN:
            rest.pop(prefix + tensor, None)
    packed = {f"{name}.{tensor}" for name in names for tensor in (PACKING, VALUES)}
    missing, unexpected = model.load_state_dict(rest, strict=False, assign=True)
    wrong = [name for name in missing if name not in packed]
    if wrong or unexpected:
        raise RuntimeError(f"the state lacks {wrong}, and has {list(unexpected)} too much")
    for replaced in layers:  # whose bias is the state's own now
        if replaced.bias is not None:
            replaced.bias.data = replaced.bias.data.to(device_of(replaced.weights))
    return names


def load_checkpoint_(
    model: torch.nn.Module,
    checkpoint: Checkpoint,
    context: Context | None = None,
    names: Callable[[str], str | None] = lambda name: name,
    progress: Wanted = None,
    compute: Compute = Compute.DEFAULT,
) -> list[str]:
    """Replaces the torch.nn.Linear layers of a model, in place, by the quantized layers of a checkpoint, and returns their names. A
    layer's bias is that of the checkpoint, if it has one, else the model's. All other tensors stay the model's.

    context    for the new layers. None: one for the device of each layer
    names      asked with the name of each quantized layer: its name in the model; None: leave it out. A layer that the model does
               not have, or has in another size, is an error
    progress   called with the done and all bytes and a layer's name; True: a bar
    compute    of the new layers
    """
    _check_model(model)
    constant(compute, Compute, "compute")
    quantized = [info for info in expected(checkpoint, Checkpoint, "checkpoint").layers() if info.format != Format.NONE]
    wanted = [(info, name) for info, name in ((info, names(info.name)) for info in quantized) if name is not None]
    modules, total, done = dict(_modules(model)), sum(info.bytes for info, _ in wanted), 0
    for info, name in wanted:  # all of them, before one is replaced
        layer = modules.get(name)
        if not isinstance(layer, (torch.nn.Linear, Linear)) or (layer.out_features, layer.in_features) != (info.n, info.k):
            found = "no such module" if layer is None else f"{layer}"
            raise errors.argument(f"{info.name} is [{info.n}, {info.k}] in the checkpoint, expected a Linear {name} of it, found {found}")
    with shown(progress) as told:
        for info, name in wanted:
            layer = modules.pop(name)
            bias = _bias_of(checkpoint, info.name, layer)
            device = device_of(layer.weights) if isinstance(layer, Linear) else layer.weight.device
            own = context if context is not None else _context_for(device)
            if told is not None:
                told(done, total, name)
            done += info.bytes
            _replace(model, name, Linear(Weights.load(own, checkpoint, info.name), bias, compute))
        if told is not None and wanted:
            told(total, total, wanted[-1][1])
    return [name for _, name in wanted]


def _bias_of(checkpoint: Checkpoint, name: str, layer: Any) -> torch.Tensor | None:
    try:
        found = _tensor(checkpoint.tensor(f"{name.removesuffix('.weight')}.bias"))
    except errors.NotFoundError:
        bias: torch.Tensor | None = layer.bias
        return bias
    return found.reshape(-1).to(found.dtype if layer.bias is None else layer.bias.dtype)
