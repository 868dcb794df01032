"""What a checkpoint says about its model."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping
from ctypes import byref
from typing import TypeAlias

from . import _abi, errors
from ._abi import ValueType
from ._library import Owner, sized

Single: TypeAlias = bool | int | float | str
Value: TypeAlias = Single | list[bool] | list[int] | list[float] | list[str]

# How struct names the elements of an array.
CODES = {
    ValueType.BOOL: "?",
    ValueType.I8: "b",
    ValueType.I16: "h",
    ValueType.I32: "i",
    ValueType.I64: "q",
    ValueType.U8: "B",
    ValueType.U16: "H",
    ValueType.U32: "I",
    ValueType.U64: "Q",
    ValueType.F32: "f",
    ValueType.F64: "d",
}


class Values(Mapping[str, Value]):
    """The key-values of a checkpoint, by their keys and in the order of the file. Each is read when it is asked for.

    A value is a bool, an int, a float, a str, or a list of one of these. Bytes that are no UTF-8 become lone surrogates.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def __repr__(self) -> str:
        names = list(self)
        return f"Values({len(names)} keys: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"

    def __getitem__(self, key: str) -> Value:
        raw = sized(_abi.marlin_value)
        if "\0" in key:
            raise KeyError(key)  # the C interface has no such key
        try:
            self._owner.library.call("marlin_checkpoint_value", self._owner.handle, key.encode(errors="surrogateescape"), byref(raw))
        except errors.NotFoundError:
            raise KeyError(key) from None
        return self._value(raw)

    def __iter__(self) -> Iterator[str]:
        for raw in self._all():
            yield key_of(raw)

    def __len__(self) -> int:
        return sum(1 for _ in self._all())

    def _all(self) -> Iterator[_abi.marlin_value]:
        index = 0
        while True:
            raw = sized(_abi.marlin_value)
            try:
                self._owner.library.call("marlin_checkpoint_value_at", self._owner.handle, index, byref(raw))
            except errors.NotFoundError:
                return
            yield raw
            index += 1

    def _value(self, raw: _abi.marlin_value) -> Value:
        if raw.kind == ValueType.BOOL:
            return bool(raw.i64)
        if raw.kind == ValueType.I64:
            return int(raw.i64)
        if raw.kind == ValueType.U64:
            return int(raw.u64)
        if raw.kind == ValueType.F64:
            return float(raw.f64)
        if raw.kind == ValueType.STRING:
            return text_at(raw.data, raw.bytes)
        if raw.element_type == ValueType.STRING:
            return list(self._strings(raw))
        code = CODES[ValueType(raw.element_type)]
        return list(struct.unpack(f"<{raw.count}{code}", ctypes.string_at(raw.data or 0, raw.bytes)))

    def _strings(self, raw: _abi.marlin_value) -> Iterator[str]:
        text, size = ctypes.c_char_p(), ctypes.c_uint64()
        for _ in range(raw.count):
            self._owner.library.call("marlin_value_next_string", byref(raw), byref(text), byref(size))
            yield text_at(address_of(text), size.value)


def key_of(raw: _abi.marlin_value) -> str:
    pointer = ctypes.c_char_p.from_buffer(raw, _abi.marlin_value.key.offset)
    return text_at(address_of(pointer), raw.key_bytes)


def address_of(text: ctypes.c_char_p) -> int | None:
    """ctypes would look for the NUL at the end of a text, which has none here."""
    return ctypes.cast(text, ctypes.c_void_p).value


def text_at(address: int | None, size: int) -> str:
    return ctypes.string_at(address or 0, size).decode(errors="surrogateescape")
