"""Rules about the source tree. Each takes the root of a tree and gives one line for each breach: "file:line: what is wrong".

structure_test.py applies them.
"""

import functools
import os
import pathlib
import re

MAX_LINES, MAX_WIDTH, MAX_FUNCTION_LINES = 500, 100, 60
CODE = {".h", ".hpp", ".c", ".cc", ".inc", ".mm", ".metal", ".cu", ".cuh"}
TEXT = CODE | {".txt", ".cmake", ".in", ".sh", ".md", ".json", ".1", ".map", ".py", ".rs", ".swift", ".toml", ""}
FOLDERS = ["include", "src", "shaders", "tools", "examples", "bindings", "tests"]
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]


class File:
    def __init__(self, root, path):
        self.path, self.text = path.relative_to(root), text_of(str(path))
        self.lines = self.text.removesuffix("\n").split("\n") if self.text else []

    def at(self, line, what):
        """`line` counts from 0."""
        return f"{self.path.as_posix()}:{line + 1}: {what}"

    def says(self, expression):
        """Each match of a multi-line regular expression, with its line."""
        return ((self.text.count("\n", 0, match.start()), match) for match in expression.finditer(self.text))


@functools.cache
def text_of(path):
    return pathlib.Path(path).read_text("utf-8", "surrogateescape")


def files(root, places, extensions):
    """The files of these folders (or single files) whose name ends so. Inputs, some of them binary, are nothing that anybody wrote, and
    links nothing that stands a second time."""
    paths = [root / place for place in places if (root / place).is_file()]
    for place in places:
        for folder, inner, names in os.walk(root / place):
            inner[:] = [each for each in inner if pathlib.Path(folder, each) not in (root / "tests/data", root / "tests/fuzz/kept")]
            paths += [path for path in (pathlib.Path(folder, name) for name in names) if path.suffix in extensions and not path.is_symlink()]
    return [File(root, path) for path in sorted(paths)]


def part_of(path):
    """The part of the project that a file belongs to: "include", "formats", "backends/cpu", "tests/reference", ..."""
    names = path.parts
    if path.as_posix() == "src/api/backends.cc":
        return "api/backends.cc"
    if names[0] == "src" and len(names) > 2:
        return f"backends/{names[2]}" if names[1] == "backends" and len(names) > 3 else names[1]
    if names[0] == "shaders" and len(names) > 2:
        return f"shaders/{names[1]}"
    if names[0] == "tests" and len(names) > 2 and names[1] in ("reference", "metal_on_cpu"):
        return f"tests/{names[1]}"
    return names[0]


# Who may include whom; itself and `include` always.
ARROWS = {name: set(may.split()) for name, may in {
    "include": "",
    "base": "",
    "formats": "base",
    "core": "base formats",
    "device": "base",
    "sources": "base formats",
    "layouts": "base formats sources",
    "checkpoints": "base formats core layouts",
    "backends/cpu": "base formats core",
    "backends/gpu": "base formats core device shaders/common",
    "backends/metal": "base core device backends/gpu",
    "backends/cuda": "base core device backends/gpu shaders/common",
    "api": "base formats core sources layouts checkpoints device",
    "api/backends.cc": "api base formats core sources layouts checkpoints device backends/cpu backends/cuda backends/gpu backends/metal",
    "tools": "base formats",
    "examples": "",
    "bindings": "",
    "tests/reference": "",
    "tests/metal_on_cpu": "",
    "shaders/common": "",
    "shaders/cuda": "shaders/common",
    "shaders/metal": "shaders/common",
    "shaders/metal4": "shaders/common shaders/metal",
}.items()}


def resolve(root, start, name):
    """Where a quoted include leads, or None. A project of its own inside the tree has its own src and include."""
    own = [folder / each for folder in start.parents if folder.parts for each in ("src", "include")]
    for base in [start.parent, *map(pathlib.Path, ("src", "include", "tests", "tests/reference", "tests/metal_on_cpu/shaders/include", ".")), *own]:
        if (root / base / name).is_file():
            return pathlib.Path(os.path.normpath(base / name))
    return None


def include_arrows(root):
    """Folders include only what lies below them (the arrows of CONTRIBUTING.md); every quoted include names an existing file."""
    include = re.compile(r'^[ \t]*#[ \t]*(?:include|import)[ \t]*(["<])([^">\n]+)[">]', re.M)
    for file in files(root, FOLDERS, CODE):
        part = part_of(file.path)
        for i, match in file.says(include):
            target = resolve(root, file.path, match[2])
            if not target and match[1] == '"':
                yield file.at(i, f"includes {match[2]}, which is no file of the project")
            to = part_of(target) if target else "include"
            if part != "tests" and to not in (part, "include") and to not in ARROWS.get(part, ()):
                yield file.at(i, f"{part} may not include {to} ({target.as_posix()})")


def has_allowance(file):
    """A kernel that says why it is long, a file that a script writes, or the public header, which is one file by design."""
    if file.path.as_posix() == "include/metal_marlin/metal_marlin.h":
        return len(file.lines) <= 733
    if file.path.parts[0] == "bindings" and re.match("(#|//) Written by ", file.lines[0]):
        return True
    return part_of(file.path).startswith("backends/") and any("Longer than 500 lines: " in line for line in file.lines)


