#!/usr/bin/env python3
"""The chat over MPI: the logits and the answers of one process on 2 and 3 ranks, and what every rank says when one fails.

    distributed_test.py CHAT CHAT_MPI METAL_MARLIN

Models are small and made here.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

CHAT, CHAT_MPI, MARLIN = sys.argv[1:4]
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parents[1] / "llm")]
from made_models import made
from told import expect, run_tests, test

TEXT = "The quick brown fox jumps over the lazy dog; 0123456789 times.\n"
# Sums over ranks add in another order. A logit of these models is of the size 1.
ROUNDING = 1e-3
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
               "OMPI_MCA_mpi_yield_when_idle": "1"}


def mpirun(ranks, *arguments, text=b"", code=0, timeout=None, wait=120):
    """Standard output and error of CHAT_MPI on so many ranks. A number of ranks may be a list of the arguments of each."""
    each = ranks if isinstance(ranks, list) else None
    command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    if each is None:
        command += ["-n", str(ranks), CHAT_MPI, *arguments, "--threads", "1"]
    else:
        for i, own in enumerate(each):
            command += [":"] * (i > 0) + ["-n", "1", CHAT_MPI, *own, *arguments, "--threads", "1"]
    environment = {**ENVIRONMENT, **({"METAL_MARLIN_MPI_TIMEOUT": str(timeout)} if timeout else {})}
    done = subprocess.run(command, input=text, capture_output=True, timeout=wait, env=environment)
    error = done.stderr.decode(errors="replace")
    expect((done.returncode == 0) == (code == 0), f"exit status {done.returncode}: {error[-600:]}")
    return done.stdout, error


def one(model, *arguments):
    done = subprocess.run([CHAT, model, *arguments, "--threads", "1"], capture_output=True, timeout=120)
    expect(done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-300:]}")
    return done.stdout


def logits(scratch, run, model):
    (scratch / "text").write_text(TEXT)
    path = scratch / "logits.npy"
    path.unlink(missing_ok=True)
    run(model, "--text", str(scratch / "text"), "--logits", str(path))
    return np.load(path)


def expect_the_same(scratch, name, ranks, **keys):
    model = made(scratch, name, keys)
    expected, found = logits(scratch, one, model), logits(scratch, lambda *arguments: mpirun(ranks, *arguments), model)
    expect(expected.shape == found.shape, f"shapes {expected.shape} and {found.shape}")
    largest = np.abs(expected - found).max()
    expect(largest < ROUNDING * max(1, np.abs(expected).max()), f"{name}: logits differ by {largest}")
    expect((expected.argmax(1) == found.argmax(1)).mean() > 0.98, f"{name}: other tokens")
    talk = ["--prompt", "hello", "--temperature", "0", "--repeat-penalty", "1", "--max-tokens", "24"]
    expect(one(model, *talk) == mpirun(ranks, model, *talk)[0], f"{name}: another answer")


@test
def two_ranks_answer_as_one_process(scratch):
    expect_the_same(scratch, "llama", 2)


@test
def heads_of_keys_are_shared_by_more_ranks(scratch):
    expect_the_same(scratch, "gemma3", 4, feed_forward_length=128)


@test
def ranks_share_the_experts(scratch):
    for ranks, heads, keys in ((2, 4, 2), (3, 6, 3), (8, 8, 4)):
        expect_the_same(scratch, "qwen3moe", ranks, **{"attention.head_count": heads, "attention.head_count_kv": keys})
    expect_the_same(scratch, "gpt-oss", 2)


@test
def each_rank_reads_a_packed_container_of_its_own(scratch):
    model, packed = made(scratch, "qwen2"), scratch / "packed.marlin"
    run = subprocess.run([MARLIN, "pack", model, "-o", packed, "--ranks", "2", "--format", "int8"], capture_output=True)
    expect(run.returncode == 0, run.stderr)
    first = str(scratch / "packed-00001-of-00002.marlin")
    expected, found = logits(scratch, one, model), logits(scratch, lambda *arguments: mpirun(2, *arguments), first)
    expect(np.abs(expected - found).max() < ROUNDING * np.abs(expected).max(), "logits of the containers differ")
    # Every rank says what is wrong: another number of ranks, and the container of another rank.
    _, error = mpirun(3, first, "--prompt", "x", code=1)
    expect("rank 2" in error and "packed-00003-of-00002.marlin: cannot open" in error, error[-600:])
    shutil.copy(scratch / "packed-00001-of-00002.marlin", scratch / "same.marlin")
    _, error = mpirun(2, str(scratch / "same.marlin"), "--prompt", "x", code=1)
    expect(error.count("rank 1: expected the container of this rank, found that of rank 0") == 2, error[-600:])
    _, error = mpirun(1, str(scratch / "same.marlin"), "--prompt", "x", code=1)
    expect("expected a container for 1 ranks, found one for 2" in error, error[-600:])


@test
def another_model_on_one_rank_is_named_by_all(scratch):
    a, b = made(scratch, "llama"), made(scratch, "qwen2")
    _, error = mpirun([[a], [b]], "--prompt", "x", code=1)
    expect(error.count("rank 1: expected the model of rank 0") == 2, error[-600:])
    _, error = mpirun([[a], [str(scratch / "none.gguf")]], "--prompt", "x", code=1)
    expect(error.count("cannot open") == 2 and "rank 1" in error, error[-600:])
    _, error = mpirun(5, a, "--prompt", "x", code=1)
    expect("ranks: expected at most 2" in error, error[-600:])


def ranks_of(mpi):
    """The processes of the program that this mpirun has started, by rank."""
    found = {}
    for process in pathlib.Path("/proc").iterdir():
        try:
            environment = dict(pair.split(b"=", 1) for pair in (process / "environ").read_bytes().split(b"\0") if b"=" in pair)
            parent = (process / "stat").read_text().rsplit(")", 1)[1].split()[1]
        except (OSError, ValueError, IndexError):
            continue
        if b"OMPI_COMM_WORLD_RANK" in environment and parent == str(mpi.pid):
            found[int(environment[b"OMPI_COMM_WORLD_RANK"])] = int(process.name)
    return found


def fail_one(scratch, how, timeout):
    """Errors of a job whose rank 1 gets a signal while it answers, and the seconds until all have ended."""
    model = made(scratch, "llama")
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", CHAT_MPI, model, "--bench", "--threads", "1"]
    with open(scratch / "errors", "w+") as errors:
        mpi = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                               env={**ENVIRONMENT, "METAL_MARLIN_MPI_TIMEOUT": str(timeout)})
        victim = None
        try:
            mpi.stdin.write(b"4 4\n")
            mpi.stdin.flush()
            expect(b"generate" in mpi.stdout.readline(), "the first answer")  # all ranks are at work
            victim = ranks_of(mpi)[1]
            mpi.stdin.write(b"200 200\n" * 20)
            mpi.stdin.flush()
            os.kill(victim, how)
            begun = time.monotonic()
            mpi.wait(timeout=90)
        finally:
            if mpi.poll() is None:
                mpi.kill()
            if how == signal.SIGSTOP and victim:
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        errors.seek(0)
        return errors.read(), time.monotonic() - begun, mpi.returncode


@test
def a_rank_that_dies_ends_all(scratch):
    error, seconds, code = fail_one(scratch, signal.SIGKILL, 60)
    expect(code != 0 and seconds < 30, f"{seconds} s, {code}")
    expect("rank 1" in error and "signal 9" in error, error[-600:])


@test
def a_rank_that_hangs_is_named(scratch):
    error, seconds, code = fail_one(scratch, signal.SIGSTOP, 3)
    expect(code != 0 and seconds < 60, f"{seconds} s, {code}")
    expect("rank 0 of 2" in error and "no answer of rank 1" in error, error[-600:])


sys.exit(run_tests() > 0)
