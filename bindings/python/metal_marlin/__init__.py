"""Multiply by 4-bit weights at the speed of memory."""

from . import _abi
from ._abi import Backend, Compute, DType, Epilogue, Format, GptqZeroF, Layout, LogLevel, Scheme, Status, ValueType
from ._library import Library
from .checkpoint import Checkpoint, LayerInfo
from .context import Context, Device, Step, devices
from .conversion import Outcome
from .errors import (
    ArgumentError,
    CancelledError,
    DeadlineError,
    DeviceError,
    FileError,
    FormatError,
    InternalError,
    LibraryError,
    MarlinError,
    NoDeviceError,
    NotFoundError,
    NotPreparedError,
    OutOfMemoryError,
    ShapeError,
    UnsupportedError,
)
from .linear import Linear
from .operands import Bits
from .products import Descriptor, Gemm, gemm, gemm_many, prepare
from .quantize import Quantize
from .source import Shard
from .stream import Stream
from .values import Value, Values
from .weights import Load, Part, Weights, load_layers, save

__version__ = f"{_abi.MARLIN_VERSION_MAJOR}.{_abi.MARLIN_VERSION_MINOR}.{_abi.MARLIN_VERSION_PATCH}"

__all__ = [
    "ArgumentError",
    "Backend",
    "Bits",
    "CancelledError",
    "Checkpoint",
    "Compute",
    "Context",
    "DType",
    "DeadlineError",
    "Descriptor",
    "Device",
    "DeviceError",
    "Epilogue",
    "FileError",
    "Format",
    "FormatError",
    "Gemm",
    "GptqZeroF",
    "InternalError",
    "LayerInfo",
    "Layout",
    "Library",
    "LibraryError",
    "Linear",
    "Load",
    "LogLevel",
    "MarlinError",
    "NoDeviceError",
    "NotFoundError",
    "NotPreparedError",
    "OutOfMemoryError",
    "Outcome",
    "Part",
    "Quantize",
    "Scheme",
    "Shard",
    "ShapeError",
    "Status",
    "Step",
    "Stream",
    "UnsupportedError",
    "Value",
    "ValueType",
    "Values",
    "Weights",
    "devices",
    "gemm",
    "gemm_many",
    "load_layers",
    "prepare",
    "save",
]
