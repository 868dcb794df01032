"""The declarations against the table of the C ABI, which a compiled program measured."""

from __future__ import annotations

import ctypes
import importlib.util
import keyword
import shutil

import pytest
from conftest import TOP
from metal_marlin import _abi

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


def test_calls_release_the_lock_of_the_interpreter():
    assert not any(prototype._flags_ & 0x4 for prototype in _abi.FUNCTIONS.values())


def test_unknown_values_stay_legal():
    assert _abi.Status(-12) is _abi.Status.SHAPE
    newer = _abi.Format(77)
    assert newer == 77 and newer.name == "UNKNOWN_77" and isinstance(newer, _abi.Format)
    with pytest.raises(ValueError):
        _abi.Format("77")
