"""Streams: work in order, for which the caller need not wait."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from ctypes import byref
from typing import Any, cast

from . import _abi, errors
from ._abi import Backend, Status
from ._dlpack import LEGACY_DEFAULT_STREAM
from ._library import Handle, Library, Owner, expected, sized
from .context import Context, ContextOwner, place_on
from .errors import DeadlineError
from .operands import Operand, on_one_device, operand

FOREVER = 2**64 - 1
# How long the library waits at a time, in seconds: Python handles Ctrl-C in between.
SLICE = 0.1


# Who is told that the work of a stream has ended. One function of C lives as long as the library may call it.
_waiting: dict[int, Callable[[Status], None]] = {}
_numbers = itertools.count(1)


def _tell(number: int, status: int) -> None:
    _waiting.pop(number)(Status(status))


_ended = cast(Any, _abi.FUNCTIONS["marlin_stream_notify"])._argtypes_[1](_tell)


class Work(Owner):
    """A stream, which what it works on outlives, also when nobody waits."""

    def __del__(self) -> None:
        self.library.function("marlin_stream_wait")(self.handle, FOREVER, None)
        super().__del__()


class Stream(Handle):
    """An in-order queue of work, for `stream=` of gemm(), gemm_many(), Weights.unpack() and others. A CPU's work is done when the
    call returns; a GPU's goes on, and takes arrays of Context.zeros() and views of these, and with `native` arrays on the device.

    Arrays and weights are kept until wait() says that their work is done. Until then nobody else may touch what is written, nor
    change what is read. A failure of the device comes out of the next call. Threads that use a stream at once wait for each other.

    scratch  uint8 [bytes], memory for temporaries that nothing else uses; prepare() says how much. None: the library's own
    native   for a context of CUDA, the stream on which the work runs: a stream of torch or CuPy or of another library that has
             __cuda_stream__(), which is kept, or the number of a cudaStream_t, which has to outlive this object; 0 is the legacy
             default stream. Libraries with DLPack have their arrays ready for it. While it is captured into a CUDA graph, nothing can
             wait for it. None: a stream of the library's own

    `with` waits at its end. Without wait() the work is done all the same: the last reference waits for it.
    """

    _owned_by: type[Owner] = Work

    def __init__(self, context: Context, scratch: Any = None, native: Any = None) -> None:
        self._begin(cast(ContextOwner, expected(context, Context, "context")._live()), scratch, native)

    def _begin(self, within: ContextOwner, scratch: Any, native: Any) -> None:
        desc = sized(_abi.marlin_stream_desc)
        self._number: int | None = None  # as DLPack has it; None: it cannot be told
        if native is not None:
            desc.kind, desc.native = _abi.Native.CUDA_STREAM, handle_of(native)
            self._number = desc.native or LEGACY_DEFAULT_STREAM
            if within.where[0] != Backend.CUDA:
                raise errors.argument(f"native is a stream of CUDA, expected none for a context of the {within.where[0].name} backend")
        memory = None
        if scratch is not None:
            memory = operand(scratch, "scratch", place=place_on(within, self._number))
            desc.scratch = memory.matrix(written=True, library=within.library)
        self._lock = threading.RLock()  # collecting garbage inside of a call may come here again
        self._used: list[object] = []
        # The library keeps the context. What calls it back must live as long.
        keeps = (within._keeps, memory, native, self._used)
        owner = self._owned_by(within.library, _abi.marlin_stream(), keeps=keeps)
        self._owner = owner.create("marlin_stream_create", within.handle, byref(desc))

    def flush(self) -> None:
        """Submits what is recorded; does not wait."""
        with self._lock:
            owner = self._live()
            owner.library.call("marlin_stream_flush", owner.handle)

    def notify(self, done: Callable[[Status], None]) -> None:
        """Calls `done` once when the work given so far has ended, with Status.OK or the failure of the device: at once on a CPU, else
        on a thread of the driver. It must not call this package."""
        number = next(_numbers)
        with self._lock:
            owner = self._live()
            _waiting[number] = done
            try:
                owner.library.call("marlin_stream_notify", owner.handle, _ended, number)
            except BaseException:
                _waiting.pop(number, None)
                raise

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the work given so far is done. False: it was not, within so many seconds; 0 polls, None waits for ever.

        Ctrl-C ends the waiting and not the work.
        """
        until = float("inf") if timeout is None else time.monotonic() + timeout
        with self._lock:
            owner = self._live()
            while True:
                seconds = max(0.0, min(SLICE, until - time.monotonic()))
                try:
                    owner.library.call("marlin_stream_wait", owner.handle, int(seconds * 1e9))
                except DeadlineError:
                    if time.monotonic() >= until:
                        return False
                else:
                    self._used.clear()
                    return True

    def _give(self, library: Library, uses: object, function: str, *arguments: Any) -> None:
        with self._lock:
            owner = self._live(library)
            self._keep(uses)  # before the call, which may have begun when it fails
            library.call(function, owner.handle, *arguments)

    def _keep(self, uses: object) -> None:
        self._used.append(uses)

    def __exit__(self, *failure: object) -> None:
        try:
            if not any(failure) and self._owner is not None:
                self.wait()
        finally:
            self.close()


def handle_of(native: Any) -> int:
    """The cudaStream_t of a stream of another library; 0: the legacy default stream."""
    if isinstance(native, int) and not isinstance(native, bool):
        if not 0 <= native < 2**64:
            raise errors.argument(f"native is {native}, expected the address of a cudaStream_t, or 0")
        return native
    if hasattr(native, "__cuda_stream__"):
        return int(native.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):  # of torch and CuPy, in versions without the protocol
        if isinstance(getattr(native, name, None), int):
            return int(getattr(native, name))
    raise TypeError(f"native is a {type(native).__name__}, expected a stream of CUDA with __cuda_stream__(), or its number")


def number_of(stream: Stream | None) -> int | None:
    """What a library with DLPack is told of the stream that a call runs on."""
    return LEGACY_DEFAULT_STREAM if stream is None else expected(stream, Stream, "stream")._number


# For calls without a stream on arrays of a CUDA device: the stream that others can order their work with.
_default_streams: weakref.WeakKeyDictionary[ContextOwner, Stream] = weakref.WeakKeyDictionary()
_default_lock = threading.RLock()


def _default_stream(within: ContextOwner) -> Stream:
    with _default_lock:
        found = _default_streams.get(within)
        if found is None:
            found = Stream.__new__(Stream)
            found._begin(within, None, 0)
            _default_streams[within] = found
        return found


def submit(
    stream: Stream | None, within: ContextOwner, operands: Iterable[Operand], uses: object, function: str, *arguments: Any
) -> None:
    """Calls a function that takes a stream first. None: it is done on return.

    operands  what has to be on one device
    uses      what has to live until it is done
    """
    on_device = on_one_device(operands)
    if stream is not None:
        expected(stream, Stream, "stream")._give(within.library, uses, function, *arguments)
    elif on_device:
        own = _default_stream(within)
        own._give(within.library, uses, function, *arguments)
        own.wait()
    else:
        within.library.call(function, None, *arguments)
