#!/usr/bin/env python3
"""Chooses suites of tests/suites, runs two at a time, and prints a table and the sums. ./dev test calls it.

    run.py [whole] [SUITE...]

Without names it runs the core, and then suites whose inputs have other contents than when they last
passed (tests/passed.json), as many as fit into a budget; the rest is named, and runs first the next
time. With names it runs these suites, or programs of these folders of tests. `whole` means the long
form of all. What passed whole or by name is written to tests/passed.json.

A suite is a script that sources ./dev for its functions. Its head has lines "# about:", "# inputs:"
(files and folders), "# seconds:" (of CPU time), "# packages:" (groups of packaging/packages.txt),
"# when:" (core, changed or whole), and "# data:" (what its programs read beside tests/data).
"""
import collections
import concurrent.futures
import datetime
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUDGET = 550  # CPU seconds of suites that are not in the core
RESULTS = pathlib.Path("build/results")
WRITTEN = pathlib.Path("tests/passed.json")  # by suite: the digest of its inputs, and when they passed
LEFT = pathlib.Path("build/left.json")  # names that had no place the last time
EVERYWHERE = ["dev", "tests/run.py", "tests/programs.py", "tests/CMakeLists.txt", "CMakeLists.txt", "CMakePresets.json", "cmake",
              "packaging/packages.txt", "packaging/requirements"]
COUNTS = [re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M),
          re.compile(r"^test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored", re.M)]
WORDS = [re.compile(rf"^{word} ", re.M) for word in ("passed", "FAILED", "skipped")]


class Suite:
    def __init__(self, path, folder=""):
        head = dict(re.findall(r"^# (\w+): (.*)$", path.read_text(), re.M))
        self.path, self.folder, self.name = path, folder, folder or path.stem
        self.about, self.when, self.seconds = head["about"], head["when"], int(head["seconds"])
        self.inputs = head["inputs"].split() + EVERYWHERE + [str(path)]
        self.data = head.get("data", "").split() + ["tests/data"]
        self.packages = head.get("packages", "").split()