def file_lengths(root):
    """No file has more than 500 lines, but kernels that say why in a line "Longer than 500 lines: ...", and what a script writes for a
    binding."""
    for file in files(root, [*FOLDERS, "cmake", "dev", ".ci", "CMakeLists.txt"], TEXT):
        if len(file.lines) > MAX_LINES and not has_allowance(file):
            yield file.at(MAX_LINES, f"has {len(file.lines)} lines, more than 500")


# The longer functions that there are: file, a part of the head, lines. Nothing is to be added.
LONG_FUNCTIONS = [
    ("tests/unit/checkpoint_mixed_test.cc", "WhatIsWrongWithALayerNamesItsTensor", 111),
    ("tests/gpu/dispatch_test.cc", "IsDispatchedByItsContract", 68),
]


def code_of(line):
    return line.split("  //")[0]


def indentation(line):
    return len(line) - len(line.lstrip(" "))


def head_of(lines, last):
    """The first line of the head whose last one is given."""
    while last > 0 and lines[last - 1].strip(" ") and not code_of(lines[last - 1]).endswith((";", "{", "}", ":")) \
            and not lines[last - 1].lstrip(" ").startswith(("#", "//", "template", "requires")):
        last -= 1
    return last


def opens_function(first, last):
    """Whether a brace behind this head, whose first and last lines are given, may be a function's: clang-format ends it so. A head has
    parentheses, and no other statement with a block stands so far to the left."""
    if indentation(first) > 4 or not code_of(last).endswith("{") or ")" not in code_of(last):
        return False
    others = ("namespace", "struct", "class", "enum", "union", "extern", "if", "for", "while")
    return re.match("[a-z]*", first.lstrip(" "))[0] not in others and first.lstrip(" ")[0] not in "{}#"


def judge_length(path, head, lines):
    """Says what is wrong with a function of so many lines, or nothing."""
    listed = [known for name, part, known in LONG_FUNCTIONS if path == name and part in head]
    if not listed:
        return f"has {lines} lines, more than 60" if lines > MAX_FUNCTION_LINES else ""
    if lines > listed[0]:
        return f"has grown from {listed[0]} lines to {lines}"
    return f"is listed with {listed[0]} lines and has {lines}: shorten the list" if lines < listed[0] else ""


def function_lengths(root):
    """No function has more than 60 lines, from the first line of its head to its closing brace. Kernels (shaders, and the folders of
    processors in src/backends/cpu) may be longer. Of functions that were longer before there was this rule, each is listed with its
    number of lines, which may only shrink: a shorter one breaks the rule, too, until the list says so."""
    for file in files(root, [each for each in FOLDERS if each != "shaders"], CODE):
        path, lines, behind = file.path.as_posix(), file.lines, 0
        if path.startswith(("src/backends/cpu/x86/", "src/backends/cpu/arm64/")):
            continue
        for i, line in enumerate(lines):
            if i < behind or not (line.endswith("{") or "{  //" in line):
                continue
            head = head_of(lines, i)
            if not opens_function(lines[head], line):
                continue
            close = " " * indentation(lines[head]) + "}"
            behind = next((end for end in range(i + 1, len(lines)) if lines[end].startswith(close)), len(lines)) + 1
            if wrong := judge_length(path, lines[head], behind - head):
                yield file.at(head, f"this function {wrong}")


def line_widths(root):
    """No line of src and shaders has more than 100 characters."""
    for file in files(root, ["src", "shaders"], CODE):
        for i, match in file.says(re.compile(f"^.{{{MAX_WIDTH + 1},}}", re.M)):
            yield file.at(i, f"has {len(match[0])} columns, more than {MAX_WIDTH}")


def nested_conditionals(root):
    """No operand of a conditional operator in src and shaders is a conditional itself."""
    # What is no code, in one piece: comments, strings, characters.
    no_code = re.compile(r"""//.*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""")
    for file in files(root, ["src", "shaders"], CODE):
        marks = [0]  # question marks of the expression at hand, one number a bracket that is open
        for i, line in enumerate(no_code.sub("", file.text).split("\n")):
            for c in re.findall(r"[()\[\];{},?]", line):
                if c in "([":
                    marks.append(0)
                elif c in ")]":
                    marks = marks[:-1] or [0]
                elif c in ";{}":
                    marks = [0]
                else:
                    marks[-1] = marks[-1] + 1 if c == "?" else 0
                    if marks[-1] == 2:
                        yield file.at(i, "has a conditional inside a conditional")


def words(root):
    """No notes of things left undone and no paths of somebody's machine."""
    # The letters in brackets keep this file from breaking its own rule.
    unwanted = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b|(?:^|[^\w.\n])/(?:hom[e]|roo[t]|User[s]|wor[k])/", re.M)
    others = ["docs", "cmake", "pkgconfig", ".ci", "dev", "CMakeLists.txt", "CMakePresets.json", "CHANGELOG.md"]
    for file in files(root, FOLDERS + PAGES + others, TEXT):
        for i, match in file.says(unwanted):
            yield file.at(i, f"says {match[0]}")


