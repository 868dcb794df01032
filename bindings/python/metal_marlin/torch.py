"""Linear layers of torch models. The operator is registered from Python; nothing here links libtorch."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .context import Context
from .products import gemm
from .progress import Wanted, shown
from .quantize import Quantize
from .weights import Weights

__all__ = ["Linear", "quantize_"]

# Operators take tensors and numbers, so weights go by number: those that live. A number is never used again.
_weights: weakref.WeakValueDictionary[int, Weights] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def _linear(x: torch.Tensor, bias: torch.Tensor | None, weights: int, columns: int) -> torch.Tensor:
    out = x.new_empty((*x.shape[:-1], columns))
    # A tensor that wants gradients does not lend its memory.
    gemm(x.detach().contiguous(), _weights[weights], None if bias is None else bias.detach(), out)
    return out


def _shape_of(x: torch.Tensor, bias: torch.Tensor | None, weights: int, columns: int) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], columns))


_operator: Any = torch.library.custom_op("metal_marlin::linear", _linear, mutates_args=(), device_types="cpu")
_operator.register_fake(_shape_of)


class Linear(torch.nn.Module):
    """y = x W^T + bias on packed weights: x [..., K] of float32, float16 or bfloat16 on the CPU gives y [..., N] of the same type.

    For inference: it has no gradients, and its weights are in no state_dict.
    """

    def __init__(self, weights: Weights, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        info = weights.info()
        self.in_features, self.out_features = info.k, info.n
        self.weights = weights
        self.bias = None if bias is None else torch.nn.Parameter(bias.detach(), requires_grad=False)
        self._number = next(_numbers)
        _weights[self._number] = weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.metal_marlin.linear(x, self.bias, self._number, self.out_features)
        return result

    def extra_repr(self) -> str:
        info = self.weights.info()
        return f"{self.in_features}, {self.out_features}, {info.format.name}, group_size={info.group_size}, bias={self.bias is not None}"


def quantize_(
    model: torch.nn.Module,
    quantize: Quantize,
    context: Context | None = None,
    wanted: Callable[[str, torch.nn.Linear], bool] = lambda name, layer: True,
    progress: Wanted = None,
) -> list[str]:
    """Replaces the torch.nn.Linear layers of a model, in place, and returns their names. Each is freed when it is replaced.

    quantize   format, group size and how
    wanted     asked with the name and layer: whether to replace it
    progress   called with the done and all elements and a layer's name; True: a bar
    """
    own = context if context is not None else Context()
    layers = [(name, layer) for name, layer in model.named_modules() if type(layer) is torch.nn.Linear and wanted(name, layer)]
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
                weights = packed[id(layer.weight)] = Weights.quantize(own, layer.weight.detach().contiguous(), quantize)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, Linear(weights, layer.bias))
        if told is not None and names:
            told(total, total, names[-1])
    return names
