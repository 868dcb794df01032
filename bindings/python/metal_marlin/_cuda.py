"""The calls of NVIDIA's driver that tell of a stream that is being captured into a graph. Torch has no words for them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Iterator
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

from . import errors
from ._abi import Status

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
MOVE = 1  # CU_GRAPH_USER_OBJECT_MOVE
NO_SYNC = 1  # CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
# More than a sem_t has, on every system.
SEMAPHORE_BYTES = 128

PROTOTYPES = {
    "cuThreadExchangeStreamCaptureMode": (POINTER(c_int),),
    # stream, status, id, graph, dependencies, their number
    "cuStreamGetCaptureInfo_v2": (c_void_p, POINTER(c_int), POINTER(c_uint64), POINTER(c_void_p), c_void_p, POINTER(c_size_t)),
    # object, what its destructor is given, the destructor, references, flags
    "cuUserObjectCreate": (POINTER(c_void_p), c_void_p, c_void_p, c_uint, c_uint),
    # graph, object, references, flags
    "cuGraphRetainUserObject": (c_void_p, c_void_p, c_uint, c_uint),
}


@functools.lru_cache(maxsize=None)
def _driver() -> ctypes.CDLL:
    driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    for name, arguments in PROTOTYPES.items():
        getattr(driver, name).argtypes = arguments
        getattr(driver, name).restype = c_int
    return driver


@functools.lru_cache(maxsize=None)
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL("ucrtbase.dll" if sys.platform == "win32" else None)
    system.malloc.argtypes, system.malloc.restype = (c_size_t,), c_void_p
    system.free.argtypes, system.free.restype = (c_void_p,), None
    system.sem_init.argtypes = (c_void_p, c_int, c_uint)
    system.sem_trywait.argtypes = (c_void_p,)
    return system


def _call(name: str, *arguments: object) -> None:
    code = getattr(_driver(), name)(*arguments)
    if code:
        raise errors.from_status(Status.DEVICE, f"{name} returned {code}", code)


@contextlib.contextmanager
def relaxed() -> Iterator[None]:
    """Lets this thread allocate and load kernels while a stream is being captured. None of that becomes a part of the graph."""
    mode = c_int(RELAXED)
    _call("cuThreadExchangeStreamCaptureMode", byref(mode))
    try:
        yield
    finally:
        _call("cuThreadExchangeStreamCaptureMode", byref(mode))


def capture_of(stream: int) -> tuple[int, int]:
    """The number of the capture that this stream takes part in, which no other capture of the process has, and its graph."""
    status, number, graph = c_int(), c_uint64(), c_void_p()
    _call("cuStreamGetCaptureInfo_v2", stream, byref(status), byref(number), byref(graph), None, None)
    if status.value != ACTIVE or not graph.value:
        raise errors.from_status(Status.DEVICE, f"a stream is being captured with status {status.value}, expected {ACTIVE}")
    return number.value, graph.value


class GraphLife:
    """Knows whether a graph and all that was instantiated from it are gone.

    The driver calls a function of C when they are. A function of Python could wait there for the interpreter's lock, while who
    holds it waits for the driver. So the function is sem_post().
    """

    def __init__(self, graph: int) -> None:
        system, found = _system(), c_void_p()
        self._semaphore = system.malloc(SEMAPHORE_BYTES)
        system.sem_init(self._semaphore, 0, 0)
        _call("cuUserObjectCreate", byref(found), self._semaphore, ctypes.cast(system.sem_post, c_void_p), 1, NO_SYNC)
        _call("cuGraphRetainUserObject", graph, found, 1, MOVE)

    def is_over(self) -> bool:
        if self._semaphore and _system().sem_trywait(self._semaphore) == 0:
            _system().free(self._semaphore)  # only now: at the end of the process a graph may outlive this object
            self._semaphore = None
        return not self._semaphore
