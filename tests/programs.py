#!/usr/bin/env python3
"""Runs the test programs of a build tree that ctest knows under a label, and counts their tests.

    programs.py FOLDER LABEL [--only REGEX] [--but REGEX]

LABEL and both expressions are ctest's: they choose programs, and GTEST_FILTER chooses tests in them.
A program that has passed with the same bytes, data, arguments and environment is not run again
(build/passed). Prints "FAILED NAME: why" and "skipped NAME: why", what failed programs said, and as
the last line "N passed, N failed, N skipped". Ends with status 3 if a test failed.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TIMEOUT = 1800  # seconds of a program
PASSED = pathlib.Path("build/passed")
# Variables that change what a test does.
READ = re.compile(r"GTEST_|METAL_|[A-Z]+SAN_OPTIONS|QEMU_CPU|MARLIN_")
JOBS = int(os.environ.get("TEST_JOBS", os.cpu_count() or 1))


class Program:
    def __init__(self, test):
        self.name, self.command = test["name"], test["command"]
        known = {each["name"]: each["value"] for each in test.get("properties", [])}
        self.folder = known.get("WORKING_DIRECTORY")
        self.environment = dict(each.split("=", 1) for each in known.get("ENVIRONMENT", []))
        self.reads = known.get("REQUIRED_FILES", [])
        self.goes_first = "FIXTURES_SETUP" in known
        self.skip_status = known.get("SKIP_RETURN_CODE")
        self.expected = known.get("PASS_REGULAR_EXPRESSION")  # where the status does not count

    def key(self):
        """Of all that the outcome depends on; the suite says which data its programs read."""
        digest = hashlib.sha256(os.environ.get("SUITE_DATA", "").encode())
        own = {**os.environ, **self.environment}
        digest.update(repr([self.command, sorted(each for each in own.items() if READ.match(each[0]))]).encode())
        for path in [*self.command, *self.reads]:
            if os.path.isfile(path):
                digest.update(pathlib.Path(path).read_bytes())
        return digest.hexdigest()[:40]

    def run(self):
        """Lines to print and the counts of passed, failed, skipped."""
        kept = PASSED / self.key()
        if kept.exists():
            kept.touch()
            return [], json.loads(kept.read_text())
        with tempfile.NamedTemporaryFile(suffix=".json") as results:
            how = {**os.environ, **self.environment, "GTEST_OUTPUT": f"json:{results.name}"}
            try:
                ran = subprocess.run(self.command, cwd=self.folder, env=how, stdin=subprocess.DEVNULL, timeout=TIMEOUT,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
                output, status = ran.stdout.decode(errors="replace"), ran.returncode
            except subprocess.TimeoutExpired as late:
                output, status = (late.stdout or b"").decode(errors="replace"), f"none in {TIMEOUT} s"
            except OSError as error:
                return [f"FAILED {self.name}: {error}"], (0, 1, 0)
            told = pathlib.Path(results.name).read_text(errors="replace")
        lines, counts = self.of_googletest(json.loads(told), output) if told else self.of_script(output, status)
        if told and status != 0 and counts[1] == 0:  # leaks, which a sanitizer finds at the end
            lines.append(f"FAILED {self.name}: ended with status {status}")
            counts = (counts[0], 1, 0)
        if counts[1]:
            lines += output.splitlines()[-60:]
        elif counts[0]:
            PASSED.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(counts))
        return lines, counts

    def of_googletest(self, told, output):
        lines, passed, failed, reasons = [], 0, 0, collections.defaultdict(list)
        for suite in told["testsuites"]:
            for test in suite["testsuite"]:
                name = f"{self.name}: {suite['name']}.{test['name']}"
                if test.get("result") == "SKIPPED":
                    said = re.search(rf"\[ RUN +\] {re.escape(name.split(': ')[1])}\n.*?: Skipped\n(.*?)\n", output, re.S)
                    reasons[said[1] if said else "no reason given"].append(name)
                elif "failures" in test:
                    failed += 1
                    lines += [f"FAILED {name}:", *(line for each in test["failures"] for line in each["failure"].splitlines()[:30])]
                elif test.get("status") == "RUN":
                    passed += 1
        for why, names in reasons.items():
            lines.append(f"skipped {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}")
        return lines, (passed, failed, sum(map(len, reasons.values())))

    def of_script(self, output, status):
        if self.skip_status is not None and status == int(self.skip_status):
            return [f"skipped {self.name}: {output.strip().splitlines()[-1]}"], (0, 0, 1)
        right = any(re.search(each, output, re.S) for each in self.expected) if self.expected else status == 0
        if right:
            return [], (1, 0, 0)
        begun = re.findall(r"\[ RUN      \] (\S+)", output)
        return [f"FAILED {self.name}: ended with status {status}{f' in {begun[-1]}' if begun else ''}"], (0, 1, 0)


def programs(folder, label, only, but):
    shown = subprocess.run(["ctest", "--test-dir", folder, "-L", f"^({label})$", "--show-only=json-v1"], check=True, capture_output=True)
    found = [Program(test) for test in json.loads(shown.stdout)["tests"] if test.get("command")]
    return [each for each in found if re.search(only, each.name) and not (but and re.search(but, each.name))]


def main():
    arguments = argparse.ArgumentParser(usage=__doc__)
    arguments.add_argument("folder")
    arguments.add_argument("label")
    arguments.add_argument("--only", default="")
    arguments.add_argument("--but")
    chosen = programs(**vars(arguments.parse_args()))
    sums = [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        first = [each.run() for each in chosen if each.goes_first]
        for lines, counts in [*first, *pool.map(Program.run, (each for each in chosen if not each.goes_first))]:
            print("".join(f"{line}\n" for line in lines), end="", flush=True)
            sums = [a + b for a, b in zip(sums, counts)]
    if sum(sums) == 0:
        print(f"FAILED {arguments.prog}: no program of {sys.argv[1:]} ran a test")
        sums[1] = 1
    print(f"{sums[0]} passed, {sums[1]} failed, {sums[2]} skipped")
    return 3 if sums[1] else 0


if __name__ == "__main__":
    sys.exit(main())
