#!/usr/bin/env python3
"""Plants small mistakes in src, and tells which of them no test sees (./dev mutate).

Each mistake is one edit of one function (edits.py). All of a run are compiled into one build, each behind a switch (tree.py). A
first run of the test programs tells which tests reach which edits, and then each edit has these tests run alone (campaign.py). An
edit that no test notices is a survivor: either a test is missing, or the edit changes nothing that a test could see.
"""
import argparse
import concurrent.futures
import random
import sys

import campaign
import tree

COMPILED = 1.3  # so many edits are planted for each that is wanted: some do not compile


def read_arguments(arguments):
    parser = argparse.ArgumentParser(prog="./dev mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="*", metavar="FOLDER", help=f"of src: {', '.join(tree.FOLDERS)} (default: all)")
    parser.add_argument("--count", type=int, default=80, help="edits a folder (default: 80)")
    parser.add_argument("--seed", type=int, help="chooses the edits (default: another each time; it is printed)")
    parser.add_argument("--seconds", type=float, default=30, help="an edit's tests run up to this long, cheap ones first (default: 30)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers, or tests, at a time (default: 2)")
    options = parser.parse_args(arguments)
    for folder in set(options.folder) - set(tree.FOLDERS):
        parser.error(f"FOLDER: expected one of {', '.join(tree.FOLDERS)}, found {folder}")
    options.folder = options.folder or list(tree.FOLDERS)
    options.seed = random.SystemRandom().randrange(10000) if options.seed is None else options.seed
    return options


def say(text):
    print(text, flush=True)


def main(arguments):
    sys.setrecursionlimit(10000)
    options = read_arguments(arguments)
    say(f"{' '.join(options.folder)} --seed {options.seed} --count {options.count}")
    wanted = {folder: tree.chosen(folder, int(COMPILED * options.count), options.seed) for folder in options.folder}
    built = tree.build([edit for edits in wanted.values() for edit in edits], options.folder, options.jobs, say)
    compiled = {edit.key for edit in built}
    programs = tree.build_programs(options.jobs, tree.programs_of(options.folder))
    of_edit = campaign.reached(programs, tree.QUICK_TESTS, len(built), tree.WORK, options.jobs, say)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for folder, edits in wanted.items():
            edits = [edit for edit in edits if edit.key in compiled][:options.count]
            run = lambda edit: campaign.run_edit(edit.number, of_edit[edit.number], options.seconds, tree.WORK)
            survived = 0
            for edit, verdict in zip(edits, pool.map(run, edits)):
                say(f"{'killed' if verdict.killed else 'SURVIVED'}: {edit.file}:{edit.line} {edit.function}: {edit.text}  [{verdict.by}]")
                survived += not verdict.killed
            say(f"{folder}: {len(edits)} edits, {len(edits) - survived} killed, {survived} survived")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
