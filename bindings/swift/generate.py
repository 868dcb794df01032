#!/usr/bin/env python3
"""Writes Sources/MetalMarlin/Constants.swift; bindings/generated.py says how to call it. Swift imports the C header itself: what is
written are the constants under Swift's names.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import generated

IGNORE = "// swift-format-ignore-file"
TYPE_NAMES = {"marlin_dtype": "DType", "marlin_gptq_zero_f": "GPTQZeroF"}
# Sets of bits: the beginnings of their constants' names.
FLAGS = {
    "PackOptions": ("How to pack.", ["MARLIN_PACK_"]),
    "LoadOptions": ("How to load.", ["MARLIN_LOAD_"]),
    "ConversionOptions": ("How to convert.", ["MARLIN_CONVERT_"]),
    "LayerFlags": ("What is special about a layer.", ["MARLIN_LAYER_", "MARLIN_PACK_"]),
}
KEYWORDS = ["default", "internal"]


def camel(words, first_upper=False):
    """GELU_TANH: geluTanh; PRUNE_2_4: prune2of4."""
    name = ""
    for word in words.lower().split("_"):
        if name and name[-1].isdigit() and word[0].isdigit():
            name += "of"
        name += word.capitalize() if name or first_upper else word
    return name


def type_name(name):
    return TYPE_NAMES.get(name) or camel(name.removeprefix("marlin_"), True)


def case_name(constant, prefixes):
    for prefix in [*prefixes, "MARLIN_"]:
        if constant.startswith(prefix):
            return camel(constant.removeprefix(prefix))


def quoted(name):
    return f"`{name}`" if name in KEYWORDS else name


def doc(item, indent, otherwise=""):
    # The head of a section of the header comes with its first constant.
    lines = [line for line in item["doc"].split("\n") if line and "::flags" not in line] or [otherwise] * bool(otherwise)
    return [indent + "/// " + re.sub("^([a-z]{2,}|a)(?=[ :,])", lambda word: word.group().capitalize(), line) for line in lines]


def constants_of(table, type_):
    return [item for item in table["constants"] if item["type"] == type_]


def open_enum(table, type_):
    name, raw = type_name(type_["name"]), type_["name"]
    cases = [(camel(generated.short_name(item)), item) for item in constants_of(table, raw)]
    yield from doc(type_, "", f"`{raw}` of the header. Values that this version does not know stay legal to hold.")
    yield f"public struct {name}: RawRepresentable, Hashable, Sendable, CustomStringConvertible {{"
    yield from ["  public let rawValue: Int32", "  public init(rawValue: Int32) { self.rawValue = rawValue }", ""]
    for case, item in cases:
        yield from doc(item, "  ")
        yield f"  public static let {quoted(case)} = {name}(rawValue: {item['name']})"
    # Errors are looked up by the header's names, all else by those of this package.
    of_header = raw == "marlin_status"
    about = "The header's name." if of_header else f"Its name here, as \"{cases[-1][0]}\"."
    yield from ["", f"  /// {about}"]
    yield f'  public var description: String {{ Self.names[rawValue] ?? "{raw}(\\(rawValue))" }}'
    yield "  private static let names: [Int32: String] = ["
    yield from generated.filled([f'{item["name"]}: "{item["name"] if of_header else case}"' for case, item in cases], "    ")
    yield from ["  ]", "}", ""]


def flags(table, name, about, prefixes):
    yield from [f"/// {about}", f"public struct {name}: OptionSet, Hashable, Sendable {{", "  public let rawValue: UInt32"]
    yield from ["  public init(rawValue: UInt32) { self.rawValue = rawValue }", ""]
    for item in constants_of(table, "uint32_t"):
        if any(item["name"].startswith(prefix) for prefix in prefixes):
            yield from doc(item, "  ")
            yield f"  public static let {case_name(item['name'], prefixes)} = {name}(rawValue: {item['name']})"
    yield from ["}", ""]


def constants(table):
    yield from [IGNORE, "internal import CMetalMarlin", ""]
    for type_ in table["types"]:
        yield from open_enum(table, type_)
    for name, (about, prefixes) in FLAGS.items():
        yield from flags(table, name, about, prefixes)


if __name__ == "__main__":
    generated.main(pathlib.Path(__file__).resolve().parent, "//", {"Sources/MetalMarlin/Constants.swift": constants})
