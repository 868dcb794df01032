"""What goes wrong, as exceptions: MarlinError and a class for each status, which also is the builtin that Python has for it."""

from __future__ import annotations

from ._abi import Status


class MarlinError(Exception):
    """A call was refused, and nothing was done.

    status       the library's status; `unknown` ones of a newer library stay legal
    message      what was expected, what was found, and where
    native_code  errno, or the code of the device; 0 when there is none
    """

    def __init__(self, status: int, message: str, native_code: int = 0) -> None:
        super().__init__(message)
        self.status = Status(status)
        self.message = message
        self.native_code = native_code

    def __str__(self) -> str:
        return f"{self.status.name}: {self.message}"

    def __reduce__(self) -> tuple[type[MarlinError], tuple[int, str, int]]:
        return type(self), (int(self.status), self.message, self.native_code)


class ArgumentError(MarlinError, ValueError):
    """A value that no caller may pass; also an array on another device, without contiguous rows, or freed."""


class ShapeError(MarlinError, ValueError):
    """Sizes that do not fit each other."""


class UnsupportedError(MarlinError, NotImplementedError):
    """Legal, but not served by this version or device."""


class NotPreparedError(MarlinError, RuntimeError):
    """The `scratch` of a Stream is too small: prepare() says how much it must have."""


class FileError(MarlinError, OSError):
    """The operating system refused; `errno` says why."""

    def __init__(self, status: int, message: str, native_code: int = 0) -> None:
        super().__init__(status, message, native_code)
        self.errno = native_code


class FormatError(MarlinError, ValueError):
    """The content of a file or operand is malformed."""


class NotFoundError(MarlinError, LookupError):
    """No such index, layer or tensor."""


class NoDeviceError(MarlinError, RuntimeError):
    """The backend has no usable device here."""


class DeviceError(MarlinError, RuntimeError):
    """The device failed; native_code is its own code."""


class DeadlineError(MarlinError, TimeoutError):
    """A wait took longer than it was to."""


class CancelledError(MarlinError, RuntimeError):
    """A callback asked to stop."""


class OutOfMemoryError(MarlinError, MemoryError):
    """There is not enough memory."""


class InternalError(MarlinError, RuntimeError):
    """A bug in the library; please report it with the message."""


class LibraryError(MarlinError, ImportError):
    """The shared library is missing, is another one, or is too old or too new."""


CLASSES: dict[int, type[MarlinError]] = {
    Status.ARGUMENT: ArgumentError,
    Status.STRUCT_SIZE: ArgumentError,
    Status.SHAPE: ShapeError,
    Status.UNSUPPORTED: UnsupportedError,
    Status.NOT_PREPARED: NotPreparedError,
    Status.FILE: FileError,
    Status.FORMAT: FormatError,
    Status.NOT_FOUND: NotFoundError,
    Status.NO_DEVICE: NoDeviceError,
    Status.DEVICE: DeviceError,
    Status.TIMEOUT: DeadlineError,
    Status.CANCELLED: CancelledError,
    Status.MEMORY: OutOfMemoryError,
    Status.INTERNAL: InternalError,
}


def from_status(status: int, message: str, native_code: int = 0) -> MarlinError:
    return CLASSES.get(status, MarlinError)(status, message, native_code)


def argument(message: str) -> ArgumentError:
    return ArgumentError(Status.ARGUMENT, message)
