"""How far a long call is, and Ctrl-C during one."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Union

# Called with what is done, what there is in all (0: not known yet), and the layer's name.
Progress = Callable[[int, int, str], object]
# True: a bar on the terminal.
Wanted = Union[Progress, bool, None]


class Bar:
    """A bar on standard error: tqdm's where it is installed, else a line of our own, and only on a terminal."""

    WIDTH = 30

    def __init__(self) -> None:
        self._shown = ""
        self._tqdm: Any = None
        with contextlib.suppress(ImportError):
            self._tqdm = importlib.import_module("tqdm").tqdm(unit_scale=True, leave=False, disable=None)

    def __call__(self, done: int, total: int, layer: str) -> None:
        if self._tqdm is not None:
            self._tqdm.total = total
            self._tqdm.set_postfix_str(layer, refresh=False)
            self._tqdm.update(done - self._tqdm.n)
        elif sys.stderr.isatty():
            filled = self.WIDTH * done // max(total, 1)
            line = f"{100 * done // max(total, 1):3d}% [{'#' * filled}{'.' * (self.WIDTH - filled)}] {layer}"
            if line != self._shown:
                self._write(line)

    def close(self) -> None:
        if self._tqdm is not None:
            self._tqdm.close()
        elif self._shown:
            self._write("")

    def _write(self, line: str) -> None:
        """Over the line that is there."""
        sys.stderr.write("\r" + line.ljust(len(self._shown)) + "\r" * (not line))
        sys.stderr.flush()
        self._shown = line


@contextlib.contextmanager
def shown(wanted: Wanted) -> Iterator[Progress | None]:
    """What is to be told how far a call is: a bar for True, nobody for False and None."""
    if wanted is not True:
        yield wanted or None
        return
    bar = Bar()
    try:
        yield bar
    finally:
        bar.close()


class Watch:
    """Stands between the library and a Progress: Ctrl-C, or an exception of the Progress, cancels the call and comes out of it.

    Python runs the handler of a signal between two of its own instructions, so during a call of C only inside a callback. There
    an exception would be lost, because C cannot pass it on. Hence the signal is kept, and handled when the call has returned.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._progress: Progress = progress or (lambda *_: None)
        self._error: BaseException | None = None
        self._signal: tuple[int, FrameType | None] | None = None

    def tell(self, done: int, total: int, layer: str) -> int:
        """What the callback returns: not 0 cancels."""
        if self._signal is None:
            self.guard(self._progress, done, total, layer)
        return int(self._error is not None or self._signal is not None)

    def guard(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls a function in a callback of the library; what it raises is kept."""
        try:
            function(*arguments)
        except BaseException as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        self._error = error

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._signal = number, frame

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """Around the call. What happened meanwhile takes the place of its own error."""
        handler = signal.getsignal(signal.SIGINT)
        mine = callable(handler) and threading.current_thread() is threading.main_thread()
        if mine:
            signal.signal(signal.SIGINT, self._keep)
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        finally:
            if mine:
                signal.signal(signal.SIGINT, handler)
        if self._error is not None:
            raise self._error
        if self._signal is not None and callable(handler):
            handler(*self._signal)
        if failure is not None:
            raise failure
