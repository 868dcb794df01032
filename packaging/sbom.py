#!/usr/bin/env python3
"""Prints what is inside a release, as SPDX 2.3 in JSON.

    sbom.py SOURCES FILES

SOURCES is the unpacked source and FILES a folder of files made of it; the SBOM names each with its checksum, and what of others
is compiled into them. The time is SOURCE_DATE_EPOCH.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import sys

# Whose code is in the files: a header that tells the version of what was compiled in, and the files that have it.
OTHERS = {
    "nlohmann-json": ("/usr/include/nlohmann/detail/abi_macros.hpp", r"NLOHMANN_JSON_VERSION_\w+ (\d+)", "MIT", r"lib|\.whl|xcframework"),
    "CLI11": ("/usr/include/CLI/Version.hpp", r"CLI11_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", "BSD-3-Clause", r"^metal-marlin_.*\.deb"),
    "libc++ of ziglang": ("packaging/requirements/zig.txt", r"==(\S+)", "Apache-2.0 WITH LLVM-exception", r"linux.*\.whl"),
}


def package(name, version, license, **more):
    identity = "SPDXRef-" + re.sub("[^A-Za-z0-9.]", "-", name)
    return {"SPDXID": identity, "name": name, "versionInfo": version, "licenseConcluded": license, "licenseDeclared": license,
            "downloadLocation": "NOASSERTION", "copyrightText": "NOASSERTION", "filesAnalyzed": False, **more}


def relation(whole, kind, part):
    return {"spdxElementId": whole["SPDXID"], "relationshipType": kind, "relatedSpdxElement": part["SPDXID"]}


def main(sources, files):
    header = (sources / "include/metal_marlin/metal_marlin.h").read_text()
    version = ".".join(re.findall(r"VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)[:3])
    top, made, relations = package("metal-marlin", version, "Apache-2.0"), [], []
    for file in sorted(files.iterdir()):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        made.append(package(file.name, version, "Apache-2.0", packageFileName=file.name,
                            checksums=[{"algorithm": "SHA256", "checksumValue": digest}]))
        relations.append(relation(made[-1], "GENERATED_FROM", top))
    others = []
    for name, (told, pattern, license, inside) in OTHERS.items():
        holders = [each for each in made if re.search(inside, each["name"])]
        if holders:
            others.append(package(name, ".".join(re.findall(pattern, (sources / told).read_text())[:3]), license))
            relations += [relation(each, "CONTAINS", others[-1]) for each in holders]
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    content = hashlib.sha256(json.dumps([made, others]).encode()).hexdigest()
    document = {"SPDXID": "SPDXRef-DOCUMENT", "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "name": f"metal-marlin-{version}",
                "documentNamespace": f"https://metal-marlin.invalid/spdx/{version}/{content}",
                "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: metal-marlin packaging/sbom.py"]},
                "packages": [top, *made, *others],
                "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                                   "relatedSpdxElement": top["SPDXID"]}, *relations]}
    print(json.dumps(document, indent=1))


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
