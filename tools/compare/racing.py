"""The race: all candidates and the limits of the machine in turn, and what comes of it, one record a candidate."""
import math
import statistics
import time

import numpy as np
from peer import Absent
from weights import FORMATS, Weights, nmse, to_bf16

WARM, BATCH, LONG = 1e-3, 50e-6, 5e-3  # seconds: of calls before a sample, of a sample; of a call that needs no warming
FEWEST, MOST = 3, 31  # samples; one is enough of what is slower than its whole share
SAMPLED_ROWS, SAMPLED_COLUMNS = 16, 48  # of a result, held against float64


class Contestant:
    """One way of one candidate to multiply, and its samples: (seconds, seconds of processor time) of a call."""

    def __init__(self, peer, variant, a):
        self.peer, self.variant, self.m, self.samples = peer, variant, len(a), []
        self.product = peer.product(variant, a)
        self.compute = peer.variants[variant]
        self.seconds = self._call(1)[0]
        self.spent = self.seconds

    def _call(self, calls):
        times = self.product.time(calls)
        if self.peer.settle:
            time.sleep(self.peer.settle)
        return times

    def sample(self):
        """What ran before has left this one's threads asleep and the caches to others: so calls that do not count come first."""
        if self.seconds < LONG:
            self.product.time(min(100, math.ceil(WARM / self.seconds)))
        calls = max(1, min(1000, math.ceil(BATCH / self.seconds)))
        wall, cpu = self._call(calls)
        self.seconds = wall / calls
        self.samples.append((wall / calls, cpu / calls))
        self.spent += wall

    def wants(self, share):
        enough = len(self.samples) >= (FEWEST if self.seconds < share else 1)
        return not enough or (self.spent + self.seconds < share and len(self.samples) < MOST)

    def median(self, which):
        return statistics.median(sample[which] for sample in self.samples)


def sampled(count, most):
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def race(contestants, sample_limit, limits, seconds):
    """Samples everybody in turn, now forwards, now backwards, for about `seconds` a contestant. Returns the limits' medians."""
    found, forwards = {limit: [] for limit in limits}, True
    while any(each.wants(seconds) for each in contestants):
        for limit, samples in found.items():
            samples.append(sample_limit(limit))
        for each in contestants if forwards else reversed(contestants):
            if each.wants(seconds):
                each.sample()
        forwards = not forwards
    return {limit: statistics.median(samples) for limit, samples in found.items() if samples}


def record_of(contestant, weights, a, common, limits, instruction):
    """One line of JSON. Bytes are those of the weights with scales, operations 2 M N K; the limit is the longer of reading the
    ones and doing the others."""
    m, n, k = len(a), weights.n, weights.k
    rows, columns = sampled(m, SAMPLED_ROWS), sampled(n, SAMPLED_COLUMNS)
    wanted = a[rows].astype(np.float64) @ weights.values(columns).T
    seconds, peer = contestant.median(0), contestant.peer
    weight_bytes = getattr(peer, "bytes", weights.bytes)
    read, peak = weight_bytes / seconds / limits["read"], 2 * m * n * k / seconds / limits[instruction]
    return {
        **common, "candidate": peer.name, "variant": contestant.variant, "kernel": peer.kernel(contestant.variant, m), "about": peer.about,
        "format": weights.format.name, "group": weights.format.group, "compute": contestant.compute, "M": m, "N": n, "K": k,
        "seconds": seconds, "cpu_seconds": contestant.median(1), "samples": len(contestant.samples), "weight_bytes": weight_bytes,
        "gbytes_per_s": weight_bytes / seconds / 1e9, "gflops": 2 * m * n * k / seconds / 1e9,
        "limit": "read" if read >= peak else instruction, "fraction_of_limit": max(read, peak), "fraction_of_read": read,
        "fraction_of_peak": peak, "read_gbytes_per_s": limits["read"] / 1e9, "instruction": instruction,
        "peak_gflops": limits[instruction] / 1e9, "nmse": nmse(contestant.product.result()[np.ix_(rows, columns)], wanted),
    }


def add_ratios(records):
    """over: how many times longer every other candidate took than this one of ours, by "candidate variant"."""
    for ours in records:
        if ours["candidate"] == "ours":
            ours["over"] = {f"{each['candidate']} {each['variant']}": each["seconds"] / ours["seconds"]
                            for each in records if each["candidate"] != "ours"}


class Track:
    """Where races are run.

    peers         candidates, ours among them
    limits        ours.Limits
    isa           of our kernels: by it the instructions are chosen that judge
    common        what every record says
    note(words)   told once of everything that is left out
    """

    def __init__(self, peers, limits, isa, common, note):
        self.peers, self.limits, self.isa, self.common, self.note = peers, limits, isa, common, note

    def run(self, format_name, n, k, rows, rotation, seconds, longest):
        """Yields the records of each M in `rows`, which ascend; weights are rotated through `rotation` bytes."""
        weights, present = Weights(FORMATS[format_name], n, k), []
        copies = max(2, min(2000, -(-rotation // weights.bytes)))
        for peer in self.peers:
            try:
                peer.prepare(weights, copies)
                present.append(peer)
            except Absent as why:
                self.note(f"{peer.name}, {format_name}, {n} x {k}: {why}")
        last = {}
        for m in rows:
            a = to_bf16(np.random.default_rng(m).standard_normal((m, k), np.float32))
            contestants = []
            for peer in present:
                for variant in peer.variants:
                    seen = last.get((peer.name, variant))
                    if seen and min(seen.samples)[0] * m / seen.m > longest:
                        self.note(f"{peer.name} {variant}, {format_name}, {n} x {k}, M = {m}: would take more than {longest:g} s a call")
                        continue
                    last[peer.name, variant] = Contestant(peer, variant, a)
                    contestants.append(last[peer.name, variant])
            instructions = {each: self.limits.instruction(self.isa, each.compute) for each in contestants}
            limits = race(contestants, self.limits.sample, ["read", *dict.fromkeys(instructions.values())], seconds)
            records = [record_of(each, weights, a, self.common, limits, instructions[each]) for each in contestants]
            add_ratios(records)
            yield records
            for each in contestants:
                each.product = None
        for peer in present:
            peer.forget()
