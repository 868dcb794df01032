"""Runs fuzz targets: fuzz.py BUILD_FOLDER [TARGET] [SECONDS] [--keep]

An eighth of a run learns: libFuzzer then notes every pair of numbers that is compared, which takes most of the time. The rest
of the run only executes. Corpora grow from run to run in build/fuzz/corpus, and an input that breaks a promise stays in
build/fuzz/found. --keep runs nothing: it reduces the corpora to the inputs that reach something new, and moves them to
tests/fuzz, where later runs begin with them and every build replays them.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

import corpora
import seeds

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = ("safetensors", "gguf", "folder", "pack", "product", "convert", "arguments")
LONGEST = {"safetensors": 8192, "gguf": 4096, "folder": 8192, "pack": 400, "product": 600, "convert": 100, "arguments": 400}
SECONDS = 60
MOST_IN_CORPUS = 4000  # files; libFuzzer executes all of them at the begin of a run


def options(target, build, learns):
    """Of libFuzzer."""
    made, dictionary = build / "seeds", build / "seeds" / f"{target}.dict"
    return [
        str(build / "corpus" / target),
        str(made / target),
        *(str(folder) for folder in [ROOT / "tests/fuzz/kept" / target] if folder.exists()),
        f"-artifact_prefix={build / 'found'}/{target}-",
        f"-max_len={LONGEST[target]}",
        "-timeout=20",  # of the clock; a target itself counts its second of this process
        "-rss_limit_mb=1500",  # of a process whose inputs are kilobytes; most of it is AddressSanitizer's
        "-malloc_limit_mb=128",
        "-print_final_stats=1",
        f"-use_value_profile={int(learns)}",
        f"-entropic={int(learns)}",
        "-close_fd_mask=1",
        "-reload=0",
        *([f"-dict={dictionary}"] if dictionary.exists() else []),
    ]


def execute(target, build, *arguments):
    """Runs the program of a target: its exit status, its log and its seconds of CPU."""
    environment = os.environ | {
        # Short stacks of allocations and little freed memory kept take a quarter less time; uses after free are still seen.
        "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=0:detect_stack_use_after_return=0:malloc_context_size=6"
                        ":quarantine_size_mb=8:allocator_release_to_os_interval_ms=-1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    log = build / f"{target}.log"
    with log.open("w") as said:
        process = subprocess.Popen([build / "tests/fuzz" / f"fuzz_{target}", *arguments], stderr=said, stdout=subprocess.DEVNULL,
                                   env=environment)
        _, status, used = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), log.read_text(errors="replace"), used.ru_utime + used.ru_stime


def reduce(target, build, *others):
    """Leaves the smallest inputs of the corpus that together reach all that the corpus and `others` reach."""
    corpus, reduced = build / "corpus" / target, build / "reduced" / target
    shutil.rmtree(reduced, ignore_errors=True)
    reduced.mkdir(parents=True)
    status, text, _ = execute(target, build, "-merge=1", f"-max_len={LONGEST[target]}", str(reduced), str(corpus), *map(str, others))
    if status != 0:
        sys.exit(f"fuzz: reducing the corpus of {target} failed: {text[-500:]}")
    shutil.rmtree(corpus)
    reduced.rename(corpus)


def figures(text):
    """What libFuzzer printed of a run: executions, edges and features reached, and memory."""
    number = lambda pattern: int((re.findall(pattern, text) or ["0"])[-1])
    return {"executions": number(r"stat::number_of_executed_units:\s*(\d+)"), "edges": number(r"cov: (\d+)"),
            "features": number(r"ft: (\d+)"), "peak_mb": number(r"stat::peak_rss_mb:\s*(\d+)")}


def reason(status, text):
    return (re.findall(r"(?:ERROR: .*|broken: .*|runtime error: .*)", text) or [f"exit status {status}"])[0]


def run(target, seconds, build):
    for folder in (build / "corpus" / target, build / "found"):
        folder.mkdir(parents=True, exist_ok=True)
    if len(list((build / "corpus" / target).iterdir())) > MOST_IN_CORPUS:
        reduce(target, build)
    result = {"target": target, "executions": 0, "peak_mb": 0, "seconds": seconds, "cpu": 0, "failed": False, "why": ""}
    learning = max(seconds // 8, 1)
    for learns, part in ((True, learning), (False, seconds - learning)):
        if part == 0 or result["failed"]:
            continue
        status, text, cpu = execute(target, build, f"-max_total_time={part}", *options(target, build, learns))
        read = figures(text)
        result["executions"] += read["executions"]
        result["edges"], result["features"] = read["edges"], read["features"]
        result["peak_mb"] = max(result["peak_mb"], read["peak_mb"])
        result["cpu"] += cpu
        if status != 0:
            result["failed"] = True
            result["why"] = reason(status, text)
    return result


def show(results):
    print(f"{'target':12} {'executions':>11} {'a CPU s':>8} {'edges':>7} {'peak MB':>8}  result")
    for r in results:
        said = "nothing found" if not r["failed"] else f"FAILED: {r['why']}"
        rate = r["executions"] / max(r["cpu"], 0.01)
        print(f"{r['target']:12} {r['executions']:11} {rate:8.0f} {r['edges']:7} {r.get('peak_mb', 0):8}  {said}")


def keep(build, targets):
    for target in targets:
        if (build / "corpus" / target).exists():
            reduce(target, build, build / "seeds" / target)
            inputs = [path.read_bytes() for path in (build / "corpus" / target).iterdir()]
            print(f"{target}: {corpora.write(ROOT, target, inputs)} of {len(inputs)} inputs are kept")


def chosen(arguments):
    targets, seconds = TARGETS, SECONDS
    for argument in arguments:
        if argument == "--keep":
            seconds = 0
        elif argument.isdigit() and int(argument) > 0:
            seconds = int(argument)
        elif argument in TARGETS:
            targets = (argument,)
        else:
            sys.exit(f"fuzz: expected a target ({', '.join(TARGETS)}) or a number of seconds or --keep, found {argument}")
    return targets, seconds


def main(build, *arguments):
    build = pathlib.Path(build).resolve()
    targets, seconds = chosen(arguments)
    shutil.rmtree(build / "seeds", ignore_errors=True)
    seeds.write_all(ROOT, build / "seeds")
    for target in targets:
        corpora.unpack(ROOT, target, build / "seeds" / target)
    if seconds == 0:
        return keep(build, targets)
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as workers:
        results = list(workers.map(lambda target: run(target, seconds, build), targets))
    show(results)
    print(f"{min(r['executions'] for r in results)} executions of each target")
    failed = [r["target"] for r in results if r["failed"]]
    if failed:
        print(f"inputs: {build}/found; logs: {', '.join(str(build / (t + '.log')) for t in failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
