"""The shared library: found, checked, and called."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import sys
from ctypes import byref
from typing import Any, TypeAlias, TypeVar, Union

from . import _abi, errors
from ._constant import Constant

Struct = TypeVar("Struct", bound=ctypes.Structure)
Self = TypeVar("Self", bound="Handle")
Kind = TypeVar("Kind")
# A name of a file, as Python's own functions take it.
PathName: TypeAlias = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
# Inside this package, and the system's.
if sys.platform == "darwin":
    OWN_NAME, SYSTEM_NAME = "libmetal-marlin.dylib", f"libmetal-marlin.{_abi.MARLIN_ABI_MAJOR}.dylib"
elif sys.platform == "win32":
    OWN_NAME, SYSTEM_NAME = "metal-marlin.dll", "metal-marlin.dll"
else:
    OWN_NAME, SYSTEM_NAME = "libmetal-marlin.so", f"libmetal-marlin.so.{_abi.MARLIN_ABI_MAJOR}"


def sized(struct: type[Struct], **fields: Any) -> Struct:
    """A struct of the ABI that says its size; what is not named is 0."""
    try:
        return struct(struct_size=ctypes.sizeof(struct), **fields)
    except TypeError:
        for name, value in fields.items():  # ctypes does not say which
            try:
                struct(**{name: value})
            except TypeError as wrong:
                raise TypeError(f"{name} is {value!r}: {wrong}") from None
        raise


class Library:
    """A loaded libmetal-marlin. Calls release the interpreter's lock, so that other threads of Python go on meanwhile.

    path: of the shared library. None: the one inside this package; where it has none, the system's.
    """

    def __init__(self, path: PathName | None = None) -> None:
        own = pathlib.Path(__file__).with_name(OWN_NAME)
        name = text_of(path) if path is not None else str(own) if own.exists() else SYSTEM_NAME
        try:
            loaded = ctypes.CDLL(name)
        except OSError as error:
            raise errors.LibraryError(_abi.Status.FILE, f"{name}: {error}") from None
        self.path = name
        self._check(name, loaded)
        try:
            self._functions: dict[str, Any] = {each: prototype((each, loaded)) for each, prototype in _abi.FUNCTIONS.items()}
        except AttributeError as error:
            raise errors.LibraryError(_abi.Status.UNSUPPORTED, f"{name}: {error}") from None

    def _check(self, name: str, loaded: ctypes.CDLL) -> None:
        try:
            get_api = _abi.FUNCTIONS["marlin_get_api"](("marlin_get_api", loaded))
        except AttributeError:
            raise errors.LibraryError(_abi.Status.UNSUPPORTED, f"{name}: this is no libmetal-marlin") from None
        api = get_api(_abi.MARLIN_ABI_MAJOR)
        if not api:
            message = f"{name}: does not serve the ABI of major {_abi.MARLIN_ABI_MAJOR}, which this package needs"
            raise errors.LibraryError(_abi.Status.UNSUPPORTED, message)
        # Only what lies inside the table's own size may be read.
        size, needed = api.contents.struct_size, ctypes.sizeof(_abi.marlin_api)
        if size < needed:
            message = f"{name}: older than this package: its table has {size} bytes, expected {needed} or more"
            raise errors.LibraryError(_abi.Status.UNSUPPORTED, message)

    @property
    def version(self) -> tuple[int, int, int]:
        """Major, minor, patch."""
        number = self.function("marlin_version")()
        return number >> 16, number >> 8 & 255, number & 255

    def function(self, name: str) -> Any:
        """For what takes no marlin_error, or needs none."""
        return self._functions[name]

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function that takes a marlin_error as its last argument; raises what it reports."""
        error = sized(_abi.marlin_error)
        status = self.function(function)(*arguments, byref(error))
        if status != _abi.Status.OK:
            raise errors.from_status(status, error.message.decode(errors="replace"), error.native_code)


def a(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOaeio' or kind.__name__.startswith('nd') else 'a'} {kind.__name__}"


def expected(value: object, kind: type[Kind], name: str, hint: str = "") -> Kind:
    """The value, if it is of this kind; what the library would take a pointer of has to be."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {a(type(value))}, expected {a(kind)}{hint}")
    return value


def constant(value: object, kind: type[Constant], name: str) -> None:
    """Every constant of the ABI that a caller gives is of its class. A plain number is none: Quantize(4) would be NVFP4. One that only
    a newer library knows is written Format(99)."""
    if not isinstance(value, kind):
        meant = next((each for each in kind if each.name == str(value).upper()), None)
        example = meant if meant is not None else list(kind)[1]
        raise TypeError(f"{name} is {value!r}, expected {a(kind)}, as {kind.__name__}.{example.name}")


def text_of(path: PathName, name: str = "path") -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        raise TypeError(f"{name} is {a(type(path))}, expected a str, bytes or an os.PathLike") from None


@functools.lru_cache(maxsize=None)
def default_library() -> Library:
    return Library()


class Owner:
    """Owns one handle, and destroys it with the last reference: a call that holds one cannot lose it.

    keeps: what has to live as long (callbacks, and the owner of the context).
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p, keeps: Any = None) -> None:
        self.library = library
        self.handle = handle
        self._destroy = library.function(f"{type(handle).__name__}_destroy")
        self._keeps = keeps

    def create(self, function: str, *arguments: Any) -> Owner:
        """Fills the handle in. It is owned before it is made, so that Ctrl-C loses none."""
        self.library.call(function, *arguments, byref(self.handle))
        return self

    def __del__(self) -> None:
        self._destroy(self.handle)


class Handle:
    """What Context, Checkpoint and Weights share: close(), `with`, and an error for use after that."""

    _owner: Owner | None = None

    def close(self) -> None:
        """Gives up the handle now. A call that another thread has under way still ends well. Closing twice is fine."""
        self._owner = None

    def _live(self, library: Library | None = None) -> Owner:
        """To be held during a call. library: what the rest of the call is of."""
        owner = self._owner
        if owner is None:
            raise errors.argument(f"the {type(self).__name__} is closed")
        if library is not None and owner.library is not library:
            raise errors.argument(f"the {type(self).__name__} is of another copy of the library: {owner.library.path}")
        return owner

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"a {type(self).__name__} belongs to this process and cannot be pickled")
