"""Arrays as operands: numpy's, and those of every library that speaks DLPack, used where they lie."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import _abi, _dlpack, errors
from ._abi import DType
from ._library import Library, Owner, constant

# By numpy's names; those of bfloat16 and the 8-bit floats are of ml_dtypes, which need not be installed.
BY_NAME = {
    "float32": DType.F32,
    "float16": DType.F16,
    "bfloat16": DType.BF16,
    "int8": DType.I8,
    "int16": DType.I16,
    "int32": DType.I32,
    "int64": DType.I64,
    "uint8": DType.U8,
    "uint32": DType.U32,
    "float8_e8m0fnu": DType.E8M0,
    "float8_e4m3fn": DType.E4M3,
}
# By DLPack's codes and bits.
INT, UINT, FLOAT, BFLOAT, E4M3FN, E8M0FNU = 0, 1, 2, 4, 10, 14
NAMES = {INT: "int", UINT: "uint", FLOAT: "float", BFLOAT: "bfloat", 5: "complex", 6: "bool"}
BY_CODE = {
    (FLOAT, 32): DType.F32,
    (FLOAT, 16): DType.F16,
    (BFLOAT, 16): DType.BF16,
    (INT, 8): DType.I8,
    (INT, 16): DType.I16,
    (INT, 32): DType.I32,
    (INT, 64): DType.I64,
    (UINT, 8): DType.U8,
    (UINT, 32): DType.U32,
    (E4M3FN, 8): DType.E4M3,
    (E8M0FNU, 8): DType.E8M0,
}
# What products take, and what numbers experts and rows; messages list them.
FLOATS = (DType.F32, DType.F16, DType.BF16)
INDICES = (DType.I32,)
ALL = tuple(BY_NAME.values())
# Of an element; what is not here has 1.
BYTES = {DType.F32: 4, DType.I32: 4, DType.U32: 4, DType.F16: 2, DType.BF16: 2, DType.I16: 2, DType.I64: 8}


@dataclasses.dataclass(frozen=True)
class Bits:
    """An array whose elements are the bits of another type: uint16 that hold DType.BF16 where ml_dtypes is not installed,
    uint8 that hold DType.E8M0 or DType.E4M3."""

    array: Any
    dtype: DType

    def __post_init__(self) -> None:
        constant(self.dtype, DType, "dtype")


def numpy_type(dtype: DType) -> np.dtype[Any] | None:
    """None for a type that numpy has only with ml_dtypes, and that is not installed."""
    name = next((name for name, known in BY_NAME.items() if known == dtype), "")
    with contextlib.suppress(TypeError):
        return np.dtype(name)
    with contextlib.suppress(ImportError, AttributeError):
        found: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
        return found
    return None


def shaped(data: Any, dtype: DType, shape: tuple[int, ...]) -> Any:
    """A numpy array over these bytes; Bits when numpy has no such type."""
    found = numpy_type(dtype)
    if found is not None:
        return np.frombuffer(data, found).reshape(shape)
    return Bits(np.frombuffer(data, f"u{BYTES.get(dtype, 1)}").reshape(shape), dtype)


class Buffer:
    """Memory that host and device both reach. Every view of it keeps it."""

    def __init__(self, owner: Owner, size: int) -> None:
        self.owner = owner
        self.address: int = owner.library.function("marlin_buffer_host")(owner.handle)
        self._size = size

    def array(self, dtype: DType, shape: tuple[int, ...]) -> Any:
        memory: Any = (ctypes.c_char * self._size).from_address(self.address)
        memory.buffer = self
        return shaped(memory, dtype, shape)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the operands of a call may lie, beside host memory.

    cuda    the index of the CUDA device that the call runs on. None: it runs on no CUDA device
    why     what the device is, as messages put it
    stream  a cudaStream_t as DLPack numbers it, on which the call runs. None: the call cannot be ordered with the work of others
    """

    cuda: int | None = None
    why: str = "what this call reads and writes"
    stream: int | None = None

    def check(self, device: _dlpack.Device, name: str) -> None:
        if device.type in _dlpack.HOST:
            return
        if self.cuda is None or device.type not in (_dlpack.CUDA, _dlpack.MANAGED):
            raise errors.argument(f"{name} is {device}, expected host memory for {self.why}")
        if device.index != self.cuda:
            raise errors.argument(f"{name} is {device}, expected CUDA device {self.cuda} for {self.why}")
        if self.stream is None:
            how = "a Stream(context, native=...) over the stream of CUDA on which it is written, or no stream"
            raise errors.argument(f"{name} is {device}, whose work the library's own Stream cannot wait for: expected {how}")


