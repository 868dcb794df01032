"""The race: runs all candidates and the limits of the machine in turn, and makes one record for each candidate."""
import math
import statistics

import numpy as np
from peer import Absent, needs, settle
from weights import FORMATS, expert_ids, nmse, shape_text, to_bf16, weights_of

# In seconds: calls before a sample, until the system has separated threads that woke on the same processor (after 1 ms they still
# shared one, and a call took 1.5 times as long); the calls of a sample, which follow one another like those of a decoder; a call
# that needs no warming.
WARM, BATCH, LONG = 8e-3, 3e-3, 5e-3
FEWEST, MOST = 3, 31  # samples; one is enough of what is slower than its whole share
SAMPLED_ROWS, SAMPLED_COLUMNS = 16, 48  # of a result, held against float64
DRAWS = 32  # of experts: as in tools/measure.cc


class Contestant:
    """One way of one candidate to multiply, and its samples: (seconds, seconds of processor time) of a call."""

    def __init__(self, peer, variant, a, ids=None):
        self.peer, self.variant, self.m, self.samples = peer, variant, len(a), []
        self.product = peer.product(variant, a) if ids is None else peer.product(variant, a, ids)
        self.compute = peer.variants[variant]
        self.seconds = self._call(1)[0]
        self.spent = self.seconds

    def _call(self, calls):
        times = self.product.time(calls)
        if self.peer.spins:
            settle()
        return times

    def sample(self):
        """Makes calls that do not count first, because earlier work has left these threads asleep and filled the caches."""
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
    """Samples all contestants in turn, alternating between forward and backward order, for about `seconds` per contestant. Returns the
    medians of the limits."""
    found, forwards = {limit: [] for limit in limits}, True
    while any(each.wants(seconds) for each in contestants):
        for limit, samples in found.items():
            samples.append(sample_limit(limit))
        for each in contestants if forwards else reversed(contestants):
            if each.wants(seconds):
                each.sample()
        forwards = not forwards
    return {limit: statistics.median(samples) for limit, samples in found.items() if samples}


def record_of(contestant, weights, a, ids, common, limits, instruction):
    """One line of JSON. Bytes are those of the weights with scales (of experts: of those in a call), operations 2 M N K (of experts:
    for each that a row has); the limit is the longer of reading the ones and doing the others."""
    expert_of = np.zeros(len(a), int) if ids is None else ids[0].ravel()
    m, top_k, distinct = len(expert_of), len(expert_of) // len(a), len(np.unique(expert_of))
    n, k = weights.n, weights.k
    rows, columns = sampled(m, SAMPLED_ROWS), sampled(n, SAMPLED_COLUMNS)
    wanted = np.stack([weights.values(expert_of[row] + columns) @ a[row // top_k].astype(np.float64) for row in rows])
    seconds, peer = contestant.median(0), contestant.peer
    weight_bytes = getattr(peer, "bytes", weights.bytes) // weights.experts * distinct
    read, peak = weight_bytes / seconds / limits["read"], 2 * m * n * k / seconds / limits[instruction]
    mixture = {} if ids is None else {"distinct_experts": distinct}
    return {
        **common, "candidate": peer.name, "variant": contestant.variant, "kernel": contestant.product.kernel, "about": peer.about,
        "format": weights.format.name, "group": weights.format.group, "compute": contestant.compute, "M": len(a), **mixture,
        "seconds": seconds, "cpu_seconds": contestant.median(1), "samples": len(contestant.samples), "weight_bytes": weight_bytes,
        "gbytes_per_s": weight_bytes / seconds / 1e9, "gflops": 2 * m * n * k / seconds / 1e9,
        "limit": "read" if read >= peak else instruction, "fraction_of_limit": max(read, peak), "fraction_of_read": read,
        "fraction_of_peak": peak, "read_gbytes_per_s": limits["read"] / 1e9, "instruction": instruction,
        "peak_gflops": limits[instruction] / 1e9, "nmse": nmse(contestant.product.result()[np.ix_(rows, columns)], wanted),
    }


def add_ratios(records):
    """`over` is the time of every other candidate divided by the time of ours, by "candidate variant"."""
    for ours in records:
        if ours["candidate"] == "ours":
            ours["over"] = {f"{each['candidate']} {each['variant']}": each["seconds"] / ours["seconds"]
                            for each in records if each["candidate"] != "ours"}


class Track:
    """The place where races run.

    peers         candidates, ours among them
    limits        ours.Limits
    isa           of our kernels: by it the instructions are chosen that judge
    common        what every record says
    note(words)   told once of everything that is left out
    """

    def __init__(self, peers, limits, isa, common, note):
        self.peers, self.limits, self.isa, self.common, self.note = peers, limits, isa, common, note

    def run(self, format_name, shape, rows, rotation, seconds, longest):
        """Yields the records of each M in `rows`, which ascend; weights are rotated through `rotation` bytes.

        shape: {"N", "K"}, and {"experts", "top_k"} for a mixture of experts, of which every row has top_k"""
        experts, words = shape.get("experts"), f"{format_name}, {shape_text(shape)}"
        try:
            weights, present = weights_of(FORMATS[format_name], shape["N"], shape["K"], experts or 1), []
        except Absent as why:
            self.note(f"{words}: {why}")
            return
        copies = max(1 if experts else 2, min(2000, -(-rotation // weights.bytes)))
        for peer in self.peers:
            try:
                needs(peer.mixtures or not experts, "it multiplies by no mixtures of experts here")
                peer.prepare(weights, copies)
                present.append(peer)
            except Absent as why:
                self.note(f"{peer.name}, {words}: {why}")
        last = {}
        for m in rows:
            a = to_bf16(np.random.default_rng(m).standard_normal((m, weights.k), np.float32))
            ids = expert_ids(m, experts, shape["top_k"], DRAWS) if experts else None
            contestants = []
            for peer in present:
                for variant in peer.variants:
                    seen = last.get((peer.name, variant))
                    if seen and min(seen.samples)[0] * m / seen.m > longest:
                        self.note(f"{peer.name} {variant}, {words}, M = {m}: would take more than {longest:g} s a call")
                        continue
                    last[peer.name, variant] = Contestant(peer, variant, a, ids)
                    contestants.append(last[peer.name, variant])
            instructions = {each: self.limits.instruction(self.isa, each.compute) for each in contestants}
            limits = race(contestants, self.limits.sample, ["read", *dict.fromkeys(instructions.values())], seconds)
            records = [record_of(each, weights, a, ids, {**self.common, **shape}, limits, instructions[each]) for each in contestants]
            add_ratios(records)
            yield records
            for each in contestants:
                each.product = None
        for peer in present:
            peer.forget()
