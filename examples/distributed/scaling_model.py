#!/usr/bin/env python3
"""A model of the time on n ranks, fitted to some measurements and held against the others, and a plan made with it.

    scaling_model.py [RECORDS...] [--write]

RECORDS are the lines that decoder_layer.py and scaling.py --json print; lines of one "system" (default: the device and the
transport) belong together. Ranks sum b bytes round a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce", 2009):

    s(n, b) = 2 (n - 1) a + 2 (n - 1) / n * b / B        t(n, M) = T(n, M) + c s(n, b)

Transports change their protocol with the size: one with a low latency for small sums, one with a high bandwidth for large ones. So
sums of up to a fitted size and larger ones have an a and a B of their own where that fits better.

T(n, M) is the time of a rank without the others, of M rows, which is measured (decoder_layer.py --shards n on one processor or
GPU; for the chat, its time outside of sums). The latency a and the bandwidth B between ranks are fitted to every second size of
sums, in order of bytes, by least squares of relative errors. Nothing is fitted to the other sizes and to the layers, against which
the model is held. The exit status is 1 if an error exceeds 15 %. The default records are those of docs/scaling.md; --write puts the tables
into that page, between the lines that name this script, and draws docs/performance/scaling.svg.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import sys

import numpy as np

LIMIT = 0.15
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGE, RECORDS, DRAWING = DOCS / "scaling.md", DOCS / "performance" / "scaling.jsonl", DOCS / "performance" / "scaling.svg"
# A plan is for hosts with the GPUs of the first system of this transport; between hosts there is an assumed link.
TRANSPORT, BETWEEN = "nccl", (5e-6, 45e9)


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Between two ranks: the latency of a step in seconds, and bytes a second."""

    latency: float
    bandwidth: float

    def steps(self, count, ranks, size):
        """Seconds of so many rounds of the ring, in each of whose steps every rank sends its part of so many bytes."""
        return count * (ranks - 1) * (self.latency + size / ranks / self.bandwidth)

    def __str__(self):
        return f"a = {1e6 * self.latency:.2f} us, B = {self.bandwidth / 1e9:.2f} GB/s"


class Link:
    """What connects ranks: a protocol, or one for up to `switch` bytes and one for more."""

    def __init__(self, *protocols, switch=0):
        self.protocols, self.switch = protocols, switch

    def of(self, size):
        """The protocol for so many bytes."""
        return self.protocols[0 if size <= self.switch else -1]

    def sum(self, ranks, size):
        """Seconds in which so many ranks sum so many bytes."""
        return self.of(size).steps(2, ranks, size)

    def gather(self, ranks, size):
        """Seconds in which each gets the parts of all, of so many bytes together."""
        return self.of(size).steps(1, ranks, size)

    def hop(self, size):
        """Seconds in which one rank sends another so many bytes."""
        return self.of(size).latency + size / self.of(size).bandwidth

    def __str__(self):
        text = str(self.protocols[0])
        return text if len(self.protocols) == 1 else f"{text} for up to {self.switch} bytes, and {self.protocols[1]} for more"


@dataclasses.dataclass(frozen=True)
class Point:
    """What was measured: seconds of a step, of which `alone` are not of communication."""

    name: str
    ranks: int
    size: int  # bytes of a sum
    seconds: float
    alone: float = 0.0
    sums: int = 1
    gathered: int = 0
    fitted: bool = False

    def predicted(self, link):
        return self.alone + self.sums * link.sum(self.ranks, self.size) + (link.gather(self.ranks, self.gathered) if self.gathered else 0)

    def error(self, link):
        return self.predicted(link) / self.seconds - 1


def fit_protocol(points):
    """The one whose predictions of these points have the least squares of relative errors. None if it would be negative."""
    communication = np.array([point.seconds - point.alone for point in points])
    # Predictions are linear in the latency and in the reciprocal of the bandwidth.
    units = Link(Protocol(1.0, np.inf)), Link(Protocol(0.0, 1.0))
    coefficients = np.array([[point.predicted(unit) - point.alone for unit in units] for point in points])
    scaled = coefficients / communication[:, None]
    columns = np.abs(scaled).max(axis=0)  # seconds and bytes differ by many powers of ten
    latency, reciprocal = np.linalg.lstsq(scaled / columns, np.ones(len(points)), rcond=None)[0] / columns
    return Protocol(float(latency), float(1 / reciprocal)) if latency >= 0 and reciprocal > 0 else None


