#!/usr/bin/env python3
"""Runs the tests of a build folder, as ctest does, but many tests of a GoogleTest program in one process. To start a program costs
more than most tests do: under a sanitizer, in an emulator, or where each process makes the same covering array or reads the same
shaders again.

    together.py FOLDER JOBS XML [CTEST ARGUMENT...]

Writes results as ctest writes them with --output-junit, and prints the output of what failed. A test that ends its process is a
failure, and the tests behind it run in a new process. What is not of GoogleTest is run by ctest itself.
"""
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
from xml.sax.saxutils import escape, quoteattr

FILTER = "--gtest_filter="
SMALLEST = 8  # tests of a batch, unless the program has fewer
TIMEOUT = 1800  # seconds of a batch
RUN = re.compile(r"^.*\[ RUN      \] (\S+)$", re.M)
END = r"\[ *(OK|FAILED|SKIPPED) *\] {}(?=,| \(|$)"

Result = collections.namedtuple("Result", "name status seconds output")


def selected(folder, arguments):
    """What ctest knows of the tests that these arguments choose."""
    command = ["ctest", "--test-dir", folder, *arguments, "--show-only=json-v1"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["tests"]


def properties(test):
    return {each["name"]: each["value"] for each in test.get("properties", [])}


def filter_of(test):
    """The name by which GoogleTest runs the test, or None."""
    if properties(test).get("DISABLED"):
        return None
    return next((word[len(FILTER):] for word in test.get("command", []) if word.startswith(FILTER)), None)


def program_of(test):
    """The words before the filter: an emulator and its options may come first."""
    command = test["command"]
    return tuple(command[:next(i for i, word in enumerate(command) if word.startswith(FILTER))])


def batches(tests, jobs):
    """Lists of tests that share a program and how it is run."""
    programs = collections.defaultdict(list)
    for test in tests:
        known = properties(test)
        programs[program_of(test), known.get("WORKING_DIRECTORY"), tuple(known.get("ENVIRONMENT", []))].append(test)
    for how, own in programs.items():
        pieces = max(1, min(2 * jobs, len(own) // SMALLEST))
        for piece in range(pieces):
            yield how, own[piece * len(own) // pieces:(piece + 1) * len(own) // pieces]


def result(name, text, seconds, crash):
    """Of one test, from the text between its beginning and the next one's."""
    end = re.search(END.format(re.escape(name)), text)
    if end is None:
        return "fail", f"{text}\n{crash}\n"
    status = {"OK": "run", "FAILED": "fail", "SKIPPED": "skip"}[end[1]]
    return status, text[:end.start()]


def run_once(how, tests):
    """The results of those that were begun, and a failure more where the program fails though its tests do not."""
    program, folder, environment = how
    named = {filter_of(test): test["name"] for test in tests}
    started = time.monotonic()
    try:
        ran = subprocess.run([*program, FILTER + ":".join(named), "--gtest_also_run_disabled_tests"], cwd=folder,
                             env={**os.environ, **dict(each.split("=", 1) for each in environment)}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False)
        output, status = ran.stdout, ran.returncode
    except subprocess.TimeoutExpired as late:
        output, status = late.stdout or b"", None
    except OSError as error:
        return [Result(named[name], "fail", 0, f"{program[0]}: {error}\n") for name in named]
    text = output.decode(errors="replace")
    crash = f"The program did not end in {TIMEOUT} s." if status is None else f"The program ended with status {status}."
    begun = [each for each in RUN.finditer(text) if each[1] in named]
    results = []
    for each, after in zip(begun, [*begun[1:], None]):
        own = text[each.end():after.start() if after else len(text)]
        outcome, said = result(each[1], own, 0, crash)
        took = re.search(r"\((\d+) ms\)", own[len(said):])
        results.append(Result(named[each[1]], outcome, int(took[1]) / 1000 if took else 0, said))
    # Leaks, which a sanitizer finds at the end, or no test at all.
    if not results or (status != 0 and all(each.status != "fail" for each in results)):
        seconds = time.monotonic() - started
        results.append(Result(f"{os.path.basename(program[-1])} ({len(tests)} tests)", "fail", seconds, f"{text[-4000:]}\n{crash}\n"))
    return results


def run_batch(how, tests):
    results = []
    while tests:
        new = run_once(how, tests)
        results += new
        names = {each.name for each in new}
        left = [test for test in tests if test["name"] not in names]
        if len(left) == len(tests):
            break
        tests = left
    return results


def testcase(each):
    """As ctest writes it."""
    name = quoteattr(re.sub(r"\s+# GetParam.*", "", each.name))
    inner = {"skip": '\t\t<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>\n', "fail": '\t\t<failure message="Failed"/>\n'}
    return (f'\t<testcase name={name} classname={name} time="{each.seconds:.3f}" status="{"notrun" if each.status == "skip" else each.status}">\n'
            f'{inner.get(each.status, "")}\t\t<system-out>{escape(each.output.lstrip())}</system-out>\n\t</testcase>\n')


def of_ctest(folder, jobs, xml, names):
    """What ctest itself runs: its part of the file of results, and its status."""
    if not names:
        return "", 0
    which = "^(" + "|".join(re.sub(r"([][.+*?^$()|\\])", r"\\\1", name) for name in names) + ")$"
    ran = subprocess.run(["ctest", "--test-dir", folder, "-j", str(jobs), "--timeout", "900", "--output-on-failure", "--output-junit", xml,
                          "-R", which], check=False)
    with open(xml, encoding="utf-8", errors="replace") as file:
        cases = re.findall(r"^\t<testcase .*?^\t</testcase>\n|^\t<testcase [^\n]*/>\n", file.read(), re.M | re.S)
    return "".join(cases), ran.returncode


def main():
    folder, jobs, xml, *arguments = sys.argv[1:]
    jobs, xml = int(jobs), os.path.abspath(xml)
    tests = selected(folder, arguments)
    own = [test for test in tests if filter_of(test)]
    failed = False
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        largest_first = sorted(batches(own, jobs), key=lambda batch: -len(batch[1]))
        results = [each for done in pool.map(lambda batch: run_batch(*batch), largest_first) for each in done]
    for each in results:
        if each.status == "fail":
            failed = True
            print(f"{each.name}: failed\n{each.output}")
    others, status = of_ctest(folder, jobs, xml, [test["name"] for test in tests if not filter_of(test)])
    with open(xml, "w", encoding="utf-8") as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name="together">\n')
        file.writelines(testcase(each) for each in results)
        file.write(others + "</testsuite>\n")
    return 1 if failed or status != 0 or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
