"""Devices and contexts."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Sequence
from ctypes import byref
from typing import Any

from . import _abi, errors
from ._abi import Backend, DType
from ._library import Handle, Library, Owner, constant, default_library, expected, sized
from .operands import BY_NAME, BYTES, Buffer

Log = Callable[[int, str], None]
LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}


def to_logging(level: int, message: str) -> None:
    logging.getLogger("metal_marlin").log(LEVELS.get(level, logging.INFO), "%s", message)


@dataclasses.dataclass(frozen=True)
class Device:
    """A device that the library knows of.

    why_not  "" when it is usable
    threads  of the CPU: as many as a Context has that asks for none in particular; 0 for other devices
    """

    backend: Backend
    index: int
    name: str
    isa_or_arch: str
    memory_bytes: int
    why_not: str
    threads: int


def devices(library: Library | None = None) -> list[Device]:
    """All devices, also those that cannot be used, in the order in which Backend.AUTO tries them."""
    library = library or default_library()
    found: list[Device] = []
    while True:
        info = sized(_abi.marlin_device_info)
        try:
            library.call("marlin_device_get", len(found), byref(info))
        except errors.NotFoundError:
            return found
        name, isa, why_not = (text.decode(errors="replace") for text in (info.name, info.isa_or_arch, info.why_not))
        found.append(Device(Backend(info.backend), info.index, name, isa, info.memory_bytes, why_not, info.threads))


class Context(Handle):
    """A device with its kernels, caches and threads. Any number of threads may use it at once.

    backend, device_index  which device; AUTO: the first usable one
    threads                of the CPU; 0: as many as the process may run on. They start with the first work
    tune_ms                milliseconds that one `prepare` may measure kernels for products that the device's profile does not
                           have; 0: it measures none
    log                    called with a level (1 error, 2 warning, 3 info) and a text, on any thread; it must not call this
                           package. By default the logger "metal_marlin" of `logging` gets it
    """

    def __init__(
        self,
        backend: Backend = Backend.AUTO,
        device_index: int = 0,
        threads: int = 0,
        log: Log = to_logging,
        library: Library | None = None,
        tune_ms: int = 0,
    ) -> None:
        constant(backend, Backend, "backend")
        desc = sized(_abi.marlin_context_desc, backend=backend, device_index=device_index, threads=threads, tune_ms=tune_ms)
        desc.log = type(desc.log)(lambda _, level, message: log(level, message.decode(errors="replace")))
        owner = Owner(library or default_library(), _abi.marlin_context(), keeps=desc)
        self._owner = owner.create("marlin_context_create", byref(desc))

    @property
    def backend(self) -> Backend:
        """As it was asked for; AUTO, if nothing in particular was."""
        return Backend(self._live()._keeps.backend)

    def __repr__(self) -> str:
        if self._owner is None:
            return "Context(closed)"
        desc = self._owner._keeps
        threads = f", threads={desc.threads}" if desc.threads else ""
        return f"Context({Backend(desc.backend).name}, device_index={desc.device_index}{threads})"

    def zeros(self, shape: int | Sequence[int], dtype: DType = DType.F32) -> Any:
        """A numpy array of zeros in memory that host and device both reach, as has to be what a Stream of a GPU works on. Views of
        it are such memory too. Bits, when numpy has no such type."""
        within, sizes = self._live(), (shape,) if isinstance(shape, int) else tuple(shape)
        if dtype not in BY_NAME.values():
            raise TypeError(f"dtype is {dtype.name}, expected one of {', '.join(each.name for each in BY_NAME.values())}")
        size = math.prod(sizes) * BYTES.get(dtype, 1)
        if min(sizes, default=0) < 0:
            raise errors.argument(f"shape is {sizes}, expected no negative size")
        owner = Owner(within.library, _abi.marlin_buffer(), keeps=within)
        return Buffer(owner.create("marlin_buffer_create", within.handle, size), size).array(dtype, sizes)


@functools.lru_cache(maxsize=None)
def shared_context(backend: Backend = Backend.AUTO) -> Context:
    """The one of this process that unpickled weights live in."""
    return Context(backend)
