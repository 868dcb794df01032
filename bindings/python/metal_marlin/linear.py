"""A linear layer over numpy arrays."""

from __future__ import annotations

import dataclasses
from typing import Any

from ._abi import Compute, Epilogue
from .products import gemm
from .weights import Weights


@dataclasses.dataclass(frozen=True)
class Linear:
    """y = f(x W^T + bias): x [..., K], y [..., N], of x's type, a tensor for a tensor of torch. bias [N] or None.

    The other fields are those of Gemm.
    """

    weights: Weights
    bias: Any = None
    epilogue: Epilogue = Epilogue.NONE
    compute: Compute = Compute.DEFAULT
    activation_group: int = 0

    def __call__(self, x: Any, out: Any = None) -> Any:
        return gemm(x, self.weights, self.bias, out, self.compute, self.epilogue, activation_group=self.activation_group)
