"""What Checkpoint.convert() tells, and the threads that it has."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable

from ._abi import Format, Status
from .progress import Watch


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one layer.

    status         Status.OK: quantized; else why it stays as it was
    reason         the words for status, or ""
    n, k           rows and columns: out_features, in_features
    experts        1 for a plain layer
    group_size     k when one group spans the row
    source         what it was; Format.NONE: floats
    format         that was written
    bytes_before, bytes_after   of all its tensors
    squared_error  sum of (written - original)^2; 0.0 in a dry run
    squared_norm   sum of original^2
    kept_norm      sum of original^2 over what pruning kept
    exact          it was quantized already, and no value has changed
    zeros, additive_zeros, act_order, sparse_2_4, gate_up_interleaved   what is special about what was written
    """

    name: str
    status: Status
    reason: str
    n: int
    k: int
    experts: int
    group_size: int
    source: Format
    format: Format
    bytes_before: int
    bytes_after: int
    squared_error: float
    squared_norm: float
    kept_norm: float
    exact: bool
    zeros: bool
    additive_zeros: bool
    act_order: bool
    sparse_2_4: bool
    gate_up_interleaved: bool


def processors() -> int:
    """As many as the process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Team:
    """Threads that run the tasks of the library, which lets the interpreter's lock go meanwhile. The calling thread only waits: a
    signal's handler, which Python runs there, may raise anywhere, and must neither lose a task nor leave one running."""

    def __init__(self, threads: int, watch: Watch) -> None:
        self._threads = threads or processors()
        self._watch = watch
        self._pool = concurrent.futures.ThreadPoolExecutor(self._threads)
        self._pool.submit(int).result()  # one there is, or this is the error

    def run(self, _user: object, count: int, task: Callable[[object, int], None], task_user: object) -> None:
        left, lock, over, ended = collections.deque(range(count)), threading.Lock(), threading.Event(), 0

        def work() -> None:
            nonlocal ended
            with contextlib.suppress(IndexError):
                while True:
                    task(task_user, left.popleft())
                    with lock:
                        ended += 1
                        if ended == count:
                            over.set()

        while ended < count:
            try:
                for _ in range(min(count, self._threads)):
                    self._pool.submit(work)
                over.wait()
            except BaseException as error:
                self._watch.fail(error)

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
