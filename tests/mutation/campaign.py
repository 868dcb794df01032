"""Runs the tests that reach an edit, with the edit on. A test that fails, crashes or does not end has killed it."""
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile

IMAGES = pathlib.Path(__file__).resolve().parent.parent.parent / "build/mutate/images"  # the shaders, compiled once
GRACE = 10  # seconds of processor time that a program may take beyond eight times its tests' usual ones
MEMORY = 12 << 30  # an edit may ask for any amount
# The shader test-bed reserves addresses, though little memory, for every access that it checks.
UNLIMITED = {"gpu_experts_test", "exact_test", "metal_host_testbed", "metal_host_kernels"}
LONGEST_PROGRAM = 1500  # seconds that all tests of a program may take


@dataclasses.dataclass
class Test:
    program: str
    name: str
    seconds: float


@dataclasses.dataclass
class Verdict:
    killed: bool
    by: str  # the test that failed, or why none did


def _limit(cpu_seconds, program):
    def in_child():
        os.nice(5)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if program.name not in UNLIMITED:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
    return in_child


def _run(program, arguments, environment, cpu_seconds):
    """(status, output); the status is None if it ran past its limits: processor time, or for threads that wait forever, a clock."""
    environment = {**os.environ, "METAL_ON_CPU_CACHE": str(IMAGES), **environment}
    process = subprocess.Popen([program, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, preexec_fn=_limit(cpu_seconds, program), start_new_session=True,
                               cwd=program.parent)
    try:
        output, _ = process.communicate(timeout=30 + 6 * cpu_seconds)
        status = None if process.returncode == -signal.SIGXCPU else process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        status = None
    return status, output.decode(errors="replace")


def _reached_by_program(program, edits, folder, tests_of_it):
    """The (test name, seconds, numbers of the edits it reaches) of the program's tests that pass with all edits off."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        marks, tests = pathlib.Path(own) / "marks", pathlib.Path(own) / "tests"
        marks.write_bytes(bytes(max(edits, 1)))
        _run(program, ["--gtest_brief=1", f"--gtest_filter={tests_of_it}"],
             {"METAL_MARLIN_REACHED": str(marks), "METAL_MARLIN_REACHED_BY_TEST": str(tests)}, LONGEST_PROGRAM)
        found = []
        for line in tests.read_text().splitlines() if tests.exists() else []:
            name, outcome, milliseconds, numbers = line.split("\t")
            if outcome == "passed":
                found.append((name, int(milliseconds) / 1000, [int(number) for number in numbers.split()]))
        return found


def reached(programs, quick_tests, edits, folder, jobs, say):
    """For each number of an edit, the tests that reach it. Kept for each program until it is built anew. `quick_tests` is the
    filter of a program's name, if it has one."""
    kept_at = folder / "reached"
    kept_at.mkdir(parents=True, exist_ok=True)
    of_edit = {number: [] for number in range(edits)}

    def of_program(program):
        digest = hashlib.sha256(program.read_bytes() + quick_tests.get(program.name, "*").encode())
        library = folder / "build/libmetal-marlin.so"  # what programs that link nothing of the inside run
        if library.exists() and program.parent.name == "abi":
            digest.update(library.read_bytes())
        kept = kept_at / f"{program.name}-{digest.hexdigest()[:16]}.json"
        if not kept.exists():
            for old in kept_at.glob(f"{program.name}-*.json"):
                old.unlink()
            kept.write_text(json.dumps(_reached_by_program(program, edits, folder, quick_tests.get(program.name, "*"))))
        return program, json.loads(kept.read_text())

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for program, tests in pool.map(of_program, programs):
            seconds = sum(test[1] for test in tests)
            say(f"{program.name}: {len(tests)} tests pass with all edits off, in {seconds:.1f} s")
            for name, seconds, numbers in tests:
                for number in numbers:
                    of_edit[number].append(Test(str(program), name, seconds))
    return of_edit


def _killer(output, status):
    failed = re.search(r"^\[  FAILED  \] ([\w/.]+)", output, re.M)
    if failed:
        return failed[1]
    begun = re.findall(r"^\[ RUN      \] ([\w/.]+)", output, re.M)
    how = "does not end" if status is None else f"ends with {signal.Signals(-status).name}" if status < 0 else f"exits with {status}"
    return f"{begun[-1] if begun else 'the program'} {how}"


def run_edit(number, tests, seconds, folder):
    """Whether some test that reaches the edit fails with it on. Cheap tests run first, and in all up to so many seconds of them."""
    order = sorted(tests, key=lambda test: test.seconds)
    some = [test for i, test in enumerate(order) if i == 0 or sum(t.seconds for t in order[:i + 1]) <= seconds]
    for cheap in (True, False):
        by_program = {}
        for test in some:
            if (test.seconds < 0.1) == cheap:
                by_program.setdefault(test.program, []).append(test)
        for program, own in sorted(by_program.items(), key=lambda item: sum(test.seconds for test in item[1])):
            with tempfile.NamedTemporaryFile("w", dir=folder) as flags:
                flags.write("--gtest_filter=" + ":".join(test.name for test in own) + "\n")
                flags.flush()
                status, output = _run(pathlib.Path(program), [f"--gtest_flagfile={flags.name}", "--gtest_fail_fast"],
                                      {"METAL_MARLIN_MUTANT": str(number)}, int(GRACE + 8 * sum(test.seconds for test in own)))
            if status != 0:
                return Verdict(True, _killer(output, status))
    if not tests:
        return Verdict(False, "no test reaches it")
    left = len(tests) - len(some)
    return Verdict(False, f"{len(some)} tests pass" + (f", {left} slow ones did not run" if left else ""))
