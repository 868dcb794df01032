"""Reads a tensor that speaks DLPack, of whatever library, where it lies."""

from __future__ import annotations

import ctypes
import dataclasses
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from . import errors

HOST = (1, 3)  # kDLCPU, kDLCUDAHost
CUDA, MANAGED = 2, 13
# What a product runs on when no stream is given, and what asks a library not to order its work with ours.
LEGACY_DEFAULT_STREAM, NO_ORDER = 1, -1
READ_ONLY = 1
ONE_POINT_ZERO = (1, 0)


class Tensor(Structure):
    """DLTensor, with the fields of DLDevice and DLDataType in line."""

    data: int | None
    device_type: int
    device_id: int
    ndim: int
    code: int
    bits: int
    lanes: int
    shape: Any
    strides: Any
    byte_offset: int
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class Versioned(Structure):
    """DLManagedTensorVersioned. Before 1.0 the capsule holds a DLManagedTensor, which begins with the tensor."""

    flags: int
    tensor: Tensor
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", Tensor),
    )


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


@dataclasses.dataclass(frozen=True)
class Device:
    """Where a tensor lies: DLPack's type of device, and a number among those of its type."""

    type: int
    index: int

    def __str__(self) -> str:
        if self.type in HOST:
            return "in host memory"
        if self.type in (CUDA, MANAGED):
            return f"on CUDA device {self.index}"
        return f"on device ({self.type}, {self.index}) of DLPack"


def device_of(array: Any) -> Device:
    return Device(*(int(each) for each in array.__dlpack_device__()))


def read(array: Any, name: str, stream: int | None = None) -> tuple[Tensor, bool, object]:
    """The tensor, whether it may be written, and what keeps it alive.

    The capsule is not consumed: it gives the tensor back to its library when it goes.

    stream  of a tensor on CUDA: a cudaStream_t. The library of the tensor has it wait for the work that the tensor comes from.
            NO_ORDER: that is no concern
    """
    ordered = {} if stream is None else {"stream": stream}
    try:
        capsule = array.__dlpack__(max_version=ONE_POINT_ZERO, **ordered)
    except TypeError:  # the library is older than DLPack 1.0
        capsule = array.__dlpack__(**ordered)
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = ctypes.cast(_pointer(capsule, b"dltensor_versioned"), POINTER(Versioned)).contents
        return versioned.tensor, not versioned.flags & READ_ONLY, capsule
    if _is_valid(capsule, b"dltensor"):
        return ctypes.cast(_pointer(capsule, b"dltensor"), POINTER(Tensor)).contents, True, capsule
    raise errors.argument(f"{name}: __dlpack__() gave no DLPack capsule that is still to be used")
