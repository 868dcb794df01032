#!/usr/bin/env python3
"""The manifest of a port for vcpkg has the members that vcpkg knows, in the order in which `vcpkg format-manifest` writes them.

    vcpkg_manifest.py PORT VERSION
"""

import json
import pathlib
import re
import sys

# https://learn.microsoft.com/vcpkg/reference/vcpkg-json, in the order of the tool.
MEMBERS = ("name", "version", "port-version", "maintainers", "description", "homepage", "documentation", "license", "supports",
           "dependencies", "default-features", "features")
DEPENDENCY = ("name", "host", "default-features", "features", "platform", "version>=")


def in_order(members, known, where):
    unknown = [member for member in members if member not in known]
    if unknown:
        sys.exit(f"{where}: vcpkg does not know {unknown}")
    if list(members) != [member for member in known if member in members]:
        sys.exit(f"{where}: expected the order {known}, found {list(members)}")


def check_dependencies(dependencies, where):
    names = []
    for dependency in dependencies:
        if isinstance(dependency, dict):
            in_order(dependency, DEPENDENCY, where)
            dependency = dependency["name"]
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", dependency):
            sys.exit(f"{where}: {dependency!r} is not a name of a port")
        names.append(dependency)
    if names != sorted(names):
        sys.exit(f"{where}: expected sorted dependencies, found {names}")


port, version = pathlib.Path(sys.argv[1]), sys.argv[2]
manifest = json.loads((port / "vcpkg.json").read_text())
in_order(manifest, MEMBERS, "vcpkg.json")
if manifest["name"] != port.name:
    sys.exit(f"vcpkg.json: expected the name of its folder, {port.name}, found {manifest['name']}")
if manifest["version"] != version:
    sys.exit(f"vcpkg.json: expected version {version} as in the public header, found {manifest['version']}")
check_dependencies(manifest["dependencies"], "vcpkg.json")
for feature, members in manifest["features"].items():
    in_order(members, ("description", "supports", "dependencies"), f"feature {feature}")
    check_dependencies(members["dependencies"], f"feature {feature}")