def fit(points):
    """The link of one protocol or, from six points on, of two, of three points and two or more, whichever has the smaller squares."""

    def squares(link):
        return sum(((point.predicted(link) - point.seconds) / (point.seconds - point.alone)) ** 2 for point in points)

    points = sorted(points, key=lambda point: point.size)
    candidates = [((fit_protocol(points),), 0)]
    if len(points) >= 6:
        for cut in range(3, len(points) - 1):
            candidates.append(((fit_protocol(points[:cut]), fit_protocol(points[cut:])), points[cut - 1].size))
    links = [Link(*protocols, switch=switch) for protocols, switch in candidates if all(protocols)]
    if not links:
        raise ValueError(f"fit: expected a latency and a bandwidth above 0 for {len(points)} points, found none")
    return min(links, key=squares)


def system_of(record):
    return record.get("system") or f"{record.get('device', 'CPU')}, {record.get('backend', 'MPI')}"


def sums_of(records):
    """Sums alone: every second size is to be fitted. Of a size that was measured more than once, the least time counts."""
    least = {}
    for each in records:
        if each["measured"] == "sum":
            key = each["ranks"], each["bytes"]
            least[key] = min(least.get(key, each["ms"]), each["ms"])
    for ranks in sorted({ranks for ranks, _ in least}):
        for i, size in enumerate(sorted(size for of, size in least if of == ranks)):
            yield Point(f"sum of {size} bytes", ranks, size, least[ranks, size] / 1e3, fitted=i % 2 == 0)


def layers_of(records):
    """Layers of a decoder, by what a rank of so many takes alone."""
    alone = {}
    for each in records:
        if each["measured"] == "layer" and each["ranks"] == 1:
            alone[each["shards"], each["rows"], each["format"]] = each["without_sums_ms"] / 1e3
    for each in records:
        key = (each.get("ranks"), each.get("rows"), each.get("format"))
        if each["measured"] == "layer" and each["ranks"] > 1 and key in alone:
            yield Point(f"layer of {each['rows']} rows, {each['format']}", each["ranks"], each["bytes_of_a_sum"], each["layer_ms"] / 1e3,
                        alone[key], 2)


def chats_of(records):
    """Steps of the chat: every second number of rows is to be fitted."""
    for ranks in sorted({each["ranks"] for each in records if each["measured"] == "chat" and each["ranks"] > 1}):
        steps = sorted((each for each in records if each["measured"] == "chat" and each["ranks"] == ranks), key=lambda each: each["rows"])
        for i, each in enumerate(steps):
            seconds = each["step_ms"] / 1e3
            yield Point(f"chat, {each['rows']} rows", ranks, each["bytes_of_a_sum"], seconds,
                        seconds * (1 - each["share_of_communication"]), each["sums"], each["bytes_gathered"], fitted=i % 2 == 0)


def systems(records):
    """The points and the link of each system. More ranks than processors are left out: they take turns."""
    groups = collections.defaultdict(list)
    for record in records:
        groups[system_of(record)].append(record)
    found = {}
    for name, group in groups.items():
        usable = [each for each in group if not each.get("oversubscribed")]
        points = [point for of in (sums_of, layers_of, chats_of) for point in of(usable)]
        if sum(point.fitted for point in points) >= 2:
            found[name] = points, fit([point for point in points if point.fitted])
    return found


def report(found):
    """A table in Markdown, and the largest error of a point that nothing was fitted to."""
    lines, worst = [], 0.0
    for name, (points, link) in found.items():
        lines += [f"{name}: {link}.", "",
                  "| point | ranks | measured, ms | model, ms | error | |", "|---|---|---|---|---|---|"]
        for point in points:
            error = point.error(link)
            lines.append(f"| {point.name} | {point.ranks} | {1e3 * point.seconds:.3f} | {1e3 * point.predicted(link):.3f} "
                         f"| {100 * error:+.0f} % | {'fitted' if point.fitted else 'held out'} |")
            worst = max(worst, 0.0 if point.fitted else abs(error))
        lines.append("")
    return "\n".join(lines), worst


