#!/usr/bin/env python3
"""Plants small mistakes in src, and tells which of them no test sees (./dev mutate).

Each mistake is one edit of one function (edits.py). All of a run are compiled into one build, each behind a switch (tree.py). A
first run of the test programs tells which tests reach which edits, and then each edit has these tests run alone (campaign.py). An
edit that no test notices is a survivor: either a test is missing, or the edit changes nothing that a test could see. Edits of the
second kind are in equivalent.txt, each with the reason. Fails if another survives.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import sys
import threading

import campaign
import tree

EQUIVALENT = pathlib.Path(__file__).resolve().parent / "equivalent.txt"
COMPILED = 1.3  # so many edits are planted for each that is wanted: some do not compile


def equivalents(text):
    """{edit's key: reason} of a file of entries of three lines, which are separated by empty lines."""
    known = {}
    for entry in text.split("\n\n"):
        lines = [line for line in entry.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        try:
            place, edit, why = lines
            file, function = place.split(" ", 1)
            if not edit.startswith("  edit: ") or not why.startswith("  why: "):
                raise ValueError
        except ValueError:
            raise SystemExit(f"{EQUIVALENT}: expected `file function`, `  edit: ...` and `  why: ...`, found {entry!r}") from None
        known[f"{file}\n{function.strip()}\n{edit.removeprefix('  edit: ')}"] = why.removeprefix("  why: ")
    return known


def read_arguments(arguments):
    parser = argparse.ArgumentParser(prog="./dev mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="*", metavar="FOLDER", help=f"of src: {', '.join(tree.FOLDERS)} (default: all)")
    parser.add_argument("--count", type=int, default=80, help="edits a folder (default: 80)")
    parser.add_argument("--seed", type=int, help="chooses the edits (default: another each time; it is printed)")
    parser.add_argument("--seconds", type=float, default=30, help="an edit's tests run up to this long, cheap ones first (default: 30)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers, or tests, at a time (default: 2)")
    parser.add_argument("--survivors", action="store_true", help="run the last run's survivors again, after new tests")
    options = parser.parse_args(arguments)
    for folder in options.folder:
        if folder not in tree.FOLDERS:
            parser.error(f"FOLDER: expected one of {', '.join(tree.FOLDERS)}, found {folder}")
    options.folder = options.folder or list(tree.FOLDERS)
    return options


def folder_of(edit):
    return max((name for name, path in tree.FOLDERS.items() if edit.file.startswith(path + "/")), key=len)


def choose(options):
    """The edits to plant: more than shall run, because some do not compile."""
    return [edit for folder in options.folder for edit in tree.chosen(folder, int(COMPILED * options.count), options.seed)]


def to_run(options, edits, last, known):
    """Of the edits that compile those that shall run: so many of each folder, or the last run's survivors that nobody explains."""
    if options.survivors:
        alive = {row["key"] for row in last["rows"] if not row["killed"] and row["key"] not in known}
        return [edit for edit in edits if edit.key in alive]
    return [edit for folder in options.folder for edit in [e for e in edits if folder_of(e) == folder][:options.count]]


def run_all(edits, of_edit, options, earlier, say):
    """The rows of the table: those of earlier runs, and of these edits."""
    own = {edit.key for edit in edits}
    rows, done, lock = [row for row in earlier if row["key"] not in own], 0, threading.Lock()

    def run_one(edit):
        nonlocal done
        verdict = campaign.run_edit(edit.number, of_edit[edit.number], options.seconds, tree.WORK)
        row = {"key": edit.key, "folder": folder_of(edit), "file": edit.file, "line": edit.line, "function": edit.function,
               "kind": edit.kind, "edit": edit.text, "killed": verdict.killed, "by": verdict.by}
        with lock:
            rows.append(row)
            done += 1
            outcome = "killed " if verdict.killed else "SURVIVED"
            say(f"{done}/{len(edits)} {outcome} {edit.file}:{edit.line} {edit.text}  [{verdict.by}]")
            (tree.WORK / "last.json").write_text(json.dumps(
                {"seed": options.seed, "count": options.count, "folder": options.folder, "rows": rows}, indent=1))

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run_one, edits))
    return sorted(rows, key=lambda row: (row["folder"], row["file"], row["line"], row["edit"]))


def summary(rows, known):
    """The lines of a Markdown table of counts, a row a folder."""
    lines = ["| folder | edits | killed | survived, equivalent | survived | killed of those not equivalent |", "|---|---|---|---|---|---|"]
    groups = [(folder, [row for row in rows if row["folder"] == folder]) for folder in tree.FOLDERS]
    for name, some in [*groups, ("all", rows)]:
        if some:
            killed = sum(row["killed"] for row in some)
            same = sum(not row["killed"] and row["key"] in known for row in some)
            rate = 100 * killed / max(len(some) - same, 1)
            lines.append(f"| {name} | {len(some)} | {killed} | {same} | {len(some) - killed - same} | {rate:.1f} % |")
    return lines


def main(arguments):
    sys.setrecursionlimit(10000)
    options = read_arguments(arguments)
    tree.WORK.mkdir(parents=True, exist_ok=True)

    def say(text):
        print(text, flush=True)

    rejected_at, last_at = tree.WORK / "rejected.json", tree.WORK / "last.json"
    rejected = set(json.loads(rejected_at.read_text())) if rejected_at.exists() else set()
    last = json.loads(last_at.read_text()) if options.survivors and last_at.exists() else {"rows": []}
    for name, value in last.items():
        if name != "rows":
            setattr(options, name, value)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10000)
    known = equivalents(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
    say(f"{' '.join(options.folder)} --seed {options.seed} --count {options.count}{' --survivors' * options.survivors}")
    edits = tree.build(choose(options), rejected, options.jobs, say)
    rejected_at.write_text(json.dumps(sorted(rejected), indent=1))
    programs = tree.build_programs(options.jobs, tree.PROGRAMS)
    of_edit = campaign.reached(programs, tree.QUICK_TESTS, len(edits), tree.WORK, options.jobs, say)
    rows = run_all(to_run(options, edits, last, known), of_edit, options, last["rows"], say)

    table = ["| file:line | function | edit | killed by, or why not |", "|---|---|---|---|"]
    for row in rows:
        outcome = row["by"] if row["killed"] else f"**survived**: {known.get(row['key'], row['by'])}"
        table.append("| " + " | ".join(text.replace("|", "\\|") for text in (
            f"{row['file']}:{row['line']}", row["function"], f"`{row['edit']}`", outcome)) + " |")
    (tree.WORK / "table.md").write_text("\n".join([*summary(rows, known), "", *table]) + "\n")
    holes = [row for row in rows if not row["killed"] and row["key"] not in known]
    say("\n".join(["", *summary(rows, known), ""]))
    for row in holes:
        say(f"survived: {row['file']}:{row['line']} {row['function']}\n  edit: {row['edit']}\n  {row['by']}")
    say(f"each edit and what killed it: {tree.WORK / 'table.md'}")
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
