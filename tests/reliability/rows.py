"""One row a campaign. A row that needs what a machine has not falls short there, and says why.

usage: rows.py [--long] [ROW...]: prints the presets and their targets that these rows (without any: all) run, a line for each preset
"""

import collections
import dataclasses
import pathlib
import re
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fuzz"))
import counts  # noqa: E402
from fuzz import TARGETS as FUZZ_TARGETS  # noqa: E402

UNIT, ABI, KERNELS, GPU = (f"build/release/tests/{folder}" for folder in ("unit", "abi", "kernels", "gpu"))


@dataclasses.dataclass
class Row:
    number: str
    campaign: str
    unit: str  # of the figure
    least: int  # of a short run
    least_long: int
    short: list
    long: typing.Optional[list] = None  # where it is other commands
    measure: typing.Callable = lambda reached: reached.cases
    what: str = "none failed"  # is demanded beside the figure
    also: typing.Callable = lambda: ""  # is said behind the figure

    def commands(self, long):
        return self.long if long and self.long is not None else self.short

    def demanded(self, long):
        return self.least_long if long else self.least

    def demand(self, long):
        return f"{self.demanded(long):,} {self.unit}, {self.what}"


def tests(reached):
    return reached.passed


def printed_number(pattern):
    """The sum of the numbers that were printed so."""
    return lambda reached: sum(int(found) for found in re.findall(pattern, reached.printed, re.M))


def executions(_):
    """Of the target that has run least."""
    total = counts.executions(ROOT, ROOT / "build/fuzz")
    return min(total.get(target, 0) for target in FUZZ_TARGETS)


def executions_now():
    """The part of them that ran the sources as they are."""
    now = counts.executions(ROOT, ROOT / "build/fuzz", counts.state(ROOT))
    return f" ({min(now.get(target, 0) for target in FUZZ_TARGETS):,} of them with the present sources)"


def gtest(program, *names):
    return f"{program} --gtest_filter='{':'.join(names)}'"


EXPORTS = len(re.findall(r"^ +marlin_[a-z_]+;", (ROOT / "src/api/exports.map").read_text(), re.M))
SYMBOLS = "tests/abi/symbols.sh build/release/libmetal-marlin.so src/api/exports.map"

