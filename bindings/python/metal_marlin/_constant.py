from __future__ import annotations

import enum


class Constant(enum.IntEnum):
    """A constant of the ABI. A value that this version has no name for is legal, and is called UNKNOWN_<value>."""

    @classmethod
    def _missing_(cls, value: object) -> Constant | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return member
