"""Devices and contexts."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Sequence
from ctypes import byref
from typing import Any, cast

from . import _abi, errors
from ._abi import Backend, DType, LogLevel
from ._library import Handle, Library, Owner, constant, default_library, expected, sized
from .operands import BY_NAME, BYTES, Buffer, Place

Log = Callable[[int, str], None]
LEVELS: dict[int, int] = {LogLevel.ERROR: logging.ERROR, LogLevel.WARNING: logging.WARNING, LogLevel.INFO: logging.INFO}


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


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of work that is done: on the CPU of a product, on a GPU a launch.

    kernel     as Gemm.explain() names it
    step       "multiply", "prepare A", ...
    begin_ns   by the host's monotonic clock, that of time.monotonic_ns() on Linux
    device_ns  by the device's clock; 0: unknown, as on the CPU
    together   steps that have these times, which are those of all of them; 1: it is timed alone
    rows       of the product that it works on
    stream     a number for each Stream; None: a call without one
    """

    kernel: str
    step: str
    begin_ns: int
    end_ns: int
    device_ns: int
    together: int
    rows: int
    n: int
    k: int
    stream: int | None


def step_of(event: _abi.marlin_trace_event) -> Step:
    texts = event.kernel.decode(), event.step.decode()
    times = event.begin_ns, event.end_ns, event.device_ns, event.together
    return Step(*texts, *times, event.rows, event.n, event.k, event.stream.value)


class ContextOwner(Owner):
    """Owns a context, and knows its device."""

    @functools.cached_property
    def device(self) -> Device:
        """AUTO takes the first usable backend with its first device."""
        desc = self._keeps
        for each in devices(self.library):
            if each.index == desc.device_index and (each.backend == desc.backend or (desc.backend == Backend.AUTO and not each.why_not)):
                return each
        raise errors.from_status(_abi.Status.NO_DEVICE, f"there is no device {desc.device_index} of {Backend(desc.backend).name} any more")


    @functools.cached_property
    def where(self) -> tuple[Backend, int]:
        """The backend and the index of its device. Only for AUTO the devices are asked, which wakes up their drivers."""
        desc = self._keeps
        if desc.backend == Backend.AUTO:
            return self.device.backend, self.device.index
        return Backend(desc.backend), int(desc.device_index)


def place_on(within: ContextOwner, stream: int | None) -> Place:
    """Where operands may lie for work in this context, on a stream as DLPack numbers it."""
    backend, index = within.where
    if backend == Backend.CUDA:
        return Place(index, f"a context of CUDA device {index}", stream)
    return Place(why=f"a context of the {backend.name} backend")


class Context(Handle):
    """A device with its kernels, caches and threads. Any number of threads may use it at once.

    backend, device_index  which device; AUTO: the first usable one
    threads                of the CPU; 0: as many as the process may run on. They start with the first work
    log                    called with a level (1 error, 2 warning, 3 info) and a text, on any thread; it must not call this
                           package. By default the logger "metal_marlin" of `logging` gets it
    trace                  called with each Step that is done, on any thread; it must not call this package
    """

    def __init__(
        self,
        backend: Backend = Backend.AUTO,
        device_index: int = 0,
        threads: int = 0,
        log: Log = to_logging,
        library: Library | None = None,
        trace: Callable[[Step], None] | None = None,
    ) -> None:
        constant(backend, Backend, "backend")
        desc = sized(_abi.marlin_context_desc, backend=backend, device_index=device_index, threads=threads)
        desc.log = type(desc.log)(lambda _, level, message: log(level, message.decode(errors="replace")))
        if trace is not None:
            desc.trace = type(desc.trace)(lambda _, event: trace(step_of(event.contents)))
        owner = ContextOwner(library or default_library(), _abi.marlin_context(), keeps=desc)
        self._owner = owner.create("marlin_context_create", byref(desc))

    @property
    def backend(self) -> Backend:
        """As it was asked for; AUTO, if nothing in particular was."""
        return Backend(self._live()._keeps.backend)

    @property
    def device(self) -> Device:
        """The one that it runs on, also when AUTO chose it."""
        return cast(ContextOwner, self._live()).device

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
        constant(dtype, DType, "dtype")
        if dtype not in BY_NAME.values():
            raise TypeError(f"dtype is {dtype.name}, expected one of {', '.join(each.name for each in BY_NAME.values())}")
        size = math.prod(sizes) * BYTES.get(dtype, 1)
        if min(sizes, default=0) < 0:
            raise errors.argument(f"shape is {sizes}, expected no negative size")
        owner = Owner(within.library, _abi.marlin_buffer(), keeps=within)
        return Buffer(owner.create("marlin_buffer_create", within.handle, size), size).array(dtype, sizes)


@functools.lru_cache(maxsize=None)
def _shared(backend: int, device_index: int) -> Context:
    return Context(Backend(backend), device_index)


def shared_context(backend: Backend = Backend.AUTO, device_index: int = 0) -> Context:
    """The one of this process for this device, in which unpickled weights live and the layers of torch that are moved to it."""
    constant(backend, Backend, "backend")
    return _shared(backend, device_index)
