#!/usr/bin/env python3
"""Writes metal-marlin-sys/src/bindings.rs; bindings/generated.py says how to call it."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import generated

NAMES = {"int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "size_t": "usize", "double": "f64"}
NAMES.update({"float": "f32", "char": "c_char", "void": "c_void"})


def rust_type(type_, nullable=True):
    if "function" in type_:
        pointer = "unsafe extern \"C\" fn" + signature(type_["function"], nullable)
        return f"Option<{pointer}>" if nullable else pointer
    name = NAMES.get(type_["base"], type_["base"])
    for pointee in type_["pointers"]:
        name = f"*{pointee} {name}"
    return name


def signature(function, named=True):
    params = [(p["name"] + ": " if named and p["name"] else "") + rust_type(p["type"]) for p in function["params"]]
    nothing = function["returns"] == {"base": "void", "pointers": []}
    return f"({', '.join(params)})" + ("" if nothing else " -> " + rust_type(function["returns"]))


def doc(item, indent=""):
    text = item["doc"]
    for mark in "\\[]*<>":
        text = text.replace(mark, "\\" + mark)
    return [f"{indent}/// {line}" for line in text.split("\n") if line]


def struct(item):
    # The members of the table of functions are never NULL.
    nullable = item["name"] != "marlin_api"
    yield from doc(item, "    ")
    yield f"    {item['name']} {{"
    for field in item["fields"]:
        yield from doc(field, "        ")
        type_ = rust_type(field["type"], nullable)
        yield f"        {field['name']}: " + (f"[{type_}; {field['array']}]" if "array" in field else type_) + ","
    yield "    }"


def constants(table):
    yield "/// Gives all constants of types to a macro: this crate's, which declares them, and that of `metal-marlin`, which makes types."
    yield from ["#[doc(hidden)]", "#[macro_export]", "macro_rules! marlin_constants {", "    ($declare:ident) => {"]
    yield "        $declare! {"
    for kind in table["types"]:
        raw = kind["name"]
        yield from doc(kind, "            ")
        yield f"            {generated.class_name(raw)}: {raw} {{"
        for item in table["constants"]:
            if item["type"] == raw:
                yield from doc(item, "                ")
                yield f"                {generated.short_name(item)} = {item['name']} = {item['value']},"
        yield "            }"
    yield from ["        }", "    };", "}", "marlin_constants!(declare);"]


def bindings(table):
    yield from ["use core::ffi::c_void;", "use std::os::raw::c_char;", ""]
    yield "handles! {"
    for item in table["handles"]:
        yield from doc(item, "    ")
        yield f"    {item['name']}"
    yield from ["}", ""]
    for item in table["constants"]:
        if item["type"] == "uint32_t":
            yield from doc(item)
            yield f"pub const {item['name']}: u32 = {item['value']};"
    yield from constants(table)
    yield from ["", "structs! {"]
    for item in table["structs"]:
        yield from struct(item)
    yield from ["}", "", '#[cfg(feature = "link")]', 'extern "C" {']
    for item in table["functions"]:
        yield from doc(item, "    ")
        yield f"    pub fn {item['name']}{signature(item)};"
    yield "}"
    yield from layouts(table)


def layouts(table):
    yield from ["", "#[cfg(test)]", "layouts! {"]
    for item in table["structs"]:
        fields = ", ".join(f"{f['name']} {f['offset']}" for f in item["fields"])
        yield f"    {item['name']} {item['size']} {item['align']}: {fields};"
    yield "}"


if __name__ == "__main__":
    generated.main(pathlib.Path(__file__).resolve().parent, "//", {"metal-marlin-sys/src/bindings.rs": bindings})
