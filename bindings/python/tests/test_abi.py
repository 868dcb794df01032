"""The declarations against the table of the C ABI, which a compiled program measured."""

from __future__ import annotations

import ctypes
import importlib.util
import keyword
import shutil

import pytest
from conftest import TOP
from metal_marlin import _abi
from metal_marlin._constant import Constant

HEADER = TOP / "include" / "metal_marlin" / "metal_marlin.h"


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table():
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to measure the header with")
    return loaded(TOP / "tests" / "abi" / "abi_table.py").abi_table(HEADER, compiler)


def test_structs(table):
    for struct in table["structs"]:
        declared = getattr(_abi, struct["name"])
        assert (ctypes.sizeof(declared), ctypes.alignment(declared)) == (struct["size"], struct["align"]), struct["name"]
        names = [field["name"] + "_" * keyword.iskeyword(field["name"]) for field in struct["fields"]]
        assert [name for name, _ in declared._fields_] == names
        for name, field in zip(names, struct["fields"]):
            found = getattr(declared, name)
            assert (found.offset, found.size) == (field["offset"], field["size"]), f"{struct['name']}.{name}"


def test_constants(table):
    classes = [each for each in vars(_abi).values() if isinstance(each, type) and issubclass(each, Constant) and each is not Constant]
    named = {}
    for constant in table["constants"]:
        if constant["type"] == "uint32_t":
            assert getattr(_abi, constant["name"]) == constant["value"]
        else:
            named.setdefault(constant["type"], []).append((constant["name"], constant["value"]))
    assert len(classes) == len(named) == len(table["types"])
    for declared, constants in zip(classes, named.values()):
        assert len(declared.__members__) == len(constants)
        for (member, value), (name, pinned) in zip(declared.__members__.items(), constants):
            assert name.endswith(f"_{member}") and value == pinned, f"{name} is {pinned}, {declared.__name__}.{member} is {value}"


def test_functions_and_handles(table):
    assert list(_abi.FUNCTIONS) == [function["name"] for function in table["functions"]]
    for function in table["functions"]:
        prototype = _abi.FUNCTIONS[function["name"]]
        assert len(prototype._argtypes_) == len(function["params"]), function["name"]
        # The interpreter's lock is released during the call.
        assert not prototype._flags_ & 0x4, function["name"]
    for handle in table["handles"]:
        assert issubclass(getattr(_abi, handle["name"]), ctypes.c_void_p)


def test_unknown_values_stay_legal():
    assert _abi.Status(-12) is _abi.Status.SHAPE
    newer = _abi.Format(77)
    assert newer == 77 and newer.name == "UNKNOWN_77" and isinstance(newer, _abi.Format)
    with pytest.raises(ValueError):
        _abi.Format("77")