ROWS = [
    Row("1", "libFuzzer with AddressSanitizer and UBSan on seven targets: parsers, descriptors, arguments; 1 s and four times "
        "the headers an input", "executions of each target in all", 1000, 10**7, ["./dev fuzz 15"], ["./dev fuzz 60"], executions,
        also=executions_now),
    Row("2", "damaged files: every truncation, every bit, every integer, long words", "files", 10000, 10000,
        [gtest(f"{UNIT}/unit_checkpoints_test", "CheckpointMalformed.*", "CheckpointVulnerability.*"),
         gtest(f"{UNIT}/unit_huge_test", "CheckpointMemory.WordsOfJson")]),
    Row("3", "files at random, read as the packages gguf and safetensors read them", "files", 1000, 1000,
        ["build/env/differential/bin/python -B tests/roundtrip/differential.py $PWD/build/release/libmetal-marlin.so 1000"],
        measure=printed_number(r"(\d+) files"), what="no disagreement"),
    Row("4", "the n-th allocation fails, for every n and every function", "functions and sequences of them", EXPORTS + 5, EXPORTS + 7,
        [gtest(f"{ABI}/abi_memory_test", "*"), gtest(f"{GPU}/gpu_memory_test", "*")],
        [gtest(f"{ABI}/abi_memory_test", "*"), gtest(f"{GPU}/gpu_memory_test", "*"), gtest(f"{GPU}/gpu_memory_testbed_test", "*")],
        tests, "no allocation lost, and over the shader test-bed no bit changed"),
    Row("5", "every call of a GPU device fails in every way", "operations and faults", 50, 50,
        [gtest(f"{GPU}/gpu_mock_test", "*Faults.*", "ALostDevice.*")], measure=tests),
    Row("6.1", "coverage of parsers and the C ABI (src/checkpoints, src/layouts, src/api)", "% of lines", 100, 100,
        ["python3 -B tests/reliability/coverage.py parsers"], measure=printed_number(r"lines: (\d+)"), what="95 % of branches"),
    Row("6.2", "coverage of the rest", "% of lines", 90, 90, ["python3 -B tests/reliability/coverage.py rest"],
        measure=printed_number(r"lines: (\d+)"), what="measured on the same tests"),
    Row("7", "threads with one context under ThreadSanitizer: mixed calls", "calls", 400, 10**5,
        [gtest("TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 setarch -R build/tsan/tests/abi/abi_threads_test",
               "ThreadsTest.AnyNumberOfThreadsShareAContext")], what="no report"),
    Row("8.1", "AddressSanitizer and UBSan on everything", "tests", 1000, 1000, ["./dev test sanitizers"], ["./dev test whole sanitizers asan-gcc"],
        measure=printed_number(r"(\d+) passed, \d+ failed, \d+ skipped$"), what="no report"),
    Row("8.2", "the C ABI under valgrind with AVX2", "tests", 10, 60,
        [gtest(f"METAL_MARLIN_ISA=avx2 valgrind -q --error-exitcode=9 {ABI}/abi_calls_test", "Weights.*", "Rules.*")],
        [gtest(f"METAL_MARLIN_ISA=avx2 valgrind -q --error-exitcode=9 {ABI}/abi_calls_test", "*-*Modes*:*LinearTime:*ManyLayers*:*Pairs*")],
        tests, "no report"),
    Row("8.3", "the parsers under Clang's sanitizers of integers: no overflow, signed or unsigned, and no value that a conversion "
        "changes", "tests", 200, 200,
        [gtest(f"UBSAN_OPTIONS=print_stacktrace=1 build/integer/tests/{program}", "*")
         for program in ("unit/unit_checkpoints_test", "fuzz/fuzz_replay_test")], measure=tests, what="no report"),
    Row("9", "decoding of every code with every scale, bit for bit", "tests", 20, 20,
        [gtest(f"{UNIT}/unit_formats_test", "Decode.*", "Codecs.*")], measure=tests),
    Row("10", "products against float64: a 3-way covering array, and every M from 1 to 257 for each kernel", "products", 1500, 2300,
        [gtest(f"{KERNELS}/kernels_covering_test", "*Products.*", "CoveringArray.*"), gtest(f"{KERNELS}/kernels_rows_test", "*")],
        what="none outside its bound"),
    Row("11", "NaN, infinities, -0, subnormals; the host's floating-point modes", "tests", 60, 60,
        [gtest(f"{KERNELS}/kernels_special_values_test", "*"), gtest(f"{ABI}/abi_calls_test", "Modes.*")], measure=tests),
    Row("12", "the same bits with 1, 2, 3 and 5 threads", "runs", 5000, 10000,
        [gtest(f"{KERNELS}/kernels_determinism_test", "*ThreadsDoNotMatter*")]),
    Row("13", "guard pages on both sides of every operand and of scratch; kernels alone; experts that differ; overlaps", "tests", 40, 40,
        [gtest(f"{KERNELS}/kernels_guard_pages_test", "*"), gtest(f"{KERNELS}/kernels_experts_test", "ExpertsOfActOrder.*"),
         gtest(f"{UNIT}/kernels_test", "*EveryKernel*"),
         gtest(f"{ABI}/abi_calls_test", "*Overlap*")], measure=tests, what="no stray access"),
    Row("14", "dlopen, call, dlclose; two copies in one process", "loops", 300, 10000,
        [gtest(f"{ABI}/abi_plugin_test", "PluginTest.*")], what="no growth, no thread left"),
    Row("15", "fork after the threads have worked; the child computes", "children", 100, 1000,
        [gtest(f"{ABI}/abi_plugin_test", "Fork.*")], what="no hang"),
    Row("16", "every constant, size and offset of the ABI, and the list of exports", "checks", 2, 2,
        [SYMBOLS, "build/release/tests/abi/abi_pinned"], measure=tests, what="no change"),
    Row("17", "every export from a table of signatures, each argument bad in every way", "exports", EXPORTS, EXPORTS,
        [gtest(f"{ABI}/abi_exports_test", "All/Exports.EveryBadValue*"), gtest(f"{ABI}/abi_callbacks_test", "Callbacks.*")],
        measure=tests),
    Row("18", "dimensions near 2^31, 2^32 and 2^63, and of 0; loads of thin layers, in proportion to their files", "tests", 12, 12,
        [gtest(f"{ABI}/abi_calls_test", "Extremes.*", "Rules.Sizes*"), gtest(f"{UNIT}/unit_huge_test", "LoadMemory.*"),
         gtest(f"{UNIT}/unit_checkpoints_test", "CheckpointMalformed.GiantDimensions")], measure=tests, what="each a typed error"),
    Row("19", "nothing in the library can end the process or print", "checks", 2, 2,
        [SYMBOLS, gtest(f"{ABI}/abi_plugin_test", "PluginTest.NothingIsPrinted")], measure=tests),
    Row("20", "Metal shaders on the checked test-bed: pairs of everything, planted mistakes", "tests", 200, 200,
        ["./dev test shaders"], ["./dev test whole shaders"], printed_number(r"(\d+) passed, \d+ failed, \d+ skipped$")),
    Row("22", "packed files: damaged, of other versions, of other byte orders, and lying in every number under right checksums",
        "tests", 100, 100,
        ["python3 -B tests/programs.py build/release container"],
        measure=printed_number(r"(\d+) passed, \d+ failed, \d+ skipped$")),
    Row("23", "checks and plan of a product of 640 x 2048 at M = 1: at most 6,000 instructions; 1.5 us", "instructions to spare", 0, 0,
        ["python3 -B tests/reliability/cost.py build/release/tests/reliability/reliability_cost"], measure=printed_number(r"to spare: (-?\d+)")),
]


def targets(arguments):
    """What these rows run, as targets of a build, by its preset."""
    wanted = set(arguments) - {"--long"}
    found = collections.defaultdict(set)
    for row in (row for row in ROWS if not wanted or row.number in wanted):
        for command in row.commands("--long" in arguments):
            for tree, folder, program in re.findall(r"build/(release|tsan|integer)/tests/(\w+)(?:/(\w+))?", command):
                # Programs of the shader test-bed are no targets where it is not installed.
                found[tree.replace("release", "tests")].add(program if program and "testbed" not in program else f"tests/{folder}/all")
            if "build/release" in command:
                found["tests"] |= {"metal_marlin"} | ({"metal-marlin", "container_test"} if "programs.py" in command else set())
    return found


if __name__ == "__main__":
    for preset, names in targets(sys.argv[1:]).items():
        print(preset, *sorted(names))
