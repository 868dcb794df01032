#!/usr/bin/env python3
"""Strong scaling of the chat over MPI on one machine: the same model and tokens on 1, 2, ... ranks with threads divided.

    scaling.py CHAT CHAT_MPI MODEL.gguf [--ranks 1,2,3] [--threads N] [--rows 1,16,64,128,512] [--repeat 5] [--json]

For each number of ranks and of rows (tokens that run together; 1: a token of an answer): the median time of a step, the speed-up
over one process, and the share of the time that rank 0 spends in sums over ranks. Nothing else should run meanwhile. --json prints
one object a line, which scaling_model.py reads.
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
    turns = {"oversubscribed": True} if ranks > options.threads else {}  # ranks take turns on the processors
    return {
        "measured": "chat",
        "ranks": ranks,
        "threads": max(1, options.threads // ranks),
        "rows": rows,
        "step_ms": 1e3 * step,
        "share_of_communication": stages.get("sums over ranks", 0) / (sum(stages.values()) or 1),
        "sums": 2 * options.layers + 1,
        "bytes_of_a_sum": 4 * options.width * rows,
        "bytes_gathered": 4 * options.vocabulary,
        **turns,
    }


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
    parser.add_argument("--layers", default=30, type=int, help="of the model; the defaults are those of SmolLM2-135M")
    parser.add_argument("--width", default=576, type=int)
    parser.add_argument("--vocabulary", default=49152, type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    one = {}
    if not options.json:
        print("rows  ranks  ms a step  speed-up  share of sums")
    for rows in options.rows:
        for ranks in options.ranks:
            row = measure(options, ranks, rows)
            one.setdefault(rows, row["step_ms"])
            if options.json:
                print(json.dumps(row), flush=True)
            else:
                print(f"{rows:4}  {ranks:5}  {row['step_ms']:9.3f}  {one[rows] / row['step_ms']:8.2f}"
                      f"  {100 * row['share_of_communication']:11.1f} %", flush=True)


if __name__ == "__main__":
    main()
