#!/usr/bin/env python3
"""Strong scaling of the chat over MPI on one machine: the same model and tokens on 1, 2, ... ranks with threads divided.

    scaling.py CHAT CHAT_MPI MODEL.gguf [--ranks 1,2,3] [--threads N] [--rows 1,16,64,128,512] [--repeat 5]

For each number of ranks and of rows (tokens that run together; 1: a token of an answer): the median time of a step, the speed-up
over one process, and the share of the time that rank 0 spends in sums over ranks. Nothing else should run meanwhile.
"""

import argparse
import json
import os
import re
import statistics
import subprocess

GENERATE = 64  # tokens of an answer


def command(options, ranks):
    threads = str(max(1, options.threads // ranks))
    if ranks == 1:
        return [options.chat, options.model, "--threads", threads]
    cores = ["--map-by", f"slot:PE={threads}", "--bind-to", "core"] if options.threads >= ranks else ["--oversubscribe", "--bind-to", "none"]
    return ["mpirun", *cores, "-n", str(ranks), options.chat_mpi, options.model, "--threads", threads]


def measure(options, ranks, rows):
    """Milliseconds of a step, and the share of the sums."""
    environment = dict(os.environ)
    if os.geteuid() == 0:  # mpirun wants to hear twice that root means it
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    line = f"1 {GENERATE}\n" if rows == 1 else f"{rows} 0\n"
    done = subprocess.run([*command(options, ranks), "--bench", "--profile"], input=line * (options.repeat + 1),
                          capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{ranks} ranks: {done.stderr[-500:]}")
    runs = [json.loads(line) for line in done.stdout.splitlines()][1:]  # the first one warms up
    stages = {name.strip(): float(seconds) for name, seconds in re.findall(r"^(.+?) +([0-9.]+) s +[0-9.]+ %$", done.stderr, re.MULTILINE)}
    step = statistics.median(run["generate_seconds"] / GENERATE if rows == 1 else run["prompt_seconds"] for run in runs)
    return 1e3 * step, stages.get("sums over ranks", 0) / (sum(stages.values()) or 1)


def main():
    numbers = {"type": lambda text: [int(each) for each in text.split(",")]}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chat")
    parser.add_argument("chat_mpi")
    parser.add_argument("model")
    parser.add_argument("--ranks", default=[1, 2, 3], **numbers)
    parser.add_argument("--threads", default=len(os.sched_getaffinity(0)), type=int, help="of all ranks together")
    parser.add_argument("--rows", default=[1, 16, 64, 128, 512], **numbers)
    parser.add_argument("--repeat", default=5, type=int)
    options = parser.parse_args()
    print("rows  ranks  ms a step  speed-up  share of sums")
    for rows in options.rows:
        one = None
        for ranks in options.ranks:
            step_ms, share = measure(options, ranks, rows)
            one = one or step_ms
            print(f"{rows:4}  {ranks:5}  {step_ms:9.3f}  {one / step_ms:8.2f}  {100 * share:11.1f} %", flush=True)


if __name__ == "__main__":
    main()
