"""Measures what each format costs a language model. `metal-marlin quantize` writes the model of `./dev chat` in each format; the table
shows how well each file predicts a text, and its size. ./dev chat --formats runs this program."""
import argparse
import dataclasses
import pathlib
import subprocess
import sys
import tempfile

import pages
import records

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = TOP / "docs" / "llm.md"
COMPUTES = ("default", "int8")


@dataclasses.dataclass(frozen=True)
class Variant:
    """name  what tables call the format
    layout   of the file, as `metal-marlin quantize --layout` takes it
    options  of `metal-marlin quantize`"""

    name: str
    layout: str
    options: str

    @property
    def key(self):
        return f"{self.layout}-{self.name}".lower().replace(" ", "-")


GGUF, TENSORS, GPTQ = "gguf", "compressed-tensors", "gptq"
VARIANTS = {each.key: each for each in (
    Variant("Q8_0", GGUF, "--format q8_0"),
    Variant("Q5_1", GGUF, "--format q5_1"),
    Variant("Q5_0", GGUF, "--format q5_0"),
    Variant("IQ4_NL", GGUF, "--format iq4_nl"),
    Variant("MXFP4", GGUF, "--format mxfp4"),
    Variant("NVFP4", GGUF, "--format nvfp4"),
    Variant("INT4 g32", GGUF, "--format int4"),
    Variant("INT4 g32 mse", GGUF, "--format int4 --scales mse"),
    Variant("INT4 g32 2:4", GGUF, "--format int4 --sparse 2:4"),
    Variant("MXFP4", TENSORS, "--format mxfp4"),
    Variant("NVFP4", TENSORS, "--format nvfp4"),
    Variant("INT4 g32", TENSORS, "--format int4 --group 32"),
    Variant("INT4 g32 zeros", TENSORS, "--format int4 --group 32 --asymmetric"),
    Variant("INT4 g64", TENSORS, "--format int4 --group 64"),
    Variant("INT4 g64 zeros", TENSORS, "--format int4 --group 64 --asymmetric"),
    Variant("INT4 g64", GPTQ, "--format int4 --group 64"),
    Variant("INT4 g128", TENSORS, "--format int4 --group 128"),
    Variant("INT4 g128 2:4", "marlin-24", "--format int4 --group 128 --sparse 2:4"),
)}


class Failed(SystemExit):
    """The failure of a program; its message ends this program unless it is caught."""


def run(*command, stdin=None):
    """The output of a program; stdin is a file, or None."""
    done = subprocess.run([str(each) for each in command], input=stdin.read_text("utf-8") if stdin else "", capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stderr.strip().rpartition("\n")[2])
    return done.stdout


def make(command, model, variant, folder):
    """Writes the model in this format to `folder`. safetensors cannot hold a GGUF's INT8 embedding, so the embedding is quantized, too."""
    made = folder / (variant.key + ".gguf" if variant.layout == GGUF else variant.key)
    everything = [] if variant.layout == GGUF else ["--include", "*"]
    run(command, "quantize", model, made, "--layout", variant.layout, "--requantize", *everything, *variant.options.split())
    return made


def file_bytes(path):
    return sum(each.stat().st_size for each in (path.iterdir() if path.is_dir() else [path]))


def score(chat, model, tokenizer, text, compute):
    """{name: number} of the output of the chat."""
    # One window for the whole text: with the default context, some tokens of a longer text would have few tokens before them.
    shown = run(chat, model, "--tokenizer", tokenizer, "--text", text, "--perplexity", "--compute", compute, "--context", 4096)
    return {key: float(value) for key, value in map(str.split, shown.splitlines())}


def measured(options, keep):
    def scored(name, layout, model):
        print(f"{name}, {layout}", file=sys.stderr, flush=True)
        scores = {compute: score(options.chat, model, options.model, options.text, compute) for compute in COMPUTES}
        first = scores["default"]
        keep({"source": "formats", "name": name, "layout": layout, "tokens": int(first["tokens"]), "file_bytes": file_bytes(model),
              "weight_bytes": int(first["weight_bytes"]), "nats_per_token": {key: each["nats_per_token"] for key, each in scores.items()},
              "perplexity": {key: each["perplexity"] for key, each in scores.items()}})

    scored("as fetched", GGUF, options.model)
    for key in options.only:
        variant = VARIANTS[key]
        with tempfile.TemporaryDirectory() as folder:
            try:
                scored(variant.name, variant.layout, make(options.command, options.model, variant, pathlib.Path(folder)))
            except Failed as why:
                keep({"source": "formats", "name": variant.name, "layout": variant.layout, "absent": str(why).replace(folder + "/", "")})


# --- what is shown -----------------------------------------------------------------------------------------------------------

HEAD = ("format", "file", "file MB", "weights MB", "nats per token", "perplexity", "perplexity / perplexity as fetched", "perplexity, INT8")


def cells(record, fetched):
    """The cells of a line of the table; `fetched` is the first line."""
    if "absent" in record:
        return (record["name"], record["layout"], *[""] * 5, record["absent"])
    perplexity, nats = record["perplexity"], record["nats_per_token"]
    return (record["name"], record["layout"], f"{record['file_bytes'] / 1e6:.1f}", f"{record['weight_bytes'] / 1e6:.1f}", f"{nats['default']:.3f}",
            f"{perplexity['default']:.2f}", f"{perplexity['default'] / fetched['perplexity']['default']:.2f}", f"{perplexity['int8']:.2f}")


def write_docs(page, found):
    there = [each for each in found if "absent" not in each]
    table = pages.markdown(HEAD, [cells(each, found[0]) for each in there])
    absent = "".join(f"- {each['name']}, {each['layout']}, is not possible: {each['absent']}\n" for each in found if "absent" in each)
    text = f"{found[0]['tokens']} tokens.\n\n{table}" + (absent and "\n" + absent)
    pages.write_parts(page, {"formats": text})
    return [page]


def parser_of(program, description):
    """The options of both measurements of the chat; ./dev passes the programs and the model."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    add = parser.add_argument
    for name in ("chat", "command", "model"):
        add(name, type=pathlib.Path, help=argparse.SUPPRESS)
    add("--text", type=pathlib.Path, default=TOP / "tests" / "data" / "wonderland.txt", metavar="FILE", help="the text to predict, up to 4096 tokens")
    add("--docs", nargs="?", type=pathlib.Path, const=PAGE, metavar="PAGE", help="write the results into a page (default: docs/llm.md)")
    records.add_options(parser)
    return parser


def parsed(arguments):
    parser = parser_of("./dev chat --formats", __doc__)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(VARIANTS), metavar="NAME,...", help=", ".join(VARIANTS))
    options = parser.parse_args(arguments)
    unknown = [each for each in options.only if each not in VARIANTS]
    if unknown:
        parser.error(f"--only: no {unknown[0]}; there are: {', '.join(VARIANTS)}")
    return options


def main(arguments):
    options = parsed(arguments)
    found = records.gathered(options, lambda keep: measured(options, keep))
    print("\n".join(pages.in_columns([HEAD, *(cells(each, found[0]) for each in found)])))
    for path in write_docs(options.docs, found) if options.docs else ():
        print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
