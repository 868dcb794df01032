#!/usr/bin/env python3
"""The blocks of code in a page, and that each of them works.

    readme.py run PAGE PREFIX SCRATCH [TOP]
                                          runs them from top to bottom, with the library that is installed in PREFIX; - is none
    readme.py blocks PAGE LANGUAGE [N]    prints those of a language, or the Nth
    readme.py count PAGE LANGUAGE=N...    fails when the page has others: whoever runs them runs all
    readme.py hello PAGE LANGUAGE         prints the commands in the blocks behind <!-- hello LANGUAGE... -->, at most five

run: sh is run, in a folder that has what the top folder (of the project, or TOP) has, with what the blocks before have exported; the text behind it is what
it prints, ... being anything. build/release there is the folder that BUILD names. Other code goes into the file that a comment in
front of it names, <!-- folder/example.c -->, for the commands that follow. Where the comment is <!-- not run: REASON --> or ends in "run by
the suite NAME" the block is left alone. All else fails, so that nothing on a page is without a test.

A block of sh that leaves the reader's shell in another folder is refused whoever runs it: the blocks behind it would fail.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\S*)\n(?P<text>.*?)^```\n", re.MULTILINE | re.DOTALL)
CHANGE_OF_FOLDER = re.compile(r"(^|[;&|{])\s*(cd|pushd)\b")
SUBSHELL = re.compile(r"\([^()]*\)")
WARNINGS = "-pedantic -Wall -Wextra -Wconversion -Werror"
COMPILERS = {"cc": (os.environ.get("CC", "cc"), "-std=c99"), "c++": (os.environ.get("CXX", "c++"), "-std=c++17")}


def blocks(page):
    text = pathlib.Path(page).read_text()
    indented = re.search(r"^\n {4}\S.*", BLOCK.sub("", text), re.MULTILINE)
    if indented:
        sys.exit(f"{page}: an indented block, which nothing can run: {indented.group().strip()}")
    found = list(BLOCK.finditer(text))
    for line in (line for block in found if block["language"] == "sh" for line in block["text"].splitlines()):
        if CHANGE_OF_FOLDER.search(SUBSHELL.sub("", line)):
            sys.exit(f"{page}: expected commands that leave the shell in its folder, found: {line.strip()}; write (cd FOLDER && COMMAND)")
    return found


def environment(prefix, scratch):
    """As for who has installed the library there and has compilers that take no warnings."""
    if prefix == pathlib.Path("-"):
        return dict(os.environ)
    tools, library = scratch / "bin", next(prefix.rglob("metal-marlin.pc")).parents[1]
    tools.mkdir()
    for name, (compiler, standard) in COMPILERS.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {shutil.which(compiler)} {standard} {WARNINGS} "$@"\n')
        (tools / name).chmod(0o755)
    path = f"{tools}:{prefix / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PKG_CONFIG_PATH": str(library / "pkgconfig"), "LD_LIBRARY_PATH": str(library)}


def run(page, prefix, scratch, top=TOP):
    prefix, scratch = pathlib.Path(prefix), pathlib.Path(scratch)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    env = environment(prefix, scratch)
    folder = scratch / "top"
    folder.mkdir()
    for entry in pathlib.Path(top).iterdir():
        if entry.name != "build":
            (folder / entry.name).symlink_to(entry)
    (folder / "build").mkdir()
    (folder / "build" / "release").symlink_to(os.environ.get("BUILD", TOP / "build" / "release"))
    printed, exported = None, scratch / "exported"
    for block in blocks(page):
        mark, language, text = block["mark"] or "", block["language"], block["text"]
        if re.match("not run: .|.*run by the suite .", mark):
            continue
        if language == "sh":
            script = f"{text}env -0 >'{exported}'"
            done = subprocess.run(["sh", "-e", "-c", script], cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
            if done.returncode != 0:
                sys.exit(f"{page}: exit status {done.returncode} of\n{text}{done.stdout}")
            printed, env = done.stdout, dict(line.split("=", 1) for line in exported.read_text().split("\0") if line)
        elif language == "text" and printed is not None:
            if not re.fullmatch(re.escape(text).replace(r"\.\.\.", ".*"), printed, re.DOTALL):
                sys.exit(f"{page}: expected\n{text}found\n{printed}")
            printed = None
        elif re.fullmatch(r"[\w./]+", mark) and not (folder / mark).exists():
            (folder / mark).parent.mkdir(exist_ok=True)
            (folder / mark).write_text(text)
        else:
            sys.exit(f"{page}: nothing runs this block of '{language}', nor says why not:\n{text}")


def print_blocks(page, language, number=None):
    found = [block["text"] for block in blocks(page) if block["language"] == language]
    sys.stdout.write("".join(found) if number is None else found[int(number) - 1])


def hello(page, language):
    marked = [block["text"] for block in blocks(page) if re.match(rf"hello[\w+ ]* {re.escape(language)}( |,|$)", block["mark"] or "")]
    commands = "".join(marked)
    if not 1 <= commands.count("\n") <= 5:
        sys.exit(f"{page}: expected one to five commands for {language}, found\n{commands}")
    sys.stdout.write(commands)


def count(page, *expected):
    found = collections.Counter(block["language"] for block in blocks(page))
    found = sorted(f"{language}={number}" for language, number in found.items())
    if found != sorted(expected):
        sys.exit(f"{page}: expected blocks of {' '.join(sorted(expected))}, found {' '.join(found)}")


if __name__ == "__main__":
    {"run": run, "blocks": print_blocks, "count": count, "hello": hello}[sys.argv[1]](*sys.argv[2:])
