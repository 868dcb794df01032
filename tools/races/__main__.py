"""Races this library against other libraries, in turn in one process, and measures the limits of the machine in the same race.

./dev bench --compare runs this program in an environment that has the other libraries. A library that is not available is left out,
and a line says why."""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import records
from peer import Absent, use_threads

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
NATIVE_GGML = TOP / "build" / "compare" / "llama"  # where ./dev puts llama.cpp, and the ggml in it, built for this machine


def shape(text):
    """Parses NxK or, for experts, NxKxExT."""
    return dict(zip(("N", "K", "experts", "top_k"), map(int, text.split("x"))))


# The default measurements: a few rows for a quick look (less than a minute if everything is built), and all rows (about an hour).
QUICK = {"shapes": [shape("4096x4096")], "formats": ["mxfp4", "int4"], "rows": [1, 8, 128], "isa": ["native"], "seconds": 0.1, "longest": 1.0}
WHOLE = {
    "shapes": [*map(shape, ("4096x4096", "11776x4096", "4096x11776", "201088x2880", "28672x8192", "2048x640", "777x1000", "2880x2880x128x4"))],
    "formats": ["mxfp4", "nvfp4", "int4", "int4-g128", "int4-zeros", "int4-zeros-g64", "int8"],
    "rows": [1, 2, 4, 8, 16, 32, 64, 128, 512], "isa": ["native", "avx2"], "seconds": 0.5, "longest": 5.0,
}
# The largest NMSE that is allowed for our results, as in `metal-marlin verify`: float32 sums, and activations rounded to 8 bits.
EXACT, BOUNDS = 1e-11, {"int8": 5e-4}
COMPUTES = ("int8", "bf16", "f32", "f16")
PEERS = ("ggml", "mlx", "onnxruntime")


def listed(kind):
    return lambda text: [kind(part) for part in text.split(",") if part]


