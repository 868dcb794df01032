"""Runs fuzz targets on a machine that has neither this repository nor a compiler.

`./dev fuzz --pack FOLDER` writes a folder with the programs, their first inputs, dictionaries and this file. There,
`FOLDER/run.sh SECONDS JOBS OUT` runs JOBS processes for SECONDS, without learning, until every target has GOAL executions, with those
that were counted when the folder was written; targets that need the least time come first. OUT then has summary.json, which `./dev fuzz --import` takes, the logs, the corpora and, if there are some, the inputs that failed.
"""

import concurrent.futures
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import uuid

import counts
import fuzz

GOAL = 10_050_000  # executions of a target; a little more than a release demands
SLICE = 45  # seconds of a process while several targets are open; the next one begins with what it has found
RATES = {"safetensors": 22600, "gguf": 40900, "folder": 15500, "pack": 12300, "product": 4600, "convert": 3100, "arguments": 3200}  # a CPU second
DATA = "METAL_MARLIN_FUZZ_DATA"
SCRIPT = """#!/bin/sh
# run.sh SECONDS JOBS OUT
exec python3 -B "$(dirname "$0")/away.py" "$@"
"""


def pack(root, build, folder):
    """Writes all that a run needs. Symbols stay here: `llvm-symbolizer` names the addresses of a report with them."""
    folder.mkdir(parents=True)
    (folder / "tests/fuzz").mkdir(parents=True)
    (folder / "libraries").mkdir()
    for target in fuzz.TARGETS:
        program = build / "tests/fuzz" / f"fuzz_{target}"
        subprocess.run(["strip", "-o", folder / "tests/fuzz" / program.name, program], check=True)
        for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines():
            name, _, path = line.strip().partition(" => ")
            if path and name.startswith(("libstdc++", "libfmt", "libxxhash", "libgcc_s")):
                shutil.copy(path.split()[0], folder / "libraries" / name)
    shutil.copytree(build / "seeds", folder / "seeds")
    shutil.copytree(root / "tests/data", folder / "data")
    for target in fuzz.TARGETS:
        for more in (root / "tests/fuzz/kept" / target, build / "corpus" / target):
            if more.exists():
                shutil.copytree(more, folder / "seeds" / target, dirs_exist_ok=True)
    for module in ("away.py", "fuzz.py", "counts.py", "corpora.py", "seeds.py"):
        shutil.copy(root / "tests/fuzz" / module, folder)
    (folder / "counted.json").write_text(json.dumps(counts.executions(root, build)) + "\n")
    (folder / "state").write_text(counts.state(root) + "\n")
    (folder / "run.sh").write_text(SCRIPT)
    (folder / "run.sh").chmod(0o755)


class Campaign:
    """What has been executed, and what is to be executed next."""

    def __init__(self, folder, out, seconds, workers):
        self.folder, self.out, self.end = folder, out, time.monotonic() + seconds
        self.workers, self.lock, self.jobs, self.slice = workers, threading.Lock(), 0, min(SLICE, seconds)
        self.results = {target: {"target": target, "executions": 0, "edges": 0, "cpu": 0.0, "jobs": 0, "failed": False, "why": ""}
                        for target in fuzz.TARGETS}
        self.running = dict.fromkeys(fuzz.TARGETS, 0)
        counted = folder / "counted.json"
        self.counted = json.loads(counted.read_text()) if counted.exists() else {}

    def missing(self, target):
        """Executions that a target needs beyond those of the processes that have ended."""
        return GOAL - self.counted.get(target, 0) - self.results[target]["executions"]

    def open_seconds(self, target):
        """CPU time that a target needs beyond that of the processes that run now."""
        one = self.results[target]
        rate = one["executions"] / one["cpu"] if one["cpu"] > 1 else RATES[target]
        return self.missing(target) / rate - self.running[target] * self.slice

    def take(self):
        """The next target, the number of its process, its seconds and its executions; nothing at the end. Each process begins with all
        inputs that were found, which can take half of a slice. The last target therefore gets one process a worker to the end.
        """
        with self.lock:
            left = self.end - time.monotonic()
            open_targets = [t for t, one in self.results.items() if not one["failed"] and self.missing(t) > 0]
            if not open_targets or left < 5 and self.jobs:
                return None
            target = min([t for t in open_targets if self.open_seconds(t) > 0] or open_targets, key=self.open_seconds)
            self.running[target] += 1
            self.jobs += 1
            if len(open_targets) > 1:
                return target, self.jobs, max(int(min(self.slice, left)), 1), self.missing(target)
            return target, self.jobs, max(int(left), 1), self.missing(target) // self.workers + 1

    def give(self, target, job, status, text, cpu):
        with self.lock:
            one = self.results[target]
            self.running[target] -= 1
            one["jobs"] += 1
            one["cpu"] = round(one["cpu"] + cpu, 1)
            read = fuzz.figures(text)
            one["executions"] += read["executions"]
            one["edges"] = max(one["edges"], read["edges"])
            if status != 0:
                one["failed"], one["why"] = True, one["why"] or f"job {job}: {fuzz.reason(status, text)}"

    def work(self):
        while (taken := self.take()) is not None:
            target, job, seconds, executions = taken
            found = self.out / "found" / f"{target}-{job}"
            found.mkdir(parents=True)
            status, text, cpu = fuzz.execute(target, self.folder, f"-max_total_time={seconds}", f"-runs={executions}", f"-seed={self.seed(job)}",
                                             *fuzz.options(target, self.folder, False, self.out / "corpus", found),
                                             log=self.out / "logs" / f"{job:04}-{target}.log")
            self.give(target, job, status, text, cpu)

    @staticmethod
    def seed(job):
        return int(time.time()) % 100_000 * 1000 + job


def sees_leaks(folder, out):
    """Whether LeakSanitizer can stop the threads of a process here; some containers do not let it."""
    _, text, _ = fuzz.execute("gguf", folder, "-runs=1", log=out / "logs/leaks.log")
    return "LeakSanitizer has encountered a fatal error" not in text


def main(seconds, jobs, out):
    folder, out = pathlib.Path(__file__).resolve().parent, pathlib.Path(out).resolve()
    os.environ[DATA] = str(folder / "data")
    os.environ["LD_LIBRARY_PATH"] = str(folder / "libraries")
    for part in ("logs", "found", *(f"corpus/{target}" for target in fuzz.TARGETS)):
        (out / part).mkdir(parents=True, exist_ok=True)
    leaks = sees_leaks(folder, out)
    if not leaks:
        os.environ["METAL_MARLIN_FUZZ_LEAKS"] = "0"
    campaign = Campaign(folder, out, int(seconds), int(jobs))
    with concurrent.futures.ThreadPoolExecutor(max_workers=int(jobs)) as workers:
        for worker in [workers.submit(campaign.work) for _ in range(int(jobs))]:
            worker.result()
    results = list(campaign.results.values())
    summary = {"run": uuid.uuid4().hex[:12], "state": (folder / "state").read_text().strip(), "date": datetime.date.today().isoformat(),
               "leaks_seen": leaks, "targets": results}
    for part in ("logs", "found", "corpus"):
        with tarfile.open(out / f"{part}.tar.gz", "w:gz") as tar:
            tar.add(out / part, part)
        shutil.rmtree(out / part)
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    fuzz.show(results, {one["target"]: one["executions"] for one in results})
    return 1 if any(one["failed"] for one in results) else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: run.sh SECONDS JOBS OUT")
    sys.exit(main(*sys.argv[1:]))
