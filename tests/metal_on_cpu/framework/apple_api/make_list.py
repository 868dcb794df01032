#!/usr/bin/env python3
"""Writes metal_api.list: what Apple's Metal declares, for tests of headers and hosts where that is not at hand.

    pip download --no-deps --no-binary :all: pyobjc-framework-Metal==VERSION     (it ends with an error; the archive is fetched)
    python3 make_list.py pyobjc_framework_metal-VERSION.tar.gz > metal_api.list
    python3 make_list.py pyobjc_framework_cocoa-VERSION.tar.gz > foundation_api.list      (pyobjc-framework-Cocoa)

The package describes the headers of a macOS SDK: selectors, types and the macOS that introduced them. It has no availability of
single enum constants, so neither has the list. All protocols are in it; of classes and enums, those that compute has to do with. Of Foundation
there are only the names that a linker sees: classes, constants and functions.
"""
import json
import re
import sys
import tarfile

GRAPHICS = re.compile(
    "Acceleration|Attribute|Blend|Color|Cull|Curve|Depth|Filter|Format|Indirect|Intersection|IO|MTL4|Mesh|Motion|Multisample"
    "|Patch|Primitive|Raster|Render|Sampler|Sparse|Stage|Stencil|Stitch|StoreAction|Tensor|Tessellation|Texture|Tile|Vertex|Visib"
)


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
    print("\n".join(lines))


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
        "# enum NAME, then constants and values; constant, function: first macOS and type; struct: fields",
    ]
    for name, entry in sorted(all_of["formal_protocols"].items()):
        lines.append(" ".join(["protocol", name] + [p for p in entry["implements"] if p.startswith("MTL")]))
        lines += sorted({method(m) for m in entry["methods"]})
    for name, entry in sorted(all_of["classes"].items()):
        if GRAPHICS.search(name):
            continue
        lines.append(f"class {name} {entry.get('super', 'NSObject')}")
        lines += sorted({method(m) for m in entry["methods"]})
    for name in sorted(all_of["enum_type"]):
        if GRAPHICS.search(name):
            continue
        lines.append(f"enum {name}")
        lines += [f"= {k} {v['value']}" for k, v in sorted(all_of["enum"].items()) if v.get("enum") == name]
    for name, entry in sorted(all_of["externs"].items()):
        lines.append(f"constant {name} {entry.get('introduced', '?')} {plain(entry['type_name'])}")
    for name, entry in sorted(all_of["functions"].items()):
        lines.append(f"function {name} {entry.get('introduced', '?')}")
    for name, entry in sorted(all_of["structs"].items()):
        if GRAPHICS.search(name):
            continue
        lines.append(f"struct {name} {','.join(entry['fieldnames'])}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
