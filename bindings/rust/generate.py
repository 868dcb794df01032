#!/usr/bin/env python3
"""Writes metal-marlin-sys/src/bindings.rs and its tests/layout/table.rs; bindings/generated.py says how to call it."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import generated

NAMES = {"int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "size_t": "usize", "double": "f64"}
NAMES.update({"char": "c_char", "void": "c_void"})


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
    yield from doc(item)
    yield from ["#[repr(C)]", "#[derive(Clone, Copy, Debug)]", f"pub struct {item['name']} {{"]
    for field in item["fields"]:
        yield from doc(field, "    ")
        type_ = rust_type(field["type"], nullable)
        yield f"    pub {field['name']}: " + (f"[{type_}; {field['array']}]" if "array" in field else type_) + ","
    yield "}"
    if nullable:
        sized = item["fields"][0]["name"] == "struct_size"
        yield f"impl Default for {item['name']} {{"
        yield "    /// All zero" + (" but `struct_size`." if sized else ".")
        yield "    fn default() -> Self {"
        yield "        // SAFETY: zero is a value of every field: integers, floats, nullable pointers and functions."
        yield f"        let {'mut ' * sized}all: Self = unsafe {{ core::mem::zeroed() }};"
        if sized:
            yield "        all.struct_size = core::mem::size_of::<Self>() as u32;"
        yield from ["        all", "    }", "}"]


def bindings(table):
    yield from ["use core::ffi::c_void;", "use core::marker::{PhantomData, PhantomPinned};", "use std::os::raw::c_char;", ""]
    for item in table["handles"]:
        yield from doc(item)
        yield from ["#[repr(C)]", f"pub struct {item['name']} {{", "    _bytes: [u8; 0],"]
        yield from ["    _not_send_nor_sync: PhantomData<(*mut u8, PhantomPinned)>,", "}"]
    for item in table["types"]:
        yield from doc(item)
        yield f"pub type {item['name']} = i32;"
    yield ""
    for item in table["constants"]:
        yield from doc(item)
        yield f"pub const {item['name']}: {NAMES.get(item['type'], item['type'])} = {item['value']};"
    for item in table["structs"]:
        yield ""
        yield from struct(item)
    yield from ["", '#[cfg(feature = "link")]', 'extern "C" {']
    for item in table["functions"]:
        yield from doc(item, "    ")
        yield f"    pub fn {item['name']}{signature(item)};"
    yield "}"


def layout_table(table):
    yield from ["use metal_marlin_sys::*;", ""]
    for item in table["structs"]:
        fields = ", ".join(f"({f['name']}, {f['offset']}, {f['size']})" for f in item["fields"])
        yield f"layout!({item['name']}, {item['size']}, {item['align']}, {fields});"
    yield from ["", "#[test]", "fn constants() {"]
    for item in table["constants"]:
        yield f"    let value: {NAMES.get(item['type'], item['type'])} = {item['name']};"
        yield f"    assert_eq!(value, {item['value']});"
    yield from ["}", "", '#[cfg(feature = "link")]', "#[test]", "fn functions() {", "    let linked = ["]
    yield from [f"        {item['name']} as *const ()," for item in table["functions"]]
    yield from ["    ];", "    assert!(linked.iter().all(|function| !function.is_null()));", "}"]


if __name__ == "__main__":
    files = {"metal-marlin-sys/src/bindings.rs": bindings, "metal-marlin-sys/tests/layout/table.rs": layout_table}
    generated.main(pathlib.Path(__file__).resolve().parent, "//", files)