ON_HOST = Place()


@dataclasses.dataclass(frozen=True)
class Operand:
    """Where an array lies. It holds the array, so that the memory stays."""

    name: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: DType
    writable: bool
    keeps: object
    buffer: Buffer | None = None  # that it is a part of
    device: _dlpack.Device = _dlpack.Device(1, 0)

    @property
    def on_device(self) -> bool:
        return self.device.type not in _dlpack.HOST

    @property
    def rows(self) -> int:
        """The product of all dimensions but the last."""
        return int(np.prod(self.shape[:-1], dtype=np.int64))

    @property
    def cols(self) -> int:
        return self.shape[-1]

    def matrix(self, *, written: bool = False, library: Library | None = None) -> _abi.marlin_matrix:
        """As this library takes it: one dimension is a row, more than two are rows of the last. Nothing is copied."""
        if written and not self.writable:
            raise errors.argument(f"{self.name} is read-only, expected an array that may be written")
        if not self.address and self.rows * self.cols:
            raise errors.argument(f"{self.name} has no memory: it was freed")
        stride = self._row_stride()
        matrix = _abi.marlin_matrix(data=self.address, rows=self.rows, cols=self.cols, row_stride=stride, dtype=self.dtype)
        if self.on_device:
            matrix.memory = _abi.Memory.CUDA
        if self.buffer is not None and self.buffer.owner.library is library:
            matrix.data, matrix.memory = self.buffer.owner.handle.value, _abi.Memory.BUFFER
            matrix.offset_bytes = self.address - self.buffer.address
        return matrix

    def _row_stride(self) -> int:
        """The distance of rows in elements. Rows that overlap or run backwards are refused here, where 0 has no other meaning."""
        if self.rows * self.cols == 0:
            return 0
        if self.cols > 1 and self.strides[-1] != 1:
            raise self._unfit("elements of a row that follow each other")
        leading = [(size, stride) for size, stride in zip(self.shape[:-1], self.strides[:-1]) if size != 1]
        if not leading:
            return 0
        count, row_stride = leading[-1]
        for size, stride in reversed(leading[:-1]):
            if stride != count * row_stride:
                raise self._unfit("rows at equal distances")
            count *= size
        if row_stride < self.cols:
            raise self._unfit("rows that neither overlap nor run backwards")
        return row_stride

    def _unfit(self, expected: str) -> errors.ArgumentError:
        found = f"shape {self.shape}, strides {self.strides} in elements"
        return errors.argument(f"{self.name}: expected {expected}, found {found}; make it contiguous")


def operand(array: Any, name: str, dtypes: Sequence[DType] = ALL, place: Place = ON_HOST) -> Operand:
    """array: a numpy array, a Bits, or anything with __dlpack__, in host memory or where `place` says; at least one dimension.

    dtypes  those that it may have; a message lists them
    """
    given = None
    if isinstance(array, Bits):
        array, given = array.array, array.dtype
    if isinstance(array, np.ndarray):
        found = _of_numpy(array, name, given, dtypes)
    else:
        found = _of_dlpack(array, name, given, dtypes, place)
    if found.dtype not in dtypes:
        raise TypeError(f"{name} has dtype {name_of(found.dtype)}, expected {_one_of(dtypes)}")
    if not found.shape:
        raise errors.argument(f"{name} has no dimension, expected 1 or more")
    return found


def name_of(dtype: DType) -> str:
    return next(name for name, known in BY_NAME.items() if known == dtype)


