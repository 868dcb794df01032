#!/usr/bin/env python3
"""Strong scaling of the chat over MPI on one machine: the same model and tokens on 1, 2, 4, ... ranks with threads divided.

    scaling.py CHAT CHAT_MPI MODEL.gguf [--ranks 1,2,4] [--threads N] [--prompt 128] [--generate 64] [--repeat 5] [--json]

For each number of ranks: the median time of a token (M = 1) and of a token of the prompt (M = --prompt), the speed-up over one
process, and the share of the time that rank 0 spends in sums over ranks. Nothing else should run meanwhile.
"""

import argparse
import json
import os
import re
import statistics
import subprocess


def command(options, ranks):
    threads = str(max(1, options.threads // ranks))
    if ranks == 1:
        return [options.chat, options.model, "--threads", threads]
    cores = ["--map-by", f"slot:PE={threads}", "--bind-to", "core"] if options.threads >= ranks else ["--oversubscribe", "--bind-to", "none"]
    return ["mpirun", *cores, "-n", str(ranks), options.chat_mpi, options.model, "--threads", threads]


def measure(options, ranks):
    environment = dict(os.environ)
    if os.geteuid() == 0:  # mpirun wants to hear twice that root means it
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    lines = f"{options.prompt} {options.generate}\n" * (options.repeat + 1)
    done = subprocess.run([*command(options, ranks), "--bench", "--profile"], input=lines, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{ranks} ranks: {done.stderr[-500:]}")
    runs = [json.loads(line) for line in done.stdout.splitlines()][1:]  # the first one warms up
    stages = {name.strip(): float(seconds) for name, seconds in re.findall(r"^(.+?) +([0-9.]+) s +[0-9.]+ %$", done.stderr, re.MULTILINE)}
    return {
        "ranks": ranks,
        "token_seconds": statistics.median(run["generate_seconds"] / options.generate for run in runs),
        "prompt_token_seconds": statistics.median(run["prompt_seconds"] / options.prompt for run in runs),
        "share_of_sums": stages.get("sums over ranks", 0) / (sum(stages.values()) or 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chat")
    parser.add_argument("chat_mpi")
    parser.add_argument("model")
    parser.add_argument("--ranks", default="1,2,4", type=lambda text: [int(each) for each in text.split(",")])
    parser.add_argument("--threads", default=len(os.sched_getaffinity(0)), type=int, help="of all ranks together")
    parser.add_argument("--prompt", default=128, type=int)
    parser.add_argument("--generate", default=64, type=int)
    parser.add_argument("--repeat", default=5, type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(options, ranks) for ranks in options.ranks]
    if options.json:
        print(json.dumps(rows))
        return
    print("ranks  ms a token  speed-up  ms a token of the prompt  speed-up  share of sums")
    for row in rows:
        one = rows[0]
        print(f"{row['ranks']:5}  {1e3 * row['token_seconds']:10.3f}  {one['token_seconds'] / row['token_seconds']:8.2f}"
              f"  {1e3 * row['prompt_token_seconds']:24.3f}  {one['prompt_token_seconds'] / row['prompt_token_seconds']:8.2f}"
              f"  {100 * row['share_of_sums']:11.1f} %")


if __name__ == "__main__":
    main()