def measured(records):
    """The layers and the chats as they were measured last: a table in Markdown."""
    lines = ["| system | | ranks | rows | ms | products, ms | share of the sums |", "|---|---|---|---|---|---|---|"]
    last = {(each["measured"], system_of(each), each.get("format"), each["ranks"], each.get("rows")): each for each in records
            if each["measured"] in ("layer", "chat") and each.get("shards", each["ranks"]) == each["ranks"]}
    for each in last.values():
        what = f"layer, {each['format']}" if each["measured"] == "layer" else "chat"
        products = f"{each['products_ms']:.3f}" if "products_ms" in each else ""
        turns = ", taking turns" if each.get("oversubscribed") else ""
        share = f"{100 * each['share_of_communication']:.0f} %" if each["ranks"] > 1 else ""
        lines.append(f"| {system_of(each)} | {what} | {each['ranks']}{turns} | {each['rows']} "
                     f"| {each.get('layer_ms', each.get('step_ms')):.3f} | {products} | {share} |")
    return "\n".join(lines)


# --- the plan ----------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Model:
    """A decoder: width, layers, bytes of packed weights, and bytes of keys and values of a token."""

    name: str
    width: int
    layers: int
    weights: float
    cache: float


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Hosts of GPUs: the measured link inside of a host, and one between hosts. `reads` is bytes a second of a GPU's memory."""

    inside: Link
    between: Link
    per_host: int = 8
    memory: float = 80e9
    reads: float = 2.7e12


LLAMA_70B = Model("Llama 70B, INT4", 8192, 80, 37e9, 80 * 2 * 8 * 128 * 2)
LLAMA_405B = Model("Llama 405B, INT4", 16384, 126, 209e9, 126 * 2 * 8 * 128 * 2)


class Layers:
    """Seconds of a layer's shard alone, between measured rows: straight lines in logarithms. Other widths take in proportion to bytes."""

    def __init__(self, records, reference=LLAMA_70B):
        self.reference = reference
        self.measured = collections.defaultdict(dict)
        for each in records:
            if each["measured"] == "layer" and each["ranks"] == 1 and each.get("format", "int4") == "int4":
                self.measured[each["shards"]][each["rows"]] = each["without_sums_ms"] / 1e3

    def seconds(self, model, shards, rows):
        rows_there = sorted(self.measured[shards])
        times = [self.measured[shards][each] for each in rows_there]
        factor = (model.weights / model.layers) / (self.reference.weights / self.reference.layers)
        return factor * float(np.exp(np.interp(np.log(rows), np.log(rows_there), np.log(times))))


@dataclasses.dataclass(frozen=True)
class Split:
    """GPUs that share each layer (tensor), stages of layers (pipeline), copies of the model (data), and sequences in a stage."""

    tensor: int
    pipeline: int
    data: int
    rows: int
    token_seconds: float
    tokens_a_second: float
    share_of_sums: float
    bytes_a_token: float  # that a GPU sends


def split_of(model, cluster, layers, tensor, pipeline, data, rows, context):
    """None if the memory does not hold it. Each of the stages has `rows` sequences at a time, so that none waits for another."""
    sequences = rows * pipeline
    held = model.weights / (tensor * pipeline) + sequences * context * model.cache / (tensor * pipeline)
    if held > 0.9 * cluster.memory:
        return None
    size = rows * model.width * 2
    one_sum = cluster.inside.sum(tensor, size)
    reading = rows * context * model.cache / model.layers / tensor / cluster.reads
    layer = layers.seconds(model, tensor, rows) + reading + 2 * one_sum
    hop = cluster.between.hop(size) if pipeline > 1 else 0.0
    token = model.layers * layer + pipeline * hop
    sent = 2 * model.layers / pipeline * 2 * (tensor - 1) / tensor * model.width * 2 + (model.width * 2 if pipeline > 1 else 0)
    return Split(tensor, pipeline, data, rows, token, data * sequences / token, 2 * model.layers * one_sum / token, sent)


