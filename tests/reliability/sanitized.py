"""Runs tests in a tree of sanitizers: sanitized.py tsan|integer. Prints how many passed, and how many cases they counted."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of a preset: its programs by their targets, and the tests of each.
TESTS = {
    "tsan": {"tests/abi/abi_threads_test": "ThreadsTest.AnyNumberOfThreadsShareAContext"},
    "integer": {"tests/unit/unit_checkpoints_test": "*", "tests/fuzz/fuzz_replay_test": "*"},
}


def build(preset, environment, calm):
    targets = [pathlib.Path(program).name for program in TESTS[preset]]
    for command in (["cmake", "--preset", preset, "-DMETAL_MARLIN_SANITIZE_KERNELS=OFF"],
                    [*calm, "cmake", "--build", f"build/{preset}", "-j2", "--target", *targets]):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout[-2000:] + done.stderr[-2000:])
            return False
    return True


def outcome(report):
    """How many tests passed, and their cases."""
    tests = [test for suite in json.loads(report.read_text())["testsuites"] for test in suite["testsuite"]]
    passed = [test for test in tests if test["result"] == "COMPLETED" and not test.get("failures")]
    return len(passed), sum(int(test.get("cases", 0)) for test in passed)


def main(preset):
    calm = ["setarch", "-R"] if shutil.which("setarch") else []  # where mappings are spread too widely for ThreadSanitizer
    environment = os.environ | {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    if shutil.which("ccache"):
        environment |= {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_SLOPPINESS": "pch_defines,time_macros"}
    if not build(preset, environment, calm):
        return 1
    passed, cases, status = 0, 0, 0
    for program, tests in TESTS[preset].items():
        report = ROOT / f"build/{preset}/{pathlib.Path(program).name}.json"
        report.unlink(missing_ok=True)
        done = subprocess.run([*calm, ROOT / f"build/{preset}" / program, f"--gtest_filter={tests}", f"--gtest_output=json:{report}"],
                              env=environment)
        status = status or done.returncode
        if done.returncode == 0:
            passed, cases = (a + b for a, b in zip((passed, cases), outcome(report)))
    print(f"passed: {passed}\ncases: {cases}")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
