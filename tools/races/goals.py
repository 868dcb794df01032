"""The goals of the CPU backend, compared with the measurements of a run. GOALS has all numbers of the goals."""
import dataclasses
from collections.abc import Callable

from weights import shape_text

FOUR_BITS = ("mxfp4", "nvfp4", "int4", "int4-g128", "int4-zeros", "int4-zeros-g64")
INT4 = ("int4", "int4-zeros", "int4-zeros-g64")
K_QUANTS = ("q4_k", "q5_k", "q6_k", "iq4_nl")


def fraction(which):
    return lambda record, _: record[f"fraction_of_{which}"]


def over(peer):
    """The time of this peer divided by ours. ggml multiplies in one way, whatever the compute type of ours is."""
    return lambda record, _: record.get("over", {}).get(peer)


def over_one_row(record, records):
    """The time divided by the time of M = 1. Each time is relative to reading memory in its own race, because memory has states."""
    same = ("candidate", "variant", "format", "N", "K", "experts", "isa")
    first = next((each for each in records if each["M"] == 1 and all(each.get(key) == record.get(key) for key in same)), None)
    return first["fraction_of_read"] / record["fraction_of_read"] if first else None


def over_one_thread(record, records):
    """The time of one thread divided by the time of two: rows of `metal-marlin bench --threads 1,2`."""
    same = ("format", "compute", "M", "N", "K")
    one = next((each for each in records if each.get("threads") == 1 and all(each.get(key) == record.get(key) for key in same)), None)
    return one["seconds"] / record["seconds"] if one and record.get("threads") == 2 else None


@dataclasses.dataclass(frozen=True)
class Goal:
    """value(record, all records) of every record of ours with these values; None: it does not count.

    The worst of them must be at least, or at most, the number."""

    regime: str
    what: str
    value: Callable
    least: float = None
    most: float = None
    m: tuple = ()
    formats: tuple = FOUR_BITS
    computes: tuple = ("int8", "bf16", "f32")
    isa: str = "native"
    source: str = "race"
    mixture: bool = False

    def fits(self, record):
        return (record["candidate"] == "ours" and record["source"] == self.source and record["isa"] == self.isa
                and self.mixture == ("experts" in record)
                and (not self.m or record["M"] in self.m) and record["format"] in self.formats and record["compute"] in self.computes)

    def worst(self, records):
        """(value, record, number of records that count, number of these that reach the goal, best value), or None."""
        found = [(self.value(record, records), record) for record in records if self.fits(record)]
        found = [each for each in found if each[0] is not None]
        if not found:
            return None
        found.sort(key=lambda each: self.shortfall(each[0]))
        return *found[-1], len(found), sum(self.shortfall(value) <= 0 for value, _ in found), found[0][0]

    def shortfall(self, value):
        """The fraction by which the goal is missed; 0 or less means that it is met."""
        return 1 - value / self.least if self.most is None else value / self.most - 1