def best_split(model, cluster, layers, gpus, limit, context):
    """The one with the most tokens a second whose token takes at most `limit` seconds; None if none does."""
    found = None
    for tensor in sorted(layers.measured):
        if tensor > cluster.per_host or gpus % tensor:
            continue
        for pipeline in (each for each in (1, 2, 4, 8, 16) if gpus % (tensor * each) == 0):
            for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256):
                split = split_of(model, cluster, layers, tensor, pipeline, gpus // (tensor * pipeline), rows, context)
                if split and split.token_seconds <= limit and (found is None or split.tokens_a_second > found.tokens_a_second):
                    found = split
    return found


def plan(model, cluster, layers, limits, counts=(8, 64, 1024), context=8192):
    lines = [f"{model.name}, {context} tokens of context a sequence:", "",
             "| GPUs | at most, ms a token | tensor x pipeline x data | sequences in a stage | ms a token | tokens a second | share of sums | kB a GPU sends a token |",
             "|---|---|---|---|---|---|---|---|"]
    for gpus in counts:
        for limit in limits:
            split = best_split(model, cluster, layers, gpus, limit, context)
            if split is None:
                lines.append(f"| {gpus} | {1e3 * limit:g} | none | | | | | |")
                continue
            lines.append(f"| {gpus} | {1e3 * limit:g} | {split.tensor} x {split.pipeline} x {split.data} | {split.rows} | {1e3 * split.token_seconds:.1f} "
                         f"| {split.tokens_a_second:,.0f} | {100 * split.share_of_sums:.0f} % | {split.bytes_a_token / 1e3:,.0f} |")
    return "\n".join(lines) + "\n"


# --- the drawing -------------------------------------------------------------------------------------------------------------


def drawing(found):
    """Measured times over those of the model: a point on the diagonal is right."""
    sys.path.insert(0, str(DOCS))
    from charts import COLORS, Chart, ticks

    all_points = [point for points, _ in found.values() for point in points]
    times = [1e3 * point.seconds for point in all_points] + [1e3 * point.predicted(link) for points, link in found.values() for point in points]
    low, high = min(times) / 1.5, max(times) * 1.5
    axis = ticks(low, high)
    chart = Chart("Milliseconds on several ranks: the model and the measurements", ("by the model", low, high, axis), ("measured", low, high, axis),
                  "Measured times over predicted ones, which lie near the diagonal")
    chart.line([(low, low), (high, high)], "#7f7f7f")
    for factor in (1 - LIMIT, 1 + LIMIT):
        chart.line([(max(low, low / factor), max(low, low / factor) * factor), (min(high, high / factor), min(high, high / factor) * factor)], "#7f7f7f", "4 4")
    for (name, (points, link)), color in zip(found.items(), COLORS):
        for point in points:
            words = f"{point.name}, {point.ranks} ranks: {1e3 * point.seconds:.3g} ms measured, {1e3 * point.predicted(link):.3g} ms by the model"
            chart.mark(1e3 * point.predicted(link), 1e3 * point.seconds, color, point.fitted, words)
        device, transport = name.rsplit(", ", 1)
        chart.legend_mark(f"{device.removeprefix('NVIDIA ').split(' ')[0]}, {transport}", color)
    chart.notes("Filled: fitted. Hollow: held out.", f"Dashed: {100 * LIMIT:.0f} % off.")
    return chart.svg()


def read(paths):
    records = []
    for path in paths:
        for line in pathlib.Path(path).read_text().splitlines():
            if line.startswith("{"):
                records.append(json.loads(line))
    return records


def plans(records, found):
    """Of both models, for the first system of GPUs that was measured; "" where none was."""
    name = next((each for each in found if each.endswith(f", {TRANSPORT}")), None)
    if name is None:
        return ""
    layers = Layers([each for each in records if system_of(each) == name])
    cluster = Cluster(found[name][1], Link(Protocol(*BETWEEN)))
    limits = {LLAMA_70B: (0.015, 0.03, 0.06), LLAMA_405B: (0.03, 0.06, 0.12)}
    return "\n".join(plan(model, cluster, layers, limits[model]) for model in limits)


def sections(records):
    """What the page has between the lines that name this script, by the name of the section, and the largest error."""
    found = systems(records)
    if not found:
        raise SystemExit("records: expected sums or chats of two sizes or more on one system, found none")
    text, worst = report(found)
    text += "\n![measured times over those of the model](performance/scaling.svg)\n"
    return {"measured": measured(records), "points": text, "plan": plans(records, found)}, worst, found


def written(page, name, text):
    """The page with this text in a section."""
    begin, end = (f"<!-- examples/distributed/scaling_model.py, {name}: {each} -->\n" for each in ("begin", "end"))
    before, rest = page.split(begin)
    return before + begin + text.strip() + "\n" + end + rest.split(end)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", metavar="RECORDS", default=[RECORDS])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    texts, worst, found = sections(read(options.records))
    print("\n".join(texts.values()))
    print(f"largest error of a point that was held out: {100 * worst:.1f} % (limit: {100 * LIMIT:.0f} %)")
    if options.write:
        page = PAGE.read_text()
        for name, text in texts.items():
            page = written(page, name, text)
        PAGE.write_text(page)
        DRAWING.write_text(drawing(found))
    sys.exit(worst > LIMIT)


if __name__ == "__main__":
    main()
