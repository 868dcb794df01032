"""The base classes of candidates of the race. A new candidate is a new class."""
import os
import time


class Absent(Exception):
    """A candidate is not available here, or does not have this product. The text gives the reason."""


class Product:
    """C = A W^T by one candidate.

    time(calls)  calls it so often, each time with another copy of the weights: (seconds by the wall's clock, seconds of
                 processor time of all threads)
    result()     of the last call, or of one more: [M, N]
    kernel       what the candidate says of it, or ""
    """

    def __init__(self, time, result, kernel=""):
        self.time, self.result, self.kernel = time, result, kernel


def timed_in_python(run, turn):
    """Product.time of run(copy), including Python's cost of a call."""
    def timed(calls):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(calls):
            run(next(turn))
        return time.perf_counter() - wall, time.process_time() - cpu
    return timed


class Peer:
    """One library. Made once for a run; raises Absent when it is not there.

    name      as tables have it
    about     its version and what it says of itself
    variants  {name: compute}: the ways it multiplies; compute is "int8", "bf16" or "f32": what becomes of the activations
    spins     whether its threads go on spinning after a call: settle() before somebody else is timed
    mixtures  whether it multiplies by mixtures of experts
    """

    name, about, spins, mixtures = "", "", False, False
    variants = {}

    def prepare(self, weights, copies):
        """Frees earlier copies and makes this many copies of the weights. Raises Absent if it does not have this format or shape."""
        raise NotImplementedError

    def product(self, variant, a, ids=None):
        """A Product with these activations, float32 [M, K]. Of mixtures with ids, int32 [draws, M, top_k]: row m top_k + s of the
        result is that of row m and expert ids[:, m, s]; calls take one draw after another, and result() is that of the first."""
        raise NotImplementedError

    def forget(self):
        """Frees the weights."""


def settle(longest=0.5):
    """Waits until no thread of this process works. Threads of OpenMP spin for some milliseconds after a call, and threads of ONNX
    Runtime spin for 50. (The system counts the time of a running thread in steps of some milliseconds.)"""
    end = time.perf_counter() + longest
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(10e-3)
        if time.process_time() - before < 1e-3:
            return


def needs(condition, why):
    if not condition:
        raise Absent(why)


def imported(module):
    """Imports an optional module."""
    try:
        return __import__(module, fromlist=[""])
    except Exception as error:  # a broken wheel raises what it likes
        raise Absent(f"cannot import {module}: {error}") from None


def use_threads(threads):
    """Sets the number of threads for libraries that read it when they are loaded."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
