#!/usr/bin/env python3
"""Writes metal_marlin/_abi.py; bindings/generated.py says how to call it."""

import keyword
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import generated

NAMES = {"int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64", "size_t": "c_size_t"}
NAMES.update({"float": "c_float", "double": "c_double", "char": "c_char"})


def ctype(type_, table):
    if "function" in type_:
        function = type_["function"]
        types = [function["returns"], *(param["type"] for param in function["params"])]
        return f"CFUNCTYPE({', '.join(ctype(each, table) for each in types)})"
    base, pointers = type_["base"], list(type_["pointers"])
    if base == "void" and not pointers:
        return "None"
    if base == "void" or base in {item["name"] for item in table["handles"]}:
        text = "c_void_p" if base == "void" else base
        pointers.pop(0)
    elif base == "char" and pointers and pointers[0] == "const":
        text = "c_char_p"
        pointers.pop(0)
    else:
        text = "c_int32" if base in {item["name"] for item in table["types"]} else NAMES.get(base, base)
    for _ in pointers:
        text = f"POINTER({text})"
    return text


def field_name(field):
    return field["name"] + "_" * keyword.iskeyword(field["name"])


def comment(item, indent=""):
    return [f"{indent}# {line}" for line in item["doc"].split("\n") if line]


def told(line, item, indent=""):
    """A line of code with its comment, which stands behind it where there is room."""
    text = item["doc"]
    short = f"{line}  # {text}"
    if text and "\n" not in text and len(short) <= 130:
        return [short]
    return [*comment(item, indent), line]


def class_name(type_name):
    return "DType" if type_name == "marlin_dtype" else generated.class_name(type_name)


def handles(table):
    for item in table["handles"]:
        yield from ["", "", f"class {item['name']}(c_void_p):", f'    """{item["doc"]}."""']


def constants(table):
    for item in table["constants"]:
        if item["type"] == "uint32_t":
            yield from told(f"{item['name']} = {item['value']}", item)
    for kind in table["types"]:
        yield from ["", "", *comment(kind), f"class {class_name(kind['name'])}(Constant):"]
        for item in table["constants"]:
            if item["type"] == kind["name"]:
                yield from told(f"    {generated.short_name(item)} = {item['value']}", item, "    ")


def structs(table):
    for struct in table["structs"]:
        is_api = struct["name"] == "marlin_api"
        rows, members = [], []
        for field in struct["fields"]:
            if is_api and "function" in field["type"]:
                members.append(f'"{field["name"]}"')
                continue
            text = ctype(field["type"], table)
            text += f" * {field['array']}" if "array" in field else ""
            rows.append(f'("{field_name(field)}", {text})')
        if is_api:
            yield from functions(table, members, rows)
        else:
            yield from ["", "", f"class {struct['name']}(Structure):", "    _fields_ = (", *generated.filled(rows, "        "), "    )"]


def functions(table, members, rows):
    yield from ["", "", "class marlin_api(Structure):", '    """The table of functions."""']
    yield from ["", "", "# A handle among the parameters is a pointer to it.", "FUNCTIONS = {"]
    for function in table["functions"]:
        yield f'    "{function["name"]}": {ctype({"function": function}, table)},'
    yield from ["}", "MEMBERS = (", *generated.filled(members, "    "), ")"]
    yield from ["marlin_api._fields_ = (", *generated.filled(rows, "    ")]
    yield from ['    *((name, FUNCTIONS["marlin_" + name]) for name in MEMBERS),', ")"]


def abi(table):
    yield from ["from __future__ import annotations", "", "from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p"]
    yield "from ctypes import c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p"
    yield from ["", "from ._constant import Constant", ""]
    yield from constants(table)
    yield from handles(table)
    yield from structs(table)


if __name__ == "__main__":
    generated.main(pathlib.Path(__file__).resolve().parent, "#", {"metal_marlin/_abi.py": abi})
