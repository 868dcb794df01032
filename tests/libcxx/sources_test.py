#!/usr/bin/env python3
"""Reads every source, and every header alone, with clang and libc++, whose headers include less of
each other than those of libstdc++. Missing #include lines and warnings of clang show themselves on
Linux so, and not first on macOS.

    sources_test.py [FOLDER]

With a folder it reads what is in this one alone. Prints "passed FILE (processor)", "FAILED FILE (processor): why" and "skipped WHAT: why". The exit
status is 1 where something failed.

Most of the time would go into reading the same headers again, so they are precompiled. A file gets
a precompiled header only if the file itself includes all that is in it, near or far, and every
header is read by itself: no missing #include can hide.

The short form reads every header alone, and the sources of a folder as one, as the build does. An
#include that is missing in a source alone can hide there behind another source's. The long form
(METAL_MARLIN_WHOLE) reads each source alone.
"""
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDED_FROM = ["include", "src", ".", "tools"]
WARNINGS = ["-Werror", "-Wall", "-Wextra"]
# The first definition has libc++ include as little as its later versions do. The second leaves
# <cfloat> empty: on macOS the libc++ of LLVM 21 finds it so once <math.h> has been read.
FLAGS = ["-std=c++20", "-stdlib=libc++", "-D_LIBCPP_REMOVE_TRANSITIVE_INCLUDES",
         "-D_LIBCPP_FLOAT_H", *WARNINGS, *(f"-I{folder}" for folder in INCLUDED_FROM)]
STRICT = ["-Wconversion", "-Wno-sign-conversion"]
# A file gets the first of these of which it includes every header.
PRECOMPILED = [
    ["<CLI/CLI.hpp>", "<nlohmann/json.hpp>"],
    ["<CLI/CLI.hpp>"],
    ["src/checkpoints/checkpoint.h", "<nlohmann/json.hpp>"],
    ["<nlohmann/json.hpp>"],
    ["include/metal_marlin/metal_marlin.hpp"],
    ["examples/llm/model.h"],
    ["examples/llm/architecture.h"],
    ["src/layouts/encoder.h"],
    ["src/checkpoints/checkpoint.h"],
    ["src/backends/cpu/kernels.h", "src/backends/cpu/x86/intrinsics.h"],
    ["src/backends/cpu/kernels.h"],
    ["src/core/backend.h"],
    ["src/formats/weights.h"],
    ["<fmt/core.h>", "tools/command.h"],
    ["tools/command.h"],
    ["src/base/status.h", "<filesystem>"],
    ["src/base/status.h"],
    ["<filesystem>"],
    ["<functional>"],
    ["<algorithm>", "<string>"],
    ["<string>", "<vector>"],
    ["<string>"],
    ["<vector>"],
]
FOLDERS = sys.argv[1:] or ["include", "src", "tools", "examples", "shaders/common"]
PROCESSORS = ["x86_64", "aarch64"]
# The headers of C for arm64, where no cross compiler shows clang the way to them. They come last,
# since libc++ wraps them.
C_HEADERS = {"aarch64": ["-idirafter", "/usr/aarch64-linux-gnu/include"], "x86_64": []}
WHOLE = bool(os.environ.get("METAL_MARLIN_WHOLE"))
# Sources that the short form reads alone, too. Kernels, what is of one processor, programs and two
# more define names of others again, and one completes a type for its header.
APART = re.compile(r"/x86/|/arm64/|_x86|_arm|^examples/[^/]*$|^tools/reference\.cc$"
                   r"|^src/backends/cpu/plan\.cc$|^src/api/stream\.cc$")
INCLUDE = re.compile(r'^\s*#\s*(?:include|import)\s+(["<])([^">]+)[">]', re.MULTILINE)


def is_read_with_others(name):
    return name.endswith(".cc") and not APART.search(name) and not WHOLE


