#!/usr/bin/env python3
"""Compares the headers of include/Metal with metal_api.list: whatever they declare, Apple's must declare alike.

    check_headers.py HEADER CLANG [FLAG...]      prints each difference, and how much was compared; status 1 if any

Names, types of results and arguments, values of enums, and that what is newer than OLDEST is marked with the macOS that has it.
"""
import collections
import os
import re
import subprocess
import sys

from make_list import plain

OLDEST = (14, 0)  # what a host may use without asking
HERE = os.path.dirname(os.path.abspath(__file__))
Method = collections.namedtuple("Method", "since types")


def version(text):
    return tuple(int(part) for part in text.split("."))


class Api:
    def __init__(self):
        self.owners = {}  # protocol or class: {"- selector": Method}
        self.enums, self.names, self.structs = {}, {}, {}


def read_list(path):
    api, methods = Api(), None
    for line in open(path):
        kind, _, rest = line.rstrip("\n").partition(" ")
        if kind in ("protocol", "class"):
            methods = api.owners.setdefault(rest.split()[0], {})
        elif kind in ("-", "+"):
            selector, since, types = rest.split(" ", 2)
            methods[kind + " " + selector] = Method(since, types.split(" | "))
        elif kind == "=":
            name, value = rest.split()
            api.enums[name] = int(value)
        elif kind in ("constant", "function"):
            api.names[rest.split()[0]] = rest.split()[1]
        elif kind == "struct":
            name, _, fields = rest.partition(" ")
            api.structs[name] = fields.split(",")
    return api


def dump(compiler, header):
    """`compiler`: clang with the flags that make it read a host as for macOS (macos_flags of CMakeLists.txt)."""
    command = compiler + ["-fno-color-diagnostics", "-Xclang", "-ast-dump", header]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


NODE = re.compile(r"^((?:[|` ] |[|`]-)*)(\w+) 0x[0-9a-f]+ (?:prev 0x[0-9a-f]+ )?(?:<.*?> )?(?:\S*:\d+(?::\d+)? )?(.*)$")
QUOTED = re.compile(r"'([^']*)'")


def first_type(rest):
    # Newer versions of clang print the macro without its arguments.
    return plain(re.sub(r"\bAPI_AVAILABLE\b(\(.*?\)\))? ?", "", QUOTED.search(rest).group(1)))


def read_headers(lines):
    """The declarations of MTL..., from clang's tree."""
    api = Api()
    owner = entry = constant = None
    of_owner, fields = "old", []
    for line in lines:
        match = NODE.match(line)
        if not match:
            value = re.search(r"value: Int (-?\d+)$", line)
            if value and constant:
                api.enums[constant] = int(value.group(1))
                constant = None
            continue
        depth, kind, rest = len(match.group(1)) // 2, match.group(2), match.group(3)
        if kind in ("ObjCProtocolDecl", "ObjCInterfaceDecl") and depth == 1:
            name = rest.split()[-1]
            owner = api.owners.setdefault(name, {}) if name.startswith("MTL") else None
            entry, of_owner = None, "old"
        elif depth == 1 and kind != "LinkageSpecDecl":
            owner = entry = None
        if kind == "ObjCMethodDecl" and owner is not None:
            words = re.sub(r"^(implicit )?(used )?", "", rest).split(" ")
            entry = [of_owner, [first_type(rest)]]
            owner[words[0] + " " + words[1]] = entry
        elif kind == "ParmVarDecl" and entry is not None:
            entry[1].append(first_type(rest))
        elif kind == "AvailabilityAttr" and entry is not None:
            entry[0] = rest.split()[1]
        elif kind == "AvailabilityAttr" and depth == 2 and owner is not None:
            of_owner = rest.split()[1]
        elif kind in ("ObjCPropertyDecl",):
            entry = None
        elif kind == "EnumConstantDecl":
            constant = rest.split(" '")[0].split()[-1]
        elif kind == "CXXRecordDecl" and depth == 1:
            fields = []
        elif kind == "FieldDecl" and depth == 2:
            fields.append(rest.split(" '")[0].split()[-1])
        elif kind == "TypedefDecl" and fields and re.search(r"\bMTL\w+ 'struct MTL", rest):
            api.structs[re.search(r"\b(MTL\w+) '", rest).group(1)] = fields
        elif kind in ("FunctionDecl", "VarDecl") and re.search(r"\bMTL\w+ '", rest):
            api.names[re.search(r"\b(MTL\w+) '", rest).group(1)] = ""
    return api


def compare(ours, apple):
    wrong, compared = [], 0
    for owner, methods in ours.owners.items():
        if owner not in apple.owners:
            wrong.append(f"{owner}: no such protocol or class")
            continue
        for selector, (since, types) in methods.items():
            compared += 1
            theirs = apple.owners[owner].get(selector)
            if theirs is None:
                wrong.append(f"{owner} {selector}: no such method")
                continue
            if types != theirs.types:
                wrong.append(f"{owner} {selector}: types {' | '.join(types)}; Apple's: {' | '.join(theirs.types)}")
            newer = theirs.since != "?" and version(theirs.since) > OLDEST
            if newer and since != theirs.since:
                wrong.append(f"{owner} {selector}: is of macOS {theirs.since} and must say so (API_AVAILABLE), but says {since}")
            if not newer and since != "old":
                wrong.append(f"{owner} {selector}: is of macOS {theirs.since}, but is marked {since}")
    for name, value in ours.enums.items():
        if name.startswith("MTL"):
            compared += 1
            if apple.enums.get(name) != value:
                wrong.append(f"{name} = {value}; Apple's: {apple.enums.get(name)}")
    for name in ours.names:
        compared += 1
        if name not in apple.names:
            wrong.append(f"{name}: no such function or constant")
    for name, fields in ours.structs.items():
        compared += 1
        if apple.structs.get(name) != fields:
            wrong.append(f"struct {name} {fields}; Apple's: {apple.structs.get(name)}")
    return wrong, compared


def main():
    header, compiler = sys.argv[1], sys.argv[2:]
    ours, apple = read_headers(dump(compiler, header)), read_list(os.path.join(HERE, "metal_api.list"))
    wrong, compared = compare(ours, apple)
    print("\n".join(wrong + [f"{compared} declarations of {len(ours.owners)} protocols and classes compared, {len(wrong)} differ"]))
    return 1 if wrong or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
