"""Turns records into lines of a table, drawings, and the computed parts of docs/performance.md."""
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs"))

from charts import COLORS, Chart, ticks  # noqa: E402
from weights import shape_text  # noqa: E402

HEAD = (f"{'candidate':19} {'M':>4} {'time':>9} {'CPU time':>9} {'GB/s':>6} {'GFLOP/s':>8}  {'of limit':20} {'nmse':>8}  "
        "kernel; for other libraries, their time / our time")


def seconds_text(seconds):
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            break
    return f"{seconds * factor:.3g} {unit}"


def label(record):
    return f"{record['candidate']} {record['variant']}"


def row(record, race):
    """`race` are the records of the same race."""
    over = [f"{each['over'][label(record)]:.2f} {each['variant']}" for each in race if label(record) in each.get("over", {})]
    words = ", ".join(over) if over else record["kernel"]
    return (f"{label(record):19} {record['M']:4} {seconds_text(record['seconds']):>9} {seconds_text(record['cpu_seconds']):>9} "
            f"{record['gbytes_per_s']:6.1f} {record['gflops']:8.1f}  {record['fraction_of_limit']:4.2f} {record['limit']:15} "
            f"{record['nmse']:8.1e}  {words}")


def in_columns(rows):
    """The lines of text of a table, in which a column is as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(each, widths)).rstrip() for each in rows]


def markdown(head, rows):
    return "\n".join("| " + " | ".join(each) + " |" for each in (head, ["---"] * len(head), *rows)) + "\n"


# --- drawings ------------------------------------------------------------------------------------------------------------------


def colors_of(records):
    return dict(zip(dict.fromkeys(label(each) for each in records), COLORS * 4))


def shape_of(records):
    """The (N, K) with the most records, and these records."""
    shape = statistics.mode((each["N"], each["K"]) for each in records)
    return shape, [each for each in records if (each["N"], each["K"]) == shape]


def roofline(records):
    """Draws every product at its own fraction of the median limits of the run, because the speed of a machine drifts."""
    (n, k), records = shape_of(records)
    median = lambda key, chosen: statistics.median(each[key] for each in chosen)
    read = median("read_gbytes_per_s", records)
    peaks = {name: median("peak_gflops", [each for each in records if each["instruction"] == name])
             for name in dict.fromkeys(each["instruction"] for each in records)}
    intensity = lambda each: 2 * each["M"] * n * k / each["weight_bytes"]
    limit = lambda each: intensity(each) * read if each["limit"] == "read" else peaks[each["instruction"]]
    points = [(intensity(each), each["fraction_of_limit"] * limit(each), each) for each in records]
    left, right = min(x for x, _, _ in points) / 1.5, max(x for x, _, _ in points) * 1.5
    low, high = min(y for _, y, _ in points) / 1.5, max(peaks.values()) * 1.5
    chart = Chart(f"N = {n}, K = {k}, all formats: products against the limits of this machine",
                  ("operations per byte of weights", left, right, ticks(left, right)), ("GFLOP/s", low, high, ticks(low, high)),
                  "Roofline of all candidates")
    highest = max(peaks.values())
    chart.line([(max(left, low / read), max(left * read, low)), (highest / read, highest)], "#444444")
    for peak in peaks.values():
        chart.line([(max(left, peak / read), peak), (right, peak)], "#444444", "7 4")
    colors = colors_of(records)
    for x, y, each in points:
        words = f"{label(each)} {each['format']}, M = {each['M']}: {each['gflops']:.0f} GFLOP/s, {100 * each['fraction_of_limit']:.0f}% of its limit"
        chart.mark(x, y, colors[label(each)], each["candidate"] == "ours", words)
    for name, color in colors.items():
        chart.legend_mark(name, color)
    chart.notes(f"reading memory: {read:.1f} GB/s", *(f"{name}: {peak:.0f} Gop/s" for name, peak in peaks.items()), "disc: ours; ring: others")
    return chart.svg()


# --- pages -------------------------------------------------------------------------------------------------------------------

PART = re.compile(r"(<!-- ([\w. -]+) -->\n)(.*?)(<!-- end -->)", re.S)


def write_parts(page, parts):
    """Writes {name: text} into the parts of the page with these names. Other parts stay as they are."""
    renewed = PART.sub(lambda found: found[1] + parts.get(found[2], found[3]) + found[4], page.read_text("utf-8"))
    page.write_text(renewed, "utf-8")


def about_run(records):
    first = records[0]
    names = dict.fromkeys(f"`{each['candidate']}` is {each['about']}" for each in records if each.get("about"))
    return f"{first['machine']}, {first['threads']} threads, {first['date']}.\n\n" + "".join(f"- {name}\n" for name in names)


def rows_part(records):
    """Our library: a line for each format, shape and compute, and in the cell of each M the time, the fraction of the limit, "r"
    where that is reading, and the time of the fastest other library over ours."""
    lines, rows = {}, sorted({each["M"] for each in records if each["source"] == "race"})
    for each in records:
        if each["source"] != "race" or each["candidate"] != "ours":
            continue
        cell = f"{seconds_text(each['seconds'])}, {each['fraction_of_limit']:.2f}" + (" r" if each["limit"] == "read" else "")
        others = f", {min(each['over'].values()):.2f}" if each["over"] else ""
        lines.setdefault((each["isa"], each["format"], shape_text(each), each["compute"]), {})[each["M"]] = cell + others
    head = ("ISA", "format", "N x K", "compute", *(f"M = {m}" for m in rows))
    return markdown(head, [(*line, *(cells.get(m, "") for m in rows)) for line, cells in lines.items()])


def write_docs(page, records):
    """Writes the computed parts of the page, and the roofline into a folder of its name beside it. Returns what it wrote."""
    drawing = page.with_suffix("") / "roofline.svg"
    drawing.parent.mkdir(exist_ok=True)
    drawing.write_text(roofline([each for each in records if each["isa"] == "native" and "experts" not in each]), "utf-8")
    drawings = f"![roofline]({drawing.parent.name}/{drawing.name})\n"
    write_parts(page, {"run": about_run(records), "rows": rows_part(records), "drawings": drawings})
    return [page, drawing]
