#!/usr/bin/env python3
"""Writes metal_api.list: what Apple's Metal declares, for tests of headers and hosts where that is not at hand.

    pip download --no-deps --no-binary :all: pyobjc-framework-Metal==VERSION     (it ends with an error; the archive is fetched)
    python3 make_list.py pyobjc_framework_metal-VERSION.tar.gz > metal_api.list
    python3 make_list.py pyobjc_framework_cocoa-VERSION.tar.gz > foundation_api.list      (pyobjc-framework-Cocoa)

The package describes the headers of a macOS SDK: selectors, types and the macOS that introduced them. It has no availability of
single enum constants, so neither has the list. The lists have what our headers and tests/macos/apple.symbols name: make them anew
after a change of these. Of Foundation there are only the names that a linker sees: classes, constants and functions.
"""
import json
import pathlib
import re
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent


def words():
    """All that our headers and the library's list of symbols name."""
    paths = [*HERE.parent.glob("include/*/*.h"), HERE.parents[2] / "macos/apple.symbols"]
    names = set(re.findall(r"[A-Za-z]\w+", "\n".join(path.read_text() for path in paths).replace("OBJC_CLASS_$_", "")))
    return names | {"set" + name[0].upper() + name[1:] for name in names}


def wanted(lines):
    """The lines of these words; a method only of a protocol or class of them."""
    names, kept, is_owner = words(), [], False
    for line in lines:
        kind, _, rest = line.partition(" ")
        name = re.match(r"\w*", rest).group()
        if kind in ("protocol", "class"):
            is_owner = name in names
        if kind == "#" or (name in names and (is_owner or kind not in "+-")):
            kept.append(line)
    return kept


def described(archive):
    with tarfile.open(archive) as files:
        name = next(n for n in files.getnames() if re.search(r"metadata/raw(\.Foundation)?/arm64-[0-9.]+\.fwinfo$", n))
        text = files.extractfile(name).read().decode()
    return json.loads(text[text.index("\n{\n") :])


def plain(type_name):
    """The type without what says only who owns it and whether it may be nil."""
    text = re.sub(r"\b_(Nullable|Nonnull|Null_unspecified)\b|\b__(strong|autoreleasing|unsafe_unretained)\b", "", type_name)
    text = re.sub(r"\[\]", "*", re.sub(r"\s+", " ", text))
    return re.sub(r" ?([*<>,()^]) ?", r"\1", text).strip()


def method(entry):
    # The package leaves out what it cannot translate: an argument without a type is unknown ("?").
    types = [entry["retval"].get("type_name", "?")] + [a.get("type_name", "?") for a in entry["args"]]
    sign = "+" if entry["class_method"] else "-"
    return f"{sign} {entry['selector']} {entry.get('introduced', '?')} " + " | ".join(plain(t) for t in types)


def foundation(info, version):
    all_of = info["definitions"]
    lines = [
        f"# Foundation of {info['sdk'].rsplit('/', 1)[-1]}, as pyobjc-framework-Cocoa {version} of PyPI describes it. Made by make_list.py.",
        "# class, constant, function: NAME and first macOS",
    ]
    for kind, key in (("class", "classes"), ("constant", "externs"), ("function", "functions")):
        lines += [f"{kind} {name} {entry.get('introduced', '?')}" for name, entry in sorted(all_of[key].items())]
    print("\n".join(wanted(lines)))


def main():
    archive = sys.argv[1]
    info = described(archive)
    all_of = info["definitions"]
    framework, version = re.search(r"(metal|cocoa)-([0-9.]+)\.tar", archive).groups()
    if framework == "cocoa":
        foundation(info, version)
        return
    lines = [
        f"# Metal of {info['sdk'].rsplit('/', 1)[-1]}, as pyobjc-framework-Metal {version} of PyPI describes it. Made by make_list.py.",
        "# protocol NAME [inherited], class NAME SUPER, then methods: selector, first macOS, types of result and arguments",
        "# =: a constant of an enum and its value; constant, function: first macOS and type; struct: fields",
    ]
    for name, entry in sorted(all_of["formal_protocols"].items()):
        lines.append(" ".join(["protocol", name] + [p for p in entry["implements"] if p.startswith("MTL")]))
        lines += sorted({method(m) for m in entry["methods"]})
    for name, entry in sorted(all_of["classes"].items()):
        lines.append(f"class {name} {entry.get('super', 'NSObject')}")
        lines += sorted({method(m) for m in entry["methods"]})
    lines += [f"= {name} {entry['value']}" for name, entry in sorted(all_of["enum"].items())]
    for name, entry in sorted(all_of["externs"].items()):
        lines.append(f"constant {name} {entry.get('introduced', '?')} {plain(entry['type_name'])}")
    for name, entry in sorted(all_of["functions"].items()):
        lines.append(f"function {name} {entry.get('introduced', '?')}")
    for name, entry in sorted(all_of["structs"].items()):
        lines.append(f"struct {name} {','.join(entry['fieldnames'])}")
    print("\n".join(wanted(lines)))


if __name__ == "__main__":
    main()
