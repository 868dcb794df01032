#!/usr/bin/env python3
"""Runs the test programs of a build tree that ctest knows under a label, and counts their tests.

    programs.py FOLDER LABEL [OPTION...]

LABEL and OPTION are ctest's: -R and -E choose programs, and GTEST_FILTER tests in them. A program that has passed with the
same bytes, data, arguments and environment is not run again (build/passed). Prints "  FAILED NAME: why", "  skipped NAME: why",
what failed programs said, and as the last line "N passed, N failed, N skipped". Ends with status 3 if a test failed.
"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

TIMEOUT = "1800"  # seconds of a program
PASSED = pathlib.Path("build/passed")
# Variables that change what a test does.
READ = re.compile(r"GTEST_|METAL_|[A-Z]+SAN_OPTIONS|QEMU_CPU|MARLIN_")
# What GoogleTest prints of a test; one that ends its program has no last line.
TEST = re.compile(r"\[ RUN      \] (\S+)\n(.*?)(?:\[ +(OK|SKIPPED|FAILED) +\] \1\b|\Z)", re.S)


def key(test):
    """Of all that the outcome depends on; the suite says which data its programs read."""
    known = {each["name"]: each["value"] for each in test.get("properties", [])}
    own = {**os.environ, **dict(each.split("=", 1) for each in known.get("ENVIRONMENT", []))}
    read = sorted(each for each in own.items() if READ.match(each[0]))
    digest = hashlib.sha256(repr([os.environ.get("SUITE_DATA"), test["command"], read]).encode())
    for path in [*test["command"], *known.get("REQUIRED_FILES", [])]:
        if os.path.isfile(path):
            digest.update(pathlib.Path(path).read_bytes())
    return PASSED / digest.hexdigest()[:40]


def run(folder, names):
    """What ctest reports of each."""
    chosen, jobs = f"^({'|'.join(map(re.escape, names))})$", os.environ.get("TEST_JOBS", str(os.cpu_count()))
    with tempfile.TemporaryDirectory() as scratch:
        report = pathlib.Path(scratch, "report.xml")
        subprocess.run(["ctest", "--test-dir", folder, "-R", chosen, "-j", jobs, "--timeout", TIMEOUT, "--output-junit", report,
                        "--test-output-size-passed", "100000000", "--test-output-size-failed", "100000000"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return xml.etree.ElementTree.parse(report).findall("testcase")


def told(case):
    """Prints what failed in a program and what it skipped, and returns the counts of passed, failed and skipped."""
    name, output, status = case.get("name"), case.findtext("system-out") or "", case.get("status")
    passed, failed, reasons, lines = 0, 0, {}, []
    for test, said, outcome in TEST.findall(output):
        if outcome == "OK":
            passed += 1
        elif outcome == "SKIPPED":
            reasons.setdefault(said.partition("Skipped\n")[2].partition("\n")[0], []).append(f"{name}: {test}")
        else:
            failed += 1
            lines += [f"FAILED {name}: {test}", *said.splitlines()[:30]]
    if case.find("skipped") is not None and case.find("skipped").get("message").startswith("SKIP_"):
        reasons[output.strip().splitlines()[-1]] = [name]
    elif status == "run" and "[==========]" not in output:
        passed = 1
    elif status != "run" and not failed:  # a script, or a leak, which a sanitizer finds at the end
        failed = 1
        lines.append(f"FAILED {name}: it ended with an error, or not at all in {TIMEOUT} s")
    lines += output.splitlines()[-60:] if failed else []
    for why, names in reasons.items():
        lines.append(f"skipped {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}")
    print("".join(f"  {line}\n" for line in lines), end="", flush=True)
    return passed, failed, sum(map(len, reasons.values()))


def main():
    folder, label, *options = sys.argv[1:]
    listed = ["ctest", "--test-dir", folder, "-L", f"^({label})$", *options, "--show-only=json-v1"]
    shown = subprocess.run(listed, check=True, capture_output=True)
    keys = {test["name"]: key(test) for test in json.loads(shown.stdout)["tests"] if test.get("command")}
    left = [name for name, kept in keys.items() if not kept.exists()]
    sums = [json.loads(kept.read_text()) for kept in keys.values() if kept.exists()]
    PASSED.mkdir(parents=True, exist_ok=True)
    for case in run(folder, left) if left else []:
        if case.get("name") in left:  # and not what one of these needs, and had passed before
            sums.append(told(case))
            if sums[-1][0] and not sums[-1][1]:
                keys[case.get("name")].write_text(json.dumps(sums[-1]))
    passed, failed, skipped = map(sum, zip(*sums, [0, 0, 0]))
    if passed + failed + skipped == 0:
        print(f"  FAILED {sys.argv[1:]}: no program ran a test")
        failed = 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
