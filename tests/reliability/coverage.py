"""Which lines and branches of the sources the short tests reach: coverage.py parsers|rest

Builds tests with the preset `coverage`, runs them once, and prints the figures, and with `parsers` the lines that nothing reaches.
The parsers have tests of their own, which are all that `parsers` builds. Exceptions that the compiler adds to calls are no
branches. What is missed in each file is in build/coverage/missed.txt.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREE = ROOT / "build/coverage"
PARSERS = ("src/checkpoints/", "src/layouts/", "src/api/")
OURS = ("src/",)
LEAST_BRANCHES = 95
# Kernels of other instruction sets and drivers of GPUs that this machine has not run nowhere in these tests.
LEFT_OUT = ("src/backends/cuda/", "src/backends/metal/", "src/backends/cpu/x86/", "src/backends/cpu/arm64/")
KERNELS_ALONE = "kernels_"  # tests of kernels and nothing else
# These take long without optimization.
LEFT_OUT_TESTS = ("*LinearTime*", "*Huge*", "*ManyLayers*", "Modes.*", "Stack.*", "CheckpointMalformed.*", "*LoadAtAnyBorder*",
                  "*BytesOf*", "Convert.CancelledAtAny*", "Convert.Threads*", "Packing.PutsEvery*", "Packing.UnpackGives*",
                  "Independence.FindsThe*")
BY_CHANCE = ("*MadeInputs*",)  # these reach other lines in each run
PARSERS_TESTS = ("unit_checkpoints_test", "abi_inside_test", "abi_calls_test", "abi_exports_test", "abi_callbacks_test",
                 "abi_memory_test", "fuzz_replay_test", "container_test", "gpu_forced_kernel_test")
REST = ("tests/unit/all", "tests/abi/all", "gpu_mock_test", "gpu_memory_test")


def passes(program, environment):
    log = program.parent / f"{program.name}.log"
    command = [program, f"--gtest_filter=-{':'.join(LEFT_OUT_TESTS + BY_CHANCE)}"]
    return subprocess.run(command, cwd=program.parent, env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT).returncode == 0


def run_programs(programs, environment):
    for old in TREE.rglob("*.gcda"):
        old.unlink()
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as workers:
        for program, passed in zip(programs, workers.map(lambda p: passes(p, environment), programs)):
            if not passed:
                print(f"{program.name} failed")


def measured(which):
    """The figures of each file, from gcovr."""
    report = TREE / "coverage.json"
    # Longer tests reach no more lines.
    environment = {name: value for name, value in os.environ.items() if name != "METAL_MARLIN_WHOLE"}
    run = lambda *command: subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    run("cmake", "--preset", "coverage", "-DMETAL_MARLIN_TOOLS=OFF")
    run("cmake", "--build", "build/coverage", "-j2", "--target", *PARSERS_TESTS, *(REST if which == "rest" else ()))
    built = sorted(p for p in TREE.glob("tests/*/*_test") if p.is_file() and not p.name.startswith(KERNELS_ALONE))
    run_programs([p for p in built if which == "rest" or p.name in PARSERS_TESTS], environment)
    run("gcovr", "-r", ".", "--filter", "src/", "--exclude-throw-branches", "--exclude-unreachable-branches", "-j2",
        "--object-directory", "build/coverage", "--json-summary", str(report), "--json", str(TREE / "lines.json"), "build/coverage")
    return json.loads(report.read_text())


def missed():
    """The lines of the parsers that nothing reaches; writes those of all files, and the lines with branches not taken."""
    unreached, report = [], []
    for file in json.loads((TREE / "lines.json").read_text())["files"]:
        code = [line for line in file["lines"] if not line.get("gcovr/noncode")]
        lines = [line["line_number"] for line in code if line["count"] == 0]
        branches = {line["line_number"]: sum(branch["count"] == 0 for branch in line["branches"]) for line in code}
        partial = [f"{line} ({count})" for line, count in branches.items() if count > 0]
        if lines or partial:
            report.append((-sum(branches.values()), f"{file['file']}: {sum(branches.values())} branches: {', '.join(partial)}; "
                           f"lines: {', '.join(map(str, lines))}"))
        if file["file"].startswith(PARSERS):
            unreached += [f"{file['file']}:{line}" for line in lines]
    (TREE / "missed.txt").write_text("\n".join(line for _, line in sorted(report)) + "\n")
    return unreached


def percent(files, kind):
    covered, total = (sum(file[f"{kind}_{what}"] for file in files) for what in ("covered", "total"))
    return 100 * covered / total if total else 0


def main(which):
    files = [f for f in measured(which)["files"] if f["filename"].startswith(OURS) and not f["filename"].startswith(LEFT_OUT)]
    chosen = [f for f in files if f["filename"].startswith(PARSERS) == (which == "parsers")]
    lines, branches = percent(chosen, "line"), percent(chosen, "branch")
    # Whole percents, cut off: 99.9 is not 100.
    print(f"{int(lines)} % of lines ({lines:.2f}), {branches:.2f} % of branches, in {len(chosen)} files")
    if which != "parsers":
        return 0 if lines >= 90 else 1
    print("\n".join(missed()))
    return 0 if lines == 100 and branches >= LEAST_BRANCHES else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