def parsed(arguments):
    from weights import FORMATS
    parser = argparse.ArgumentParser(prog="./dev bench --compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="measure a few rows in under a minute instead of all rows in about an hour")
    add("--shapes", type=listed(shape), metavar="NxK,...", help="weights: outputs x inputs; NxKxExT: of E experts, of which each row has T")
    add("--formats", type=listed(str), metavar="NAME,...", help=", ".join(FORMATS))
    add("-m", dest="rows", type=listed(int), metavar="M,...", help="rows of activations")
    add("--compute", type=listed(str), metavar="NAME,...", default=list(COMPUTES[:3]), help=f"of ours: {', '.join(COMPUTES)} (default: the first three)")
    add("--backend", choices=("cpu", "metal"), default="cpu", help="backend of this library; with metal, only mlx runs on the same device")
    add("--peers", type=listed(str), metavar="NAME,...", default=list(PEERS), help=", ".join(PEERS))
    add("--isa", type=listed(str), metavar="NAME,...", help="native, or avx2 (this library limited to AVX2 against a ggml for AVX2)")
    add("--threads", type=int, help="threads of each candidate (default: all that the process may use)")
    add("--seconds", type=float, help="approximate time for each candidate of a race")
    add("--longest", type=float, help="leave out calls that would take more seconds than this")
    add("--rotation", type=float, metavar="MB", help="copies of the weights of each candidate together (default: over 400, and 8 last-level caches)")
    add("--ggml", type=pathlib.Path, metavar="DIR", help="a folder with libggml-base and libggml-cpu built for this machine")
    records.add_options(parser)
    add("--docs", action="store_true", help="write the tables of docs/performance.md")
    add("--build", type=pathlib.Path, default=TOP / "build" / "release", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name, value in (QUICK if options.quick else WHOLE).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    for name, known in (("formats", FORMATS), ("compute", COMPUTES), ("peers", PEERS), ("isa", ("native", "avx2"))):
        unknown = [each for each in getattr(options, name) if each not in known]
        if unknown:
            parser.error(f"--{name}: no {unknown[0]}; there are: {', '.join(known)}")
    options.rows.sort()
    return options


def note(words):
    print(f"left out: {words}", file=sys.stderr, flush=True)


def peers_of(options, race, threads, isa):
    """Our candidates, and the requested candidates that are available."""
    import ggml
    import ours
    import python_peers

    mine = ours.Ours(race, threads, options.backend, options.compute)
    makers = {
        "ggml": lambda: ggml.Ggml(race, threads, options.ggml or NATIVE_GGML),
        "mlx": lambda: python_peers.Mlx(options.backend),
        "onnxruntime": lambda: python_peers.OnnxRuntime(threads),
    }
    if isa == "avx2":  # which the others cannot be forced to
        makers = {"ggml": lambda: ggml.Ggml(race, threads, ggml.wheel(), "ggml-avx2")}
    found = [mine]
    for name, make in makers.items():
        if name in options.peers:
            try:
                found.append(make())
            except Absent as why:
                note(f"{name}: {why}")
    return found


def raced(options, isa, keep):
    """Runs every race of one instruction set in this process, prints its table, and gives keep() each record."""
    if isa == "avx2":
        os.environ["METAL_MARLIN_ISA"] = "avx2"
    import ours
    import pages
    import racing
    from weights import shape_text

    race = ours.Race(options.build)
    threads = options.threads or race.threads()
    use_threads(threads)
    rotation = int(options.rotation * 1e6) if options.rotation else race.rotation_bytes()
    peers = peers_of(options, race, threads, isa)
    common = {"source": "race", "date": datetime.date.today().isoformat(), "machine": race.processor(), "threads": threads, "isa": isa,
              "rotation_bytes": rotation}
    track = racing.Track(peers, ours.Limits(race, threads), peers[0].isa, common, note)
    print(f"{common['machine']}, {threads} threads; medians of calls taken in turn, limits of the same races")
    for peer in peers:
        print(f"  {peer.name}: {peer.about}")
    for name in options.formats:
        for each in options.shapes:
            print(f"\n{name}, {shape_text(each)} (N x K)\n{pages.HEAD}")
            for records in track.run(name, each, options.rows, rotation, options.seconds, options.longest):
                for record in records:
                    print(pages.row(record, records), flush=True)
                    keep(record)


def in_a_process_each(options, keep):
    """Runs races in processes of their own, because one process can hold only one ggml and one choice of our kernels."""
    join = lambda values: ",".join(map(str, values))
    fixed = [f"--shapes={join('x'.join(map(str, each.values())) for each in options.shapes)}", f"--formats={join(options.formats)}", f"-m={join(options.rows)}",
             f"--compute={join(options.compute)}", f"--peers={join(options.peers)}", f"--seconds={options.seconds}",
             f"--longest={options.longest}", f"--build={options.build}", f"--backend={options.backend}"]
    fixed += [f"--{name}={getattr(options, name)}" for name in ("threads", "rotation", "ggml") if getattr(options, name)]
    for isa in options.isa:
        with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as file:
            subprocess.run([sys.executable, "-B", HERE, *fixed, f"--isa={isa}", f"--json={file.name}", "--force"], check=True)
            for line in file:
                keep(json.loads(line))


def measured(options, keep):
    if len(options.isa) == 1:
        raced(options, options.isa[0], keep)
    else:
        in_a_process_each(options, keep)


def main(arguments):
    options = parsed(arguments)
    found = records.gathered(options, lambda keep: measured(options, keep))
    import pages
    from weights import shape_text
    if options.docs:
        for path in pages.write_docs(TOP / "docs" / "performance.md", found):
            print(f"wrote {path}")
    mine = [each for each in found if each["source"] == "race" and each["candidate"] == "ours"]
    wrong = [each for each in mine if not each["nmse"] <= BOUNDS.get(each["compute"], EXACT)]
    for each in wrong:
        print(f"WRONG: {pages.label(each)}, {each['format']}, {shape_text(each)}, M = {each['M']}: NMSE {each['nmse']:.1e}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