INT8, BF16, F32 = ("int8",), ("bf16",), ("f32",)
PEAK = "of the dot product's peak"
GOALS = (
    Goal("M = 1", "of the speed of reading memory", fraction("read"), 0.95, m=(1,)),
    Goal("M = 1, INT8", "times as fast as ggml, MXFP4", over("ggml q8"), 1.3, m=(1,), formats=("mxfp4",), computes=INT8),
    Goal("M = 1, INT8", "times as fast as ggml, Q4_0", over("ggml q8"), 1.15, m=(1,), formats=("int4",), computes=INT8),
    Goal("M = 1, INT8", "times as fast as ggml, NVFP4", over("ggml q8"), 2.4, m=(1,), formats=("nvfp4",), computes=INT8),
    Goal("M = 2, 4", "times the time of M = 1", over_one_row, most=1.2, m=(2, 4), computes=("int8", "bf16")),
    Goal("M = 16, INT8", PEAK, fraction("peak"), 0.72, m=(16,), computes=INT8),
    Goal("M = 8, 16, INT8", "times as fast as ggml", over("ggml q8"), 2.7, m=(8, 16), formats=("mxfp4", "int4"), computes=INT8),
    Goal("M = 8, 16, INT8", "times as fast as ggml, NVFP4", over("ggml q8"), 13, m=(8, 16), formats=("nvfp4",), computes=INT8),
    Goal("M = 32, INT8", PEAK, fraction("peak"), 0.72, m=(32,), computes=INT8),
    *(Goal(f"M = {m}, INT8", f"{PEAK}, {names[0]}", fraction("peak"), least, m=(m,), formats=names, computes=INT8)
      for m, numbers in {128: (0.80, 0.72, 0.78, 0.75), 512: (0.83, 0.74, 0.80, 0.77)}.items()
      for least, names in zip(numbers, (("mxfp4",), INT4, ("int4-g128",), ("nvfp4",)))),
    Goal("M = 128, 512, INT8", "times as fast as ggml", over("ggml q8"), 3, m=(128, 512), formats=("mxfp4", "int4"), computes=INT8),
    Goal("M = 128, 512, INT8", "times as fast as ggml, NVFP4", over("ggml q8"), 17, m=(128, 512), formats=("nvfp4",), computes=INT8),
    Goal("M = 8, 64, BF16", PEAK, fraction("peak"), 0.85, m=(8, 64), computes=BF16),
    Goal("M = 512, BF16", f"{PEAK}, FP4", fraction("peak"), 0.92, m=(512,), formats=("mxfp4", "nvfp4"), computes=BF16),
    Goal("M = 512, BF16", f"{PEAK}, INT4", fraction("peak"), 0.85, m=(512,), formats=(*INT4, "int4-g128"), computes=BF16),
    Goal("M = 512, BF16", "times as fast as ggml, which rounds to INT8", over("ggml q8"), 1.9, m=(512,), computes=BF16),
    Goal("M = 64, 128, 512, F32", "of the FMA peak", fraction("peak"), 0.90, m=(64, 128, 512), computes=F32),
    Goal("Mixtures of experts, 64..512 tokens", "times as fast as ggml", over("ggml q8"), 4, m=(64, 128, 256, 512), formats=("mxfp4",),
         computes=INT8, mixture=True),
    Goal("M = 1, K-quants", "of the speed of reading memory", fraction("read"), 0.92, m=(1,), formats=K_QUANTS, computes=("int8", "bf16")),
    Goal("M = 1, K-quants, INT8", "times as fast as ggml", over("ggml q8"), 1.2, m=(1,), formats=K_QUANTS, computes=INT8),
    Goal("M = 16, 128, 512, K-quants, INT8", PEAK, fraction("peak"), 0.60, m=(16, 128, 512), formats=K_QUANTS, computes=INT8),
    Goal("M = 16, 128, 512, K-quants, INT8", "times as fast as ggml", over("ggml q8"), 2.5, m=(16, 128, 512), formats=K_QUANTS, computes=INT8),
    Goal("M = 512, K-quants, BF16", PEAK, fraction("peak"), 0.80, m=(512,), formats=K_QUANTS, computes=BF16),
    Goal("2:4 sparse, M = 1", "times as fast as dense", lambda record, _: record.get("dense_over_sparse"), 1.30, m=(1,),
         computes=("int8", "default"), source="command"),
    Goal("2 threads, M = 128, 512", "times as fast as 1 thread", over_one_thread, 1.96, m=(128, 512), computes=("int8", "default"),
         source="command"),
    Goal("AVX2, INT8", "times as fast as ggml for AVX2", over("ggml-avx2 q8"), 1.5, computes=INT8, isa="avx2"),
)


HEAD = ("products", "goal", "worst row", "which row", "result", "best row", "NMSE of the worst row")


def assess(records, goals=GOALS):
    """Rows of strings for a table with HEAD. NMSE is the NMSE of the worst row."""
    rows = []
    for goal in goals:
        bound = f"{'at least' if goal.most is None else 'at most'} {goal.least if goal.most is None else goal.most:g} {goal.what}"
        found = goal.worst(records)
        if found is None:
            rows.append((goal.regime, bound, "", "", "not measured in this run", "", ""))
            continue
        value, record, count, met, best = found
        where = f"worst of {count}: {record['format']} {record['compute']}, M = {record['M']}, {shape_text(record)}"
        short = goal.shortfall(value)
        verdict = "met" if short <= 0 else f"short by {100 * short:.0f}%; met by {met} of {count}"
        rows.append((goal.regime, bound, f"{value:.2f}", where, verdict, f"{best:.2f}", f"{record['nmse']:.1e}"))
    return rows
