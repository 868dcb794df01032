"""Runs fuzz targets: fuzz.py BUILD_FOLDER [TARGET] [SECONDS]

Corpora grow from run to run in build/fuzz/corpus, and an input that breaks a promise stays in build/fuzz/found. Executions are
counted in build/fuzz/executions.json, run by run, so that a long run can be several short ones.
"""

import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import seeds

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = ("safetensors", "gguf", "folder", "pack", "product", "convert", "arguments")
LONGEST = {"safetensors": 8192, "gguf": 4096, "folder": 8192, "pack": 400, "product": 600, "convert": 100, "arguments": 400}
SECONDS = 60


def options(target, build):
    made, dictionary = build / "seeds", build / "seeds" / f"{target}.dict"
    return [
        str(build / "corpus" / target),
        str(made / target),
        *(str(folder) for folder in [ROOT / "tests/fuzz/kept" / target] if folder.exists()),
        f"-artifact_prefix={build}/found/{target}-",
        f"-max_len={LONGEST[target]}",
        "-timeout=20",  # of the clock; a target itself counts its second of this process
        "-rss_limit_mb=1500",  # of a process whose inputs are kilobytes; most of it is AddressSanitizer's
        "-malloc_limit_mb=128",
        "-print_final_stats=1",
        "-use_value_profile=1",
        "-close_fd_mask=1",
        "-reload=0",
        *([f"-dict={dictionary}"] if dictionary.exists() else []),
    ]


def run(target, seconds, build):
    for folder in (build / "corpus" / target, build / "found"):
        folder.mkdir(parents=True, exist_ok=True)
    program = build / "tests/fuzz" / f"fuzz_{target}"
    environment = os.environ | {
        "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=0:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "METAL_MARLIN_PROFILE": "off",
    }
    log = build / f"{target}.log"
    with log.open("w") as said:
        status = subprocess.run(
            [program, f"-max_total_time={seconds}", *options(target, build)], stderr=said, stdout=subprocess.DEVNULL, env=environment
        ).returncode
    text = log.read_text(errors="replace")
    number = lambda pattern: int((re.findall(pattern, text) or ["0"])[-1])
    return {
        "target": target,
        "executions": number(r"stat::number_of_executed_units:\s*(\d+)"),
        "edges": number(r"cov: (\d+)"),
        "features": number(r"ft: (\d+)"),
        "edges_there": number(r"Loaded \d+ modules\s+\((\d+) inline"),
        "peak_mb": number(r"stat::peak_rss_mb:\s*(\d+)"),
        "seconds": seconds,
        "failed": status != 0,
        "why": (re.findall(r"(?:ERROR: .*|broken: .*|runtime error: .*)", text) or [f"exit status {status}"])[0],
        "date": datetime.date.today().isoformat(),
    }


def remember(build, results):
    """Adds executions without a failure to those of earlier runs; a failure begins anew."""
    path = build / "executions.json"
    total = json.loads(path.read_text()) if path.exists() else {}
    for result in results:
        before = total.get(result["target"], {"executions": 0, "seconds": 0})
        if result["failed"]:
            before = {"executions": -result["executions"], "seconds": -result["seconds"]}
        total[result["target"]] = {
            "executions": before["executions"] + result["executions"],
            "seconds": before["seconds"] + result["seconds"],
            "edges": result["edges"],
            "date": result["date"],
        }
    path.write_text(json.dumps(total, indent=1) + "\n")
    return total


def show(results, total):
    print(f"{'target':12} {'executions':>11} {'in all':>11} {'edges':>7} {'features':>9} {'peak MB':>8}  result")
    for r in results:
        said = "nothing found" if not r["failed"] else f"FAILED: {r['why']}"
        in_all = total[r["target"]]["executions"]
        print(f"{r['target']:12} {r['executions']:11} {in_all:11} {r['edges']:7} {r['features']:9} {r['peak_mb']:8}  {said}")


def chosen(arguments):
    targets, seconds = TARGETS, SECONDS
    for argument in arguments:
        if argument.isdigit() and int(argument) > 0:
            seconds = int(argument)
        elif argument in TARGETS:
            targets = (argument,)
        else:
            sys.exit(f"fuzz: expected a target ({', '.join(TARGETS)}) or a number of seconds, found {argument}")
    return targets, seconds


def main(build, *arguments):
    build = pathlib.Path(build).resolve()
    targets, seconds = chosen(arguments)
    shutil.rmtree(build / "seeds", ignore_errors=True)
    seeds.write_all(ROOT, build / "seeds")
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as workers:
        results = list(workers.map(lambda target: run(target, seconds, build), targets))
    show(results, remember(build, results))
    failed = [r["target"] for r in results if r["failed"]]
    if failed:
        print(f"inputs: {build}/found; logs: {', '.join(str(build / (t + '.log')) for t in failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