def new_like(array: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """A new array of torch, on its device, where `array` is one of torch's. Else of numpy, float32 where numpy has no such type."""
    tensors = getattr(sys.modules.get("torch"), "Tensor", ())  # who has none has not loaded torch
    if isinstance(array, tensors):
        return array.new_empty(shape, dtype=getattr(sys.modules["torch"], name_of(dtype)))
    return np.empty(shape, numpy_type(dtype) or np.float32)


def on_one_device(operands: Iterable[Operand]) -> bool:
    """Whether the operands of a call are on a CUDA device. An array of Context.zeros() may be with them, other host memory may not."""
    each = list(operands)
    device = next((one for one in each if one.on_device), None)
    host = next((one for one in each if not one.on_device and one.buffer is None), None)
    if device is not None and host is not None:
        found = f"{device.name} is {device.device} and {host.name} {host.device}"
        raise errors.argument(f"{found}, expected all arrays of a call on one device")
    return device is not None


@dataclasses.dataclass(frozen=True)
class Norms:
    """The norms of the columns of layers, as the library takes them."""

    matrices: Any
    keeps: list[Operand | None]


def norms_of(column_norms: Sequence[Any] | None, layers: int) -> Norms | None:
    """column_norms: one a layer, or None for one that has none."""
    if column_norms is None:
        return None
    if len(column_norms) != layers:
        raise errors.argument(f"column_norms are one a layer: expected {layers}, found {len(column_norms)}")
    rows = [None if each is None else operand(each, "column_norms") for each in column_norms]
    absent = _abi.marlin_matrix()
    return Norms((_abi.marlin_matrix * layers)(*(each.matrix() if each else absent for each in rows)), rows)


def _as(given: DType, size: int, name: str) -> DType:
    if BYTES.get(given, 1) != size:
        raise TypeError(f"{name}: elements of {size} bytes cannot hold the bits of {given.name}")
    return given


def _one_of(dtypes: Sequence[DType]) -> str:
    names = [name for name, dtype in BY_NAME.items() if dtype in dtypes]
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}, or Bits"


def _of_numpy(array: np.ndarray[Any, Any], name: str, given: DType | None, dtypes: Sequence[DType]) -> Operand:
    size = array.dtype.itemsize
    dtype = BY_NAME.get(array.dtype.name) if given is None else _as(given, size, name)
    if dtype is None or not array.dtype.isnative:
        raise TypeError(f"{name} has dtype {array.dtype.name} ({array.dtype.str}), expected {_one_of(dtypes)}")
    if any(stride % size for stride in array.strides):
        raise errors.argument(f"{name} has strides {array.strides} in bytes, expected multiples of {size}")
    strides = tuple(stride // size for stride in array.strides)
    return Operand(name, array.ctypes.data, array.shape, strides, dtype, array.flags.writeable, array, _buffer_of(array))


def _buffer_of(array: np.ndarray[Any, Any]) -> Buffer | None:
    """The Buffer that a numpy array is a view of."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return getattr(base, "buffer", None)


def _of_dlpack(array: Any, name: str, given: DType | None, dtypes: Sequence[DType], place: Place) -> Operand:
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"{name} is a {type(array).__name__}, expected a numpy array or one that has __dlpack__")
    device = _dlpack.device_of(array)
    place.check(device, name)
    tensor, writable, capsule = _dlpack.read(array, name, None if device.type in _dlpack.HOST else place.stream)
    dtype = BY_CODE.get((tensor.code, tensor.bits)) if given is None else _as(given, tensor.bits // 8, name)
    if dtype is None or tensor.lanes != 1:
        found = f"{NAMES.get(tensor.code, f'DLPack code {tensor.code}, ')}{tensor.bits}" + f"x{tensor.lanes}" * (tensor.lanes != 1)
        raise TypeError(f"{name} has dtype {found}, expected {_one_of(dtypes)}")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _contiguous(shape)
    address = tensor.data + tensor.byte_offset if tensor.data else 0
    return Operand(name, address, shape, strides, dtype, writable, capsule, device=device)


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides)
