"""What the tests of the chat share, beside tests/told.py. A script of them is called with CHAT MODEL.gguf."""

import json
import pathlib
import signal
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from told import expect, run_tests, test  # noqa: E402, F401

CHAT, MODEL = sys.argv[1:]


def run(*arguments, model=MODEL, code=0, text=b""):
    """Standard output and error; fails when the exit status is another one."""
    done = subprocess.run([CHAT, model, *arguments], input=text, capture_output=True, timeout=300)
    out, err = done.stdout.decode(), done.stderr.decode()
    expect(done.returncode == code, f"exit status {done.returncode}, expected {code}: {err[-300:]}")
    return out, err


def expect_equal(found, wanted, what=""):
    expect(found == wanted, f"{what}: found {found!r}, expected {wanted!r}")


def score(*arguments, model=MODEL):
    out, _ = run("--perplexity", *arguments, model=model)
    return {key: float(value) for key, value in (line.split() for line in out.splitlines())}


def write_safetensors(path, tensors):
    """tensors: arrays of float16 by name."""
    header, at = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F16", "shape": tensor.shape, "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    head = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


def main():
    signal.alarm(1200)  # a program that does not end is a failure as well
    sys.exit(run_tests() > 0)
