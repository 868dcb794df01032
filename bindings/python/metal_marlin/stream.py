"""Streams: work in order, for which the caller need not wait."""

from __future__ import annotations

import threading
import time
from ctypes import byref
from typing import Any

from . import _abi
from ._library import Handle, Library, Owner, expected, sized
from .context import Context
from .errors import DeadlineError
from .operands import operand

FOREVER = 2**64 - 1
# How long the library waits at a time, in seconds: Python handles Ctrl-C in between.
SLICE = 0.1


class Work(Owner):
    """A stream, which what it works on outlives, also when nobody waits."""

    def __del__(self) -> None:
        self.library.function("marlin_stream_wait")(self.handle, FOREVER, None)
        super().__del__()


class Stream(Handle):
    """An in-order queue of work, for `stream=` of gemm(), gemm_many(), Weights.unpack() and others. A CPU's work is done when the
    call returns; a GPU's goes on, and takes arrays of Context.zeros() and views of these only.

    Arrays and weights are kept until wait() says that their work is done. Until then nobody else may touch what is written, nor
    change what is read. A failure of the device comes out of the next call. Threads that use a stream at once wait for each other.

    scratch  uint8 [bytes], memory for temporaries that nothing else uses; prepare() says how much. None: the library's own

    `with` waits at its end. Without wait() the work is done all the same: the last reference waits for it.
    """

    def __init__(self, context: Context, scratch: Any = None) -> None:
        within = expected(context, Context, "context")._live()
        desc = sized(_abi.marlin_stream_desc)
        memory = None
        if scratch is not None:
            memory = operand(scratch, "scratch")
            desc.scratch = memory.matrix(written=True, library=within.library)
        self._lock = threading.Lock()
        self._used: list[object] = []
        owner = Work(within.library, _abi.marlin_stream(), keeps=(within, memory, self._used))
        self._owner = owner.create("marlin_stream_create", within.handle, byref(desc))

    def flush(self) -> None:
        """Submits what is recorded; does not wait."""
        with self._lock:
            owner = self._live()
            owner.library.call("marlin_stream_flush", owner.handle)

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
            self._used.append(uses)  # before the call, which may have begun when it fails
            library.call(function, owner.handle, *arguments)

    def __exit__(self, *failure: object) -> None:
        try:
            if not any(failure) and self._owner is not None:
                self.wait()
        finally:
            self.close()


def submit(stream: Stream | None, library: Library, uses: object, function: str, *arguments: Any) -> None:
    """Calls a function that takes a stream first. None: it is done on return. uses: what has to live until it is done."""
    if stream is None:
        library.call(function, None, *arguments)
    else:
        expected(stream, Stream, "stream")._give(library, uses, function, *arguments)