def contents():
    """By path, the digest of each file that git tracks or would."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True, check=False)
    names = listed.stdout.decode().split("\0") if listed.returncode == 0 else [
        str(each) for each in pathlib.Path().rglob("*") if not str(each).startswith("build/")]
    return {name: hashlib.sha256(pathlib.Path(name).read_bytes()).hexdigest() for name in sorted(set(names)) if os.path.isfile(name)}


def digest(files, inputs):
    ours = [f"{name} {told}" for name, told in files.items()
            if any(name == each or name.startswith(f"{each}/") for each in inputs)]
    return hashlib.sha256("\n".join(ours).encode()).hexdigest()[:16]


class Runner:
    def __init__(self, files, jobs):
        self.files, self.jobs, self.lock, self.running, self.rows = files, jobs, threading.Lock(), set(), {}

    def run(self, suite):
        log, begun = RESULTS / f"{suite.name}.log", time.monotonic()
        how = {**os.environ, "SUITE": suite.name, "FOLDER": suite.folder, "TEST_JOBS": str(self.jobs),
               "SUITE_DATA": digest(self.files, suite.data)}
        script = f". ./dev functions; results={RESULTS}/{suite.name}; mkdir -p $results; . ./tests/suites/steps.inc; . ./{suite.path}"
        with open(log, "wb") as output:
            process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, env=how, start_new_session=True)
            self.running.add(process.pid)
            _, status, used = os.wait4(process.pid, 0)
            self.running.discard(process.pid)
        text = log.read_text(errors="replace")
        counts = [sum(int(found[i]) for each in COUNTS for found in each.findall(text)) for i in range(3)]
        for i, word in enumerate(WORDS):  # a script's own lines; those of programs are in their sums
            counts[i] += sum(len(word.findall(each)) for each in re.findall(r"^<script>$(.*?)^</script>$", text, re.M | re.S))
        counts[2] += len(re.findall(r"^left out: ", text, re.M))
        if (status != 0 or sum(counts) == 0) and counts[1] == 0:
            counts[1] = 1
        self.say(suite, text, counts)
        self.rows[suite.name] = (*counts, time.monotonic() - begun, used.ru_utime + used.ru_stime)

    def say(self, suite, text, counts):
        lines = [line for line in text.splitlines() if line.startswith(("FAILED ", "skipped ", "left out: ", "skipped: "))]
        with self.lock:
            print(f"{suite.name}: {suite.about}")
            print("".join(f"  {line}\n" for line in lines), end="")
            if counts[1]:
                print("".join(f"  | {line}\n" for line in text.splitlines()[-80:]), end="")
                print(f"  the whole output: {RESULTS / suite.name}.log", flush=True)

    def stop(self, *_):
        for each in self.running:
            os.killpg(each, signal.SIGKILL)
        os._exit(130)


def choose(suites, names, whole, files, written):
    """The suites to run, and a line for each that is left."""
    if names:
        return [suites[name] if name in suites else Suite(pathlib.Path("tests/suites/folder.inc"), name) for name in names], []
    if whole:
        return list(suites.values()), []
    chosen, lines, seconds, left = [each for each in suites.values() if each.when == "core"], [], 0, []
    before = json.loads(LEFT.read_text()) if LEFT.exists() else []
    changed = []
    for each in (each for each in suites.values() if each.when == "changed"):
        known = written.get(each.name, {})
        if known.get("digest") == digest(files, each.inputs):
            lines.append(f"{each.name:<14} its inputs are those that passed on {known['date']}")
        else:
            changed.append((each.name not in before, known.get("date", ""), each.seconds, each))
    for *_, each in sorted(changed, key=lambda row: row[:3]):
        if seconds + each.seconds <= BUDGET:
            seconds += each.seconds
            chosen.append(each)
        else:
            left.append(each.name)
            lines.append(f"{each.name:<14} left to the next run, for lack of time ({each.seconds} CPU s): ./dev test {each.name}")
    LEFT.write_text(json.dumps(left))
    return chosen, lines


def write_down(written, files, runner, chosen):
    for each in chosen:
        passed, failed, *_ = runner.rows[each.name]
        if passed and not failed and not each.folder:
            written[each.name] = {"digest": digest(files, each.inputs), "date": str(datetime.date.today())}
    rows = ",\n".join(f' "{name}": {json.dumps(row)}' for name, row in sorted(written.items()))
    WRITTEN.write_text(f"{{\n{rows}\n}}\n")


def main():
    os.chdir(ROOT)
    names = sys.argv[1:]
    whole = names[:1] == ["whole"] and bool(names.pop(0))
    suites = {path.stem: Suite(path) for path in sorted(pathlib.Path("tests/suites").glob("*.sh"))}
    unknown = [name for name in names if name not in suites and not (pathlib.Path("tests") / name / "CMakeLists.txt").exists()]
    if unknown:
        print(f"no suite {unknown[0]}; there are: {' '.join(suites)}", file=sys.stderr)
        return 2
    if whole:
        os.environ["METAL_MARLIN_WHOLE"] = "1"
    subprocess.run(["rm", "-rf", RESULTS], check=True)
    RESULTS.mkdir(parents=True)
    files, written = contents(), json.loads(WRITTEN.read_text()) if WRITTEN.exists() else {}
    chosen, lines = choose(suites, names, whole, files, written)
    groups = sorted({group for each in chosen for group in each.packages})
    if groups:  # before anything is configured; a suite says itself what it leaves out without them
        subprocess.run(["bash", "-c", f". ./dev functions; for g in {' '.join(groups)}; do (install_packages $g) || true; done"], check=False)
    runner = Runner(files, 1 if len(chosen) > 1 else os.cpu_count())
    signal.signal(signal.SIGINT, runner.stop)
    signal.signal(signal.SIGTERM, runner.stop)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(runner.run, sorted(chosen, key=lambda each: (each.when != "core", -each.seconds))))
    sums = collections.Counter()
    print(f"\n{'suite':<14} {'passed':>8} {'failed':>8} {'skipped':>8} {'minutes':>8} {'CPU s':>8}")
    for name, (passed, failed, skipped, seconds, used) in runner.rows.items():
        print(f"{name:<14} {passed:8} {failed:8} {skipped:8} {int(seconds // 60):5}:{int(seconds % 60):02} {used:8.0f}")
        sums.update(passed=passed, failed=failed, skipped=skipped, used=used)
    print("".join(f"{line}\n" for line in lines) + f"CPU seconds in all: {sums['used']:.0f}")
    if names or whole:
        write_down(written, files, runner, chosen)
    print(f"{sums['passed']} passed, {sums['failed']} failed, {sums['skipped']} skipped")
    return 1 if sums["failed"] or not sums["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