class Sources:
    """The files, and what each of them includes."""

    def __init__(self):
        self.texts = {}
        self.closures = {}

    def text(self, path):
        if path not in self.texts:
            self.texts[path] = (ROOT / path).read_text()
        return self.texts[path]

    def includes(self, path):
        """In order: paths of this project, and "<name>" of others."""
        found = []
        for quote, name in INCLUDE.findall(self.text(path)):
            folders = [str(pathlib.PurePath(path).parent)] if quote == '"' else []
            places = [os.path.join(folder, name) for folder in folders + INCLUDED_FROM]
            ours = (os.path.normpath(place) for place in places if (ROOT / place).is_file())
            found.append(next(ours, f"<{name}>"))
        return found

    def closure(self, path):
        """The file and all that it includes, however far away."""
        if path.startswith("<"):
            return {path}
        if path not in self.closures:
            self.closures[path] = {path}.union(*map(self.closure, self.includes(path)))
        return self.closures[path]

    def mentions(self, path, pattern):
        ours = (at for at in self.closure(path) if not at.startswith("<"))
        return any(re.search(pattern, self.text(at)) for at in ours)

    def own_header(self, path):
        """The header that a source includes before all else, so that both can be read at once.
        Where the source includes a library that costs much to read, both are read apart: the
        library would be precompiled, and help the header along."""
        first = next(iter(self.includes(path)), "")
        if any(name.startswith("<") and "/" in name for name in self.includes(path)):
            return None
        return first if first == str(pathlib.PurePath(path).with_suffix(".h")) else None

    def names(self):
        """All that is read."""
        paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")
                       if path.suffix in {".cc", ".h", ".hpp"})
        names = [str(path.relative_to(ROOT)) for path in paths]
        # What includes Apple's or Windows' headers is for another system, and MPI is not always there.
        return [name for name in names if not self.mentions(name, r"#\s*import\s+<")
                and self.closure(name).isdisjoint({"<mpi.h>", "<windows.h>"})]

    def groups(self):
        """The sources that the short form reads as one, by folder and processor."""
        found = collections.defaultdict(list)
        for name in self.names():
            if is_read_with_others(name):
                for processor in self.processors(name):
                    found[str(pathlib.PurePath(name).parent), processor].append(name)
        return found

    def units(self):
        """All that is read apart: each source that is not read with others, and each header but
        those that such a source shows to stand alone. With each of them the file that says which
        precompiled headers fit."""
        names = [name for name in self.names() if not is_read_with_others(name)]
        own = {name: self.own_header(name) for name in names if name.endswith(".cc")}
        return {name: own.get(name) or name for name in names if name not in own.values()}

    def processors(self, path):
        """Those that the file has to be read for: one of them if it depends on none."""
        if re.search(r"/arm64/|_arm", path):
            return ["aarch64"]
        if re.search(r"/x86/|_x86", path) or not self.mentions(path, r"__aarch64__|arm_neon"):
            return ["x86_64"]
        return ["x86_64", "aarch64"]


def run(compiler, processor, arguments):
    """What the compiler says against it."""
    command = [compiler, f"--target={processor}-linux-gnu", *FLAGS, *C_HEADERS[processor], *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return ran.stderr or (f"exit status {ran.returncode}" if ran.returncode else "")


def fitting(closure):
    return next((tuple(names) for names in PRECOMPILED if closure.issuperset(names)), None)


def precompile(compiler, processor, names, at):
    lines = (name if name.startswith("<") else f'"{name}"' for name in names)
    header = at.with_suffix(".h")
    header.write_text("".join(f"#include {line}\n" for line in lines))
    arguments = ["-fpch-instantiate-templates", "-x", "c++-header", str(header), "-o", str(at)]
    return run(compiler, processor, arguments)


def strict_for(path):
    return STRICT if path.startswith(("src/", "tools/")) else []


def read(compiler, processor, path, precompiled):
    arguments = ["-fsyntax-only", *(["-include-pch", str(precompiled)] if precompiled else []),
                 *strict_for(path)]
    arguments += [path] if path.endswith(".cc") else ["-include", path, "-x", "c++", os.devnull]
    return run(compiler, processor, arguments)


def read_as_one(compiler, processor, names, at):
    at.write_text("".join(f'#include "{name}"\n' for name in names))
    return run(compiler, processor, ["-fsyntax-only", *strict_for(names[0]), str(at)])


def read_text(compiler, processor, folder, text):
    source = folder / "text.cc"
    source.write_text(text)
    return run(compiler, processor, ["-fsyntax-only", str(source)])


def main():
    compiler = shutil.which("clang++-19")
    if not compiler:
        print("skipped all: there is no clang++-19")
        return 0
    sources = Sources()
    units = sources.units()
    failed = False
    threads = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    with tempfile.TemporaryDirectory() as name, threads as pool:
        folder = pathlib.Path(name)
        use = "float most = std::numeric_limits<float>::max();\n"
        there = [processor for processor in PROCESSORS
                 if not read_text(compiler, processor, folder, f"#include <limits>\n{use}")]
        for processor in PROCESSORS:
            if processor not in there:
                print(f"skipped {processor}: {compiler} has no libc++ or no C library for it")
            elif not read_text(compiler, processor, folder, f"#include <cstdint>\n{use}"):
                print(f"FAILED {processor}: a missing <limits> goes unseen")
                failed = True
        jobs = [(path, processor, fitting(sources.closure(decides)))
                for path, decides in units.items()
                for processor in sources.processors(path) if processor in there]
        wanted = collections.Counter((processor, names) for _, processor, names in jobs if names)
        headers = {}
        for number, ((processor, names), files) in enumerate(wanted.items()):
            if files > 1:
                at = folder / f"{number}.pch"
                said = pool.submit(precompile, compiler, processor, names, at)
                headers[processor, names] = at, said
        # A header that does not compile fails where it is read alone.
        ready = {key: at for key, (at, said) in headers.items() if not said.result()}
        results = [(f"all sources of {place}", processor,
                    pool.submit(read_as_one, compiler, processor, files, folder / f"{number}.cc"))
                   for number, ((place, processor), files) in enumerate(sources.groups().items())
                   if processor in there]
        results += [(path, processor,
                     pool.submit(read, compiler, processor, path, ready.get((processor, names))))
                    for path, processor, names in jobs]
        for path, processor, result in results:
            said = result.result()
            if said:
                first = next((line for line in said.splitlines() if "error: " in line), "")
                print(f"FAILED {path} ({processor}): {first}\n{said}")
                failed = True
            else:
                print(f"passed {path} ({processor})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
