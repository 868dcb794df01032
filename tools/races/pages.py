"""Turns records into lines of a table, and the computed parts of docs/performance.md."""
import re

from weights import shape_text

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
    """Writes the computed parts of the page. Returns what it wrote."""
    write_parts(page, {"run": about_run(records), "rows": rows_part(records)})
    return [page]
