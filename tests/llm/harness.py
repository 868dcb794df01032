"""What the tests of the chat share: a test is a function of a scratch folder that raises when something is wrong.

A script of tests is called with CHAT MODEL.gguf and prints a line for each, "passed NAME" or "FAILED NAME: why"; the exit status
is 1 when one failed. What a test returns, if anything, is printed behind its name.
"""

import json
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

CHAT, MODEL = sys.argv[1:]
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def run(*arguments, model=MODEL, code=0, text=b""):
    """Standard output and error; fails when the exit status is another one."""
    done = subprocess.run([CHAT, model, *arguments], input=text, capture_output=True, timeout=300)
    out, err = done.stdout.decode(), done.stderr.decode()
    expect(done.returncode == code, f"exit status {done.returncode}, expected {code}: {err[-300:]}")
    return out, err


def expect(holds, otherwise):
    if not holds:
        raise AssertionError(otherwise)


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
    failed = 0
    for function in TESTS:
        name = function.__name__.replace("_", " ")
        with tempfile.TemporaryDirectory() as scratch:
            try:
                found = function(pathlib.Path(scratch))
                print(f"passed {name}" + (f": {found}" if found else ""))
            except Exception as error:  # whatever it is, the others are still to run
                failed = 1
                print(f"FAILED {name}: {type(error).__name__}: {error}")
    sys.exit(failed)
