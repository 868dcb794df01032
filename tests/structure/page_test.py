#!/usr/bin/env python3
"""docs/adding-a-format.md, followed to the letter: its blocks are applied to a copy of the sources, and what comes out is built and run. Only the
files that the page changes are compiled; the rest comes from the library that is there.

    page_test.py COMPILER ARCHIVE
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]


def apply(block, path):
    """Replaces the lines with " " and "-" by those with " " and "+". They must stand in the file, in one place."""
    lines = [line or " " for line in block.splitlines()]
    before, after = ("".join(f"{line[1:]}\n" for line in lines if line[0] != kind) for kind in "+-")
    text = path.read_text()
    if text.count(before) != 1:
        sys.exit(f"{path} has these lines in {text.count(before)} places:\n{before}")
    path.write_text(text.replace(before, after))


def folders_as_one(copy, sources):
    """The sources without those of the folders that the library may compile as one: in the place of each such folder, one source that
    includes all of it. Else the archive would have the functions of the changed file a second time."""
    for source in sources:
        if source.parent == copy / "src/backends/cpu":
            yield source
    for folder in {source.parent for source in sources} - {copy / "src/backends/cpu"}:
        whole = copy / f"{folder.name}_as_one.cc"
        whole.write_text("".join(f'#include "{each}"\n' for each in folder.glob("*.cc")))
        yield whole


def follow(copy, compiler, archive):
    for folder in ("include", "src"):
        shutil.copytree(TOP / folder, copy / folder)
    sources, program = set(), None
    page = (TOP / "docs/adding-a-format.md").read_text()
    for language, first, rest in re.findall(r"^```(\w*)\n(.*)\n((?:.*\n)*?)```$", page, re.M):
        if language == "diff":
            path = copy / first.removeprefix("+++ ")
            apply(rest, path)
            if path.suffix == ".cc":
                sources.add(path)
            if path.match("cpu/kernels.inc"):  # the number of rows is compiled into the plan, too
                sources.add(copy / "src/backends/cpu/plan.cc")
            if path.name == "code_kind.h":  # the kind of a format's codes, too
                sources.add(copy / "src/backends/cpu/kernels.cc")
        if language == "cpp":
            program = copy / first.removeprefix("// ")
            program.write_text(rest)
    assert program and len(sources) >= 2, (program, sources)
    subprocess.run([compiler, "-std=c++20", "-O1", "-pthread", f"-I{copy}/include", f"-I{copy}/src", *folders_as_one(copy, sources), program,
                    archive, "-o", copy / "run"], check=True)
    subprocess.run([copy / "run"], check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        follow(pathlib.Path(scratch), *sys.argv[1:])
