"""Products: C = f(A W^T + bias) (+ C)."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from ctypes import POINTER, byref, c_uint64, pointer
from typing import Any

import numpy as np

from . import _abi, errors
from ._abi import Compute, DType, Epilogue
from ._dlpack import NO_ORDER
from ._library import Owner, constant, expected, sized
from .context import ContextOwner, place_on
from .operands import FLOATS, INDICES, Operand, new_like, on_one_device, operand
from .quantize import group_size_of
from .stream import Stream, number_of, submit
from .weights import Weights

TWO_INPUT = (Epilogue.SWIGLU, Epilogue.GEGLU_TANH, Epilogue.SWIGLU_OAI, Epilogue.SITU)


@dataclasses.dataclass
class Gemm:
    """One product, C[M, N] = f(A[M, K] W^T + bias) (+ C). Arrays are numpy's or of any library with DLPack, float32, float16 or
    bfloat16 each on its own, and are used where they lie. With weights in a context of CUDA they may be on its device, all of them.

    a           [..., K]
    weights     [N, K]
    bias        [N] or None, in the order of the weights' rows
    out         [..., N], or N / 2 columns for epilogues of gate and up. None: a new array of a's type; for a tensor of torch a
                tensor on its device, else a numpy array, float32 if numpy has no such type. With `a` of another library on a
                device it must be given
    compute     DEFAULT: activations as given, sums in float32; INT8: activations rounded to INT8
    epilogue    f
    accumulate  add to what `out` holds
    row_invariant  a row of `out` has the same bits whatever the number of rows is, and whatever the others hold: those that it has
                   alone. UnsupportedError where a device has no kernels for it
    activation_group  of INT8: activations of a row that share a scale, 32, 64, 128, or K and more for one scale per row; 0: 32
    gate_limit  of SWIGLU and SITU: the most that the gate becomes; 0: no limit, which SITU needs
    up_limit    of the same: how far from 0 the other may be
    gate_alpha  of SWIGLU, whose gate is g sigmoid(gate_alpha g); 0: 1
    up_offset   of SWIGLU: is added to the other

    A mixture of experts takes weights of E experts and routes each row of a, a token, to top_k of them.

    expert_ids     int32 [..., top_k], the experts of each token; an id outside [0, E) contributes 0
    expert_scales  [..., top_k], floats: `out` is the sum of each token's products times these. None: no sum
    a              [..., K], a row a token, or [..., top_k, K], a row for each of its experts
    bias           [N], or [E, N]: a row an expert
    out            [..., top_k, N], and with expert_scales [..., N]
    """

    a: Any
    weights: Weights
    bias: Any = None
    out: Any = None
    compute: Compute = Compute.DEFAULT
    epilogue: Epilogue = Epilogue.NONE
    accumulate: bool = False
    expert_ids: Any = None
    expert_scales: Any = None
    row_invariant: bool = False
    activation_group: int = 0
    gate_limit: float = 0
    up_limit: float = 0
    gate_alpha: float = 0
    up_offset: float = 0

    def run(self, stream: Stream | None = None) -> Any:
        """Computes it and returns `out`; on a stream it is written when Stream.wait() has said so.

        Arrays on a CUDA device: without a stream it runs on the legacy default stream, behind the work that the arrays come from.
        """
        call = Call(self, number_of(stream))
        submit(stream, call.within, call.operands, call, "marlin_gemm", byref(call.desc))
        return call.out

    def explain(self) -> dict[str, str]:
        """Which kernel it would run on, which tiles, and why."""
        call = Call(self, NO_ORDER)
        needed = ctypes.c_size_t()
        function = "marlin_explain", byref(call.desc)
        call.owner.library.call(*function, None, 0, byref(needed))
        text = ctypes.create_string_buffer(needed.value)
        call.owner.library.call(*function, text, len(text), None)
        lines = text.value.decode(errors="replace").splitlines()
        return {key: value for key, _, value in (line.partition(": ") for line in lines)}

    def descriptor(self) -> Descriptor:
        """For C code that calls the library itself, and that orders its work with that of arrays on a device."""
        return Descriptor(self)


class Call:
    """A Gemm as the library takes it, with all that has to live during the call.

    stream  that it runs on, as DLPack numbers it; None: it cannot be told
    """

    def __init__(self, product: Gemm, stream: int | None) -> None:
        expected(product, Gemm, "the product")
        hint = ": a and weights seem to be swapped" if isinstance(product.a, Weights) else ""
        self.owner: Owner = expected(product.weights, Weights, "weights", hint)._live()
        constant(product.compute, Compute, "compute")
        constant(product.epilogue, Epilogue, "epilogue")
        self.within: ContextOwner = self.owner._keeps
        self._place = place_on(self.within, stream)
        self.operands: list[Operand] = []
        a = self._kept(product.a, "a")
        ids = None if product.expert_ids is None else self._kept(product.expert_ids, "expert_ids", INDICES)
        leading = self._leading(a, ids, product.expert_scales is not None)
        if product.out is None and product.accumulate:
            raise errors.argument("accumulate adds to `out`, which is not given")
        self.out = product.out if product.out is not None else self._new_out(product, leading, a)
        out = self._kept(self.out, "out")
        # The library compares the rows; how they are grouped only this side knows.
        if out.shape[:-1] != leading:
            why = f"a of {a.shape}" + (f" and expert_ids of {ids.shape}" if ids else "")
            raise errors.from_status(_abi.Status.SHAPE, f"out has shape {out.shape}, expected {(*leading, 'N')} for {why}")
        self.desc = sized(
            _abi.marlin_gemm_desc,
            compute=product.compute,
            epilogue=product.epilogue,
            flags=(_abi.MARLIN_GEMM_ACCUMULATE if product.accumulate else 0)
            | (_abi.MARLIN_GEMM_ROW_INVARIANT if product.row_invariant else 0),
            weights=self.owner.handle,
            a=a.matrix(library=self.owner.library),
            c=out.matrix(written=True, library=self.owner.library),
            activation_group=group_size_of(product.activation_group, "activation_group"),
            gate_limit=product.gate_limit,
            up_limit=product.up_limit,
            gate_alpha=product.gate_alpha,
            up_offset=product.up_offset,
        )
        if product.bias is not None:
            self.desc.bias = self._kept(product.bias, "bias").matrix(library=self.owner.library)
        if ids is not None:
            self.desc.expert_ids = ids.matrix(library=self.owner.library)
        if product.expert_scales is not None:
            self.desc.expert_scales = self._kept(product.expert_scales, "expert_scales").matrix(library=self.owner.library)

    def _kept(self, array: Any, name: str, dtypes: Sequence[DType] = FLOATS) -> Operand:
        self.operands.append(operand(array, name, dtypes, self._place))
        return self.operands[-1]

    @staticmethod
    def _leading(a: Operand, ids: Operand | None, summed: bool) -> tuple[int, ...]:
        """The dimensions of the result but the last."""
        if ids is None:
            return a.shape[:-1]
        if a.shape[:-1] not in (ids.shape[:-1], ids.shape):
            expected = f"{(*ids.shape[:-1], 'K')} or {(*ids.shape, 'K')} for expert_ids of {ids.shape}"
            raise errors.from_status(_abi.Status.SHAPE, f"a has shape {a.shape}, expected {expected}")
        return ids.shape[:-1] if summed else ids.shape

    @staticmethod
    def _new_out(product: Gemm, leading: tuple[int, ...], a: Operand) -> Any:
        columns = product.weights.info().n // (2 if product.epilogue in TWO_INPUT else 1)
        out = new_like(product.a, (*leading, columns), a.dtype)
        if a.on_device and isinstance(out, np.ndarray):
            raise errors.argument(f"a is {a.device}, and out is not given: expected an array on that device")
        return out


class Descriptor:
    """A Gemm as C code takes it, that of another extension or program that calls the same copy of the library (Library.path). It keeps
    the arrays and the weights, and is of use as long as it lives.

    address  of a marlin_gemm_desc, which nobody may change
    out      the array that the product is written to
    """

    def __init__(self, product: Gemm) -> None:
        self._call = Call(product, NO_ORDER)
        on_one_device(self._call.operands)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._call.desc)

    @property
    def out(self) -> Any:
        return self._call.out


def gemm(
    a: Any,
    weights: Weights,
    bias: Any = None,
    out: Any = None,
    compute: Compute = Compute.DEFAULT,
    epilogue: Epilogue = Epilogue.NONE,
    accumulate: bool = False,
    stream: Stream | None = None,
    *,
    expert_ids: Any = None,
    expert_scales: Any = None,
    row_invariant: bool = False,
    activation_group: int = 0,
    **numbers: float,
) -> Any:
    """One product, done on return unless it is on a stream: the arguments are those of Gemm, the result is `out`.

    numbers  gate_limit, up_limit, gate_alpha, up_offset
    """
    product = Gemm(
        a, weights, bias, out, compute, epilogue, accumulate, expert_ids, expert_scales, row_invariant, activation_group, **numbers
    )
    return product.run(stream)


class Calls:
    """Products as the library takes several."""

    def __init__(self, products: Sequence[Gemm], stream: int | None) -> None:
        self.each = [Call(product, stream) for product in products]
        self.within = self.each[0].within
        self.operands = [each for call in self.each for each in call.operands]
        for product in products:
            product.weights._live(self.within.library)
        self.descs = (POINTER(_abi.marlin_gemm_desc) * len(products))(*(pointer(call.desc) for call in self.each))


def gemm_many(products: Sequence[Gemm], stream: Stream | None = None) -> list[Any]:
    """Independent products in one submission, done on return unless they are on a stream; an A that several share is prepared
    once. All are checked before any is done, and their weights must be of one context. Returns their `out`."""
    if not products:
        return []
    calls = Calls(products, number_of(stream))
    submit(stream, calls.within, calls.operands, calls, "marlin_gemm_many", calls.descs, len(calls.each))
    return [call.out for call in calls.each]


def prepare(products: Sequence[Gemm], max_rows: int, stream: Stream | None = None) -> int:
    """Compiles and reserves for these products with up to max_rows rows of `a`, or tokens of expert_ids, so that later calls neither
    compile nor allocate: on a stream for that one, else for calls without. What `a` and `out` hold does not matter, nor how many rows
    they have.

    Returns how many bytes a Stream's `scratch` must have.
    """
    if not products:
        return 0
    calls, needed = Calls(products, NO_ORDER), c_uint64()
    submit(stream, calls.within, calls.operands, calls, "marlin_prepare", calls.descs, len(calls.each), max_rows, byref(needed))
    return needed.value
