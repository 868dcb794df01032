#!/usr/bin/env python3
"""Chooses suites of tests/suites, runs two at a time, and prints a table and the sums. ./dev test calls it.

    run.py [whole] [SUITE|FOLDER...]

CONTRIBUTING.md says what it chooses. A suite is a script of functions of tests/suites/steps.inc. Its head has lines "# about:",
"# inputs:" (files and folders), "# seconds:" (of CPU time), "# packages:" (groups of packaging/packages.txt), "# when:" (core,
changed or whole), and "# data:" (what its programs read beside tests/data).
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

BUDGET = 450  # CPU seconds of suites that are not in the core
RESULTS = pathlib.Path("build/results")
WRITTEN = pathlib.Path("tests/passed.json")  # by suite: the digest of its inputs, and when they passed
EVERYWHERE = ["dev", "tests/run.py", "tests/programs.py", "tests/suites/steps.inc", "tests/CMakeLists.txt", "CMakeLists.txt",
              "CMakePresets.json", "cmake", "packaging/packages.txt", "packaging/requirements"]
# Sums of programs.py, and of others in cargo's words; lines of single tests; and what is worth reading when all is well.
SUMS = re.compile(r"^(?:test result: .*?)?(\d+) passed[,;] (\d+) failed[,;] (\d+) (?:skipped$|ignored)", re.M)
WORDS = ["^passed ", "^FAILED ", "^(?:skipped |left out: )"]
TOLD = re.compile(r"^ *(?:FAILED |skipped:? |left out: ).*\n", re.M)
RUNNING = set()  # the leaders of groups of processes


class Suite:
    def __init__(self, name, path):
        head = dict(re.findall(r"^# (\w+): (.*)$", path.read_text(), re.M))
        self.name, self.path, self.log = name, path, RESULTS / f"{name}.log"
        self.about, self.when, self.seconds = head["about"], head["when"], int(head["seconds"])
        self.inputs = digest(head["inputs"].split() + EVERYWHERE + [str(path)])
        self.data = digest(head.get("data", "").split() + ["tests/data"])
        self.packages = head.get("packages", "").split()

    def run(self):
        """Counts of passed, failed and skipped, and the seconds of the clock and of processors."""
        begun = time.monotonic()
        how = {**os.environ, "SUITE": self.name, "SUITE_DATA": self.data}
        with open(self.log, "wb") as output:
            process = subprocess.Popen(["bash", "-c", f". ./tests/suites/steps.inc; . ./{self.path}"], stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, env=how, start_new_session=True)
        RUNNING.add(process.pid)
        _, status, used = os.wait4(process.pid, 0)
        RUNNING.discard(process.pid)
        text = self.log.read_text(errors="replace")
        sums = SUMS.findall(text)
        counts = [len(re.findall(word, text, re.M)) + sum(int(each[i]) for each in sums) for i, word in enumerate(WORDS)]
        counts[1] = counts[1] or int(status != 0 or sum(counts) == 0)
        told = [f"{self.name}: {self.about}", *(f"  {line.strip()}" for line in TOLD.findall(text))]
        if counts[1]:
            told += [*(f"  | {line}" for line in text.splitlines()[-80:]), f"  the whole output: {self.log}"]
        print("\n".join(told) + "\n", end="", flush=True)
        return (*counts, time.monotonic() - begun, used.ru_utime + used.ru_stime)


def stop(*_):
    for each in RUNNING:
        os.killpg(each, signal.SIGKILL)
    os._exit(130)


def contents():
    """By path, the digest of each file but those that builds make."""
    found = {}
    for folder, folders, names in os.walk("."):
        folders[:] = [each for each in folders if not re.match(r"build|__pycache__|\.(git|venv|cache|build)$", each)]
        for path in (pathlib.Path(folder, name) for name in names if name not in (".git", "compile_commands.json")):
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return dict(sorted(found.items()))


def digest(inputs):
    ours = [f"{name} {told}" for name, told in FILES.items()
            if any(each in (".", name) or name.startswith(f"{each}/") for each in inputs)]
    return hashlib.sha256("\n".join(ours).encode()).hexdigest()[:16]


def choose(suites, written):
    """The core and the changed suites that fit into the budget, least lately run first, and a line for each that is left."""
    chosen, lines, budget = [], [], BUDGET
    for each in sorted(suites, key=lambda each: (each.log.stat().st_mtime if each.log.exists() else 0, each.seconds)):
        passed = written.get(each.name, {})
        if each.when == "core":
            chosen.append(each)
        elif each.when == "changed" and passed.get("digest") == each.inputs:
            lines.append(f"{each.name:<14} its inputs are those that passed on {passed['date']}")
        elif each.when == "changed" and each.seconds <= budget:
            budget -= each.seconds
            chosen.append(each)
        elif each.when == "changed":
            lines.append(f"{each.name:<14} left to the next run, for lack of time ({each.seconds} CPU s): ./dev test {each.name}")
    return chosen, lines


def main():
    names = sys.argv[1:]
    whole = names[:1] == ["whole"] and bool(names.pop(0))
    suites = {path.stem: Suite(path.stem, path) for path in sorted(pathlib.Path("tests/suites").glob("*.sh"))}
    for name in names:
        if name not in suites and not pathlib.Path("tests", name, "CMakeLists.txt").exists():
            print(f"no suite {name}; there are: {' '.join(suites)}", file=sys.stderr)
            return 2
    written = json.loads(WRITTEN.read_text()) if WRITTEN.exists() else {}
    chosen, lines = list(suites.values()), []
    if names:
        chosen = [suites[name] if name in suites else Suite(name, pathlib.Path("tests/suites/folder.inc")) for name in names]
    elif not whole:
        chosen, lines = choose(chosen, written)
    chosen.sort(key=lambda each: (each.when != "core", -each.seconds))
    os.environ.update({"METAL_MARLIN_WHOLE": "1"} if whole else {}, TEST_JOBS=str(1 if len(chosen) > 1 else os.cpu_count()))
    RESULTS.mkdir(parents=True, exist_ok=True)
    for group in sorted({group for each in chosen for group in each.packages}):  # before anything is configured
        subprocess.run(["bash", "-c", f". ./dev functions; install_packages {group}"], check=False)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(Suite.run, chosen))
    print(f"\n{'suite':<14} {'passed':>8} {'failed':>8} {'skipped':>8} {'minutes':>8} {'CPU s':>8}")
    for suite, (passed, failed, skipped, seconds, used) in zip(chosen, rows):
        print(f"{suite.name:<14} {passed:8} {failed:8} {skipped:8} {int(seconds // 60):5}:{int(seconds % 60):02} {used:8.0f}")
        if passed and not failed and suite.name in suites:
            written[suite.name] = {"digest": suite.inputs, "date": time.strftime("%Y-%m-%d")}
    if names or whole:
        told = ",\n".join(f' "{name}": {json.dumps(row)}' for name, row in sorted(written.items()))
        WRITTEN.write_text(f"{{\n{told}\n}}\n")
    passed, failed, skipped, _, used = map(sum, zip(*rows))
    print("".join(f"{line}\n" for line in lines) + f"CPU seconds in all: {used:.0f}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    os.chdir(pathlib.Path(__file__).resolve().parents[1])
    FILES = contents()
    sys.exit(main())