# What has another word now. Behind oison, LLVM's word for a value that nothing may depend on; behind wild, the field's for a pointer.
RENAMED = re.compile(
    "telling_rows|with_height|odd_scales|w4sym|cuts_last_tile|takes_sparse_meta|format_by_spelling|ehaviour|eighbour|"
    "uantis(?:e|ing|ation)|ptimis(?:e|ing|ation)|ormalise|nitialis(?:e|ing)|ecognise|rganis(?:e|ation)|erialise|pecialise|ummarise|"
    "eneralise|oison|(?<![a-zA-Z0-9])wild(?![a-zA-Z0-9])(?!.pointer)")
OF_LLVM = re.compile("i32|oisonValue|oisonMask|asan")
# Words that once named several types.
AMBIGUOUS = re.compile(r"^ *(?:struct|class|enum class|using) (Chunk|Parts?|Walk|Place|Job)\b(?!<)", re.M)


def renamed_words(root):
    """No word that has been replaced by one of the glossary, no British spelling, and of each word that once named several types no second
    type."""
    first = {}
    for file in files(root, [*FOLDERS, "docs", *PAGES], CODE | {".md", ".1"}):
        for i, match in file.says(RENAMED):
            if match[0] != "oison" or not OF_LLVM.search(file.lines[i]):
                yield file.at(i, f"says {match[0]}: docs/glossary.md has another word")
        for i, match in file.says(AMBIGUOUS):
            if match[1] in first:
                yield file.at(i, f"names a second type {match[1]}, after {first[match[1]]}")
            first.setdefault(match[1], file.at(i, ""))


def library_manners(root):
    """src/ neither prints nor ends the process, and sets no instruction set for a whole file. The library's build does not name the
    test-bed."""
    prints = re.compile(r"\b(?:printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|abort|exit|_exit|quick_exit|assert)\s*\(|"
                        r"std::(?:cout|cerr|clog|terminate)\b|#\s*include\s*<iostream>")
    isa_flag = re.compile(r"-m(?:arch|tune|cpu|avx|sse|fma|f16c)|#\s*pragma\s+GCC\s+target")
    for file in files(root, ["src", "CMakeLists.txt", "cmake"], {".h", ".cc", ".inc", ".mm", ".txt", ".cmake"}):
        for i, line in enumerate(file.lines):
            if line.lstrip().startswith(("//", "*", "/*")):
                continue
            if file.path.parts[0] == "src" and (match := prints.search(line)):
                yield file.at(i, f"prints or ends the process: {match[0]}")
            if match := isa_flag.search(line):
                yield file.at(i, f"an instruction set for a whole file: {match[0]}")
            if "metal_on_cpu" in line:
                yield file.at(i, "needs the test-bed: metal_on_cpu")


def sources_listed(root):
    """Every source is named by a CMakeLists.txt of its folder or of one above; every header guards itself."""
    for file in files(root, ["src", "tools", "tests"], CODE):
        if file.path.suffix == ".h" and not re.search("^#(?:pragma once|ifndef )", file.text, re.M):
            yield file.at(0, "has no include guard")
        if file.path.suffix not in (".cc", ".c", ".mm"):
            continue
        # A list may name a test's file by the test: (covering ...) for covering_test.cc.
        stem = re.escape(file.path.stem.removesuffix("_test"))
        named = re.compile(rf"(?:^|[\s(/|])(?:{stem}(?:_test)?\{file.path.suffix}|{stem})(?:$|[\s)\"])", re.M)
        lists = [root / folder / name for folder in file.path.parents if folder.parts for name in ("CMakeLists.txt", "run.sh")]
        if not any(named.search(text_of(str(each))) for each in lists if each.is_file()):
            yield file.at(0, "no CMakeLists.txt builds it")


def weights(root):
    """No folder has more lines of text than tests/structure/budgets.txt allows, nor 3 % fewer: then the budget shrinks."""
    for folder, budget in re.findall(r"^lines (\S+) (\d+)$", (root / "tests/structure/budgets.txt").read_text(), re.M):
        lines = sum(len(file.lines) for file in files(root, [folder], TEXT))
        has = f"{folder}: has {lines} lines, its budget is {budget}"
        if lines > int(budget):
            yield f"{has}: delete as many, or raise the budget and say in the commit why"
        if lines * 100 < int(budget) * 97:
            yield f"{has}: lower it"


def data_described(root):
    """Every checkpoint of tests/data is described in its index.json, and has its true values beside it."""
    index = (root / "tests/data/index.json").read_text()
    for folder in sorted(each for each in (root / "tests/data").iterdir() if each.is_dir()):
        if f'"{folder.name}"' not in index:
            yield f"tests/data/{folder.name}: not in index.json"
        if not (folder / "decoded.safetensors").exists():
            yield f"tests/data/{folder.name}: has no decoded.safetensors"


RULES = [include_arrows, file_lengths, function_lengths, line_widths, nested_conditionals, words, renamed_words, library_manners,
         sources_listed, weights, data_described]
