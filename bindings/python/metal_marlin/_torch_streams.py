"""The streams of torch as streams of the library, for the operator on CUDA devices.

Outside of a capture, a stream of torch has one stream of the library in a context. Work that is captured into a graph has streams
of its own, whose memory and weights live as long as the graph: the graph may run at any time, also beside other work.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Iterator

import torch

from . import errors
from ._cuda import GraphLife, capture_of, relaxed
from ._dlpack import NO_ORDER
from ._library import Owner
from .context import ContextOwner
from .stream import Stream

# How long what goes away waits for work that may still use it, in seconds. What is left goes with the next.
PATIENCE = 0.01


class Ordered(Stream):
    """On a stream of torch, the current one. Torch gives memory to others behind the work of its stream only, and the library keeps
    weights for its own work, so that nothing is kept here and nothing waits at the end."""

    _owned_by = Owner

    def __init__(self, within: ContextOwner, native: int) -> None:
        self._begin(within, None, native)
        self._number = NO_ORDER

    def _keep(self, uses: object) -> None:
        pass

    def let_go(self) -> None:
        """Of the weights and the memory that its finished work used."""
        with contextlib.suppress(errors.MarlinError):
            self.wait(PATIENCE)


_lock = threading.RLock()  # collecting garbage may come here again
_streams: weakref.WeakKeyDictionary[ContextOwner, dict[int, Ordered]] = weakref.WeakKeyDictionary()
# By the handle of the context, the capture and the stream of torch.
_captured: dict[tuple[int, int, int], tuple[Ordered, GraphLife]] = {}


@contextlib.contextmanager
def current_stream(within: ContextOwner) -> Iterator[Ordered]:
    """Torch's current stream of its current device, which is that of the context."""
    native = torch.cuda.current_stream()
    if torch.cuda.is_current_stream_capturing():
        with relaxed():
            yield _stream_of_capture(within, native.cuda_stream)
    elif native.cuda_stream != 0 and native.stream_id == native.cuda_stream:
        # Of another library, which may destroy it at any time; torch never destroys its own.
        stream = Ordered(within, native.cuda_stream)
        try:
            yield stream
        finally:
            stream.close()
    else:
        try:
            yield _stream_of(within, native.cuda_stream)
        except errors.DeviceError:  # a stream keeps its failure
            with _lock:
                _streams.get(within, {}).pop(native.cuda_stream, None)
            raise


def _stream_of(within: ContextOwner, native: int) -> Ordered:
    with _lock:
        known = _streams.setdefault(within, {})
        if native not in known:
            _forget_graphs()
            known[native] = Ordered(within, native)
        return known[native]


def _stream_of_capture(within: ContextOwner, native: int) -> Ordered:
    number, graph = capture_of(native)
    with _lock:
        key = (within.handle.value or 0, number, native)
        if key not in _captured:
            _forget_graphs()
            _captured[key] = Ordered(within, native), GraphLife(graph)
        return _captured[key][0]


def _forget_graphs() -> None:
    """Gives up the streams of graphs that are gone."""
    for key, (stream, life) in list(_captured.items()):
        if life.is_over():
            _captured.pop(key, None)
            stream.let_go()


def release(within: weakref.ref[ContextOwner]) -> None:
    """For when weights of this context go: finished work must not keep their memory."""
    owner = within()
    used = [] if owner is None else list(_streams.get(owner, {}).values())
    if not (used or _captured) or sys.is_finalizing() or torch.cuda.is_current_stream_capturing():
        return
    with _lock:
        _forget_graphs()
    for stream in used:
        stream.let_go()
