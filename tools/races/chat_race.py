"""Races the language model of `./dev chat` against llama.cpp: the same file, the same number of threads, in turn. As in llama-bench, the
tokens of a prompt run together and generated tokens run one by one, each from an empty cache. ./dev chat --compare runs this program."""
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import chat_formats
import ours
import pages
import records
from llama import Apart
from peer import Absent

LLAMA = chat_formats.TOP / "build" / "compare" / "llama"  # where ./dev puts the one that pip compiles for this machine
PLUGIN = chat_formats.TOP / "build" / "ggml" / "libggml-metal-marlin.so"  # which the suite ggml builds
CONTEXT = 1024
Q4_0 = chat_formats.Variant("Q4_0", chat_formats.GGUF, "--format q4_0")  # --format int4 would keep the codes of a Q4_1 file
FEWEST = 3  # rounds
EXCERPT = slice(4000, 6000)  # of a text, on which nats per token show that all run the same model


class Chat:
    """A running metal-marlin-chat: it reads a line of two numbers and answers with a line of JSON."""

    def __init__(self, program, model, compute, threads, about):
        self.name, self.about, self.program, self.model, self.compute = f"ours {compute}", about, program, model, compute
        self.process = subprocess.Popen([program, model, "--bench", "--compute", compute, f"--threads={threads}", f"--context={CONTEXT}"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self, prompt, generate):
        """The seconds of one run."""
        try:
            print(prompt, generate, file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise chat_formats.Failed(f"{self.name}: {self.program} ended")
        found = json.loads(line)
        return found["prompt_seconds"] + found["generate_seconds"]

    def nats(self, text, _tokens):
        return chat_formats.score(self.program, self.model, self.model, text, self.compute)["nats_per_token"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def candidates(options, model, threads, about):
    found = [Chat(options.chat, model, compute, threads, about) for compute in ("int8", "default")]
    settings = [{}, {"flash_attention": False}]
    if options.plugin.exists():
        settings += [{"plugin": str(options.plugin), "compute": compute} for compute in ("int8", "exact")]
    else:
        print(f"left out: llama.cpp with the plugin: expected {options.plugin}, which ./dev test ggml builds", file=sys.stderr, flush=True)
    try:
        for each in settings:
            found.append(Apart(str(options.llama), str(model), threads, CONTEXT, **each))
    except Absent as why:
        print(f"left out: llama.cpp: {why}", file=sys.stderr, flush=True)
    return found


def race(found, work, seconds):
    """{(candidate, name): [seconds, ...]} for {name: counts}. Each round runs every candidate once; rounds alternate between forward
    and backward order until the time is over."""
    samples = {(each, name): [] for each in found for name in work}
    for each, name in samples:
        each.time(*work[name])  # warms up
    start, rounds, spent = time.monotonic(), 0, 0.0
    while rounds < FEWEST or spent * (rounds + 1) / rounds < seconds:
        for name, counts in work.items():
            for each in found[::-1 if rounds % 2 else 1]:
                samples[each, name].append(each.time(*counts))
        rounds, spent = rounds + 1, time.monotonic() - start
        print(f"round {rounds}, {spent:.0f} of {seconds:.0f} s", file=sys.stderr, flush=True)
    return samples


def measured(options, keep):
    machine = ours.Race(options.chat.resolve().parents[2])
    threads = options.threads or machine.threads()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = folder / "text"
        text.write_text(options.text.read_text("utf-8")[EXCERPT], "utf-8")
        tokens = [int(each) for each in chat_formats.run(options.chat, options.model, "--tokenize", "--null", stdin=text).split()]
        models = {parts_of_name(options.model)[1]: options.model}
        if not options.as_fetched:
            models["Q4_0"] = chat_formats.make(options.command, options.model, Q4_0, folder)
        for name, model in models.items():
            print(f"{name}: {model.name}", file=sys.stderr, flush=True)
            found = candidates(options, model, threads, machine.about())
            nats = {each: each.nats(text, tokens) for each in found}
            for (each, work), samples in race(found, options.works, options.seconds / len(models)).items():
                seconds = statistics.median(samples)
                keep({"source": "chat", "name": parts_of_name(options.model)[0], "date": datetime.date.today().isoformat(), "machine": machine.processor(), "threads": threads, "model": name,
                      "work": work, "candidate": each.name, "about": each.about, "seconds": seconds,
                      "tokens_per_s": sum(options.works[work]) / seconds, "samples": len(samples), "nats_per_token": nats[each]})
            for each in found:
                each.close()


# --- what is shown -----------------------------------------------------------------------------------------------------------


def table(found):
    """(head, rows): tokens per second, one line for each model and work, with the rate of ours divided by the fastest other rate."""
    names = list(dict.fromkeys(each["candidate"] for each in found))
    mine = [each for each in names if each.startswith("ours")]
    plugin = [each for each in names if "with the plugin" in each]
    others = [each for each in names if each not in mine + plugin]
    rows = []
    for model, work in dict.fromkeys((each["model"], each["work"]) for each in found):
        rate = {each["candidate"]: each["tokens_per_s"] for each in found if (each["model"], each["work"]) == (model, work)}
        best = max((rate[each] for each in others), default=None)
        rows.append((model, work, *(f"{rate[each]:.1f}" for each in names),
                     *(f"{rate[each] / best:.2f}" for each in mine + plugin if best)))
    return ("file", "work", *names, *(f"{each} / best other" for each in mine + plugin if others)), rows


def about(found):
    """The lines of the table."""
    nats = {(each["model"], each["candidate"]): each["nats_per_token"] for each in found}
    yield "Nats per token: " + ", ".join(f"{model} {name} {value:.3f}" for (model, name), value in nats.items()) + "."
    for words, names in {each["about"]: [other["candidate"] for other in found if other["about"] == each["about"]] for each in found}.items():
        yield f"{', '.join(dict.fromkeys(names))}: {words}."


def write_docs(page, found):
    first, runs = found[0], min(each["samples"] for each in found)
    threads = "1 thread" if first["threads"] == 1 else f"{first['threads']} threads"
    run = f"{first['machine']}, {threads}, {first['date']}; medians of at least {runs} runs of each candidate, in turn; tokens per second.\n\n"
    part = f"race {first['name']}" + (" 1 thread" if first["threads"] == 1 else "")
    pages.write_parts(page, {part: run + pages.markdown(*table(found)) + "\n" + "".join(f"- {each}\n" for each in about(found))})
    return [page]


def parts_of_name(path):
    """A model's name and the format in it, which end a file's name: ("gemma-3-270m", "Q4_K_M")."""
    found = re.fullmatch(r"(.+)[.-](i?q\d\w*|bf16|f16|f32)", path.stem, re.IGNORECASE)
    return (found[1], found[2].upper()) if found else (path.stem, "as fetched")


def works(text):
    """Turns names of llama-bench into numbers of tokens that run together and one by one: {"pp128": (128, 0), "tg64": (0, 64)}."""
    return {each: (int(each[2:]), 0) if each.startswith("pp") else (0, int(each.removeprefix("tg"))) for each in text.split(",")}


def parsed(arguments):
    parser = chat_formats.parser_of("./dev chat --compare", __doc__)
    parser.add_argument("--works", default="pp128,pp512,tg64", type=works, metavar="ppN,tgN,...", help="tokens together, or one by one (default %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of each candidate (default: all that the process may use)")
    parser.add_argument("--as-fetched", action="store_true", help="leave out the Q4_0 file made from the model")
    parser.add_argument("--seconds", type=float, default=150, help="time for all races (default 150); three rounds at least")
    parser.add_argument("--llama", type=pathlib.Path, default=LLAMA, metavar="DIR", help="a folder with the Python package llama_cpp")
    parser.add_argument("--plugin", type=pathlib.Path, default=PLUGIN, metavar="FILE", help="the plugin for ggml (default %(default)s)")
    return parser.parse_args(arguments)


def main(arguments):
    options = parsed(arguments)
    found = records.gathered(options, lambda keep: measured(options, keep))
    head, rows = table(found)
    print("\n".join([*pages.in_columns([head, *rows]), *about(found)]))
    for path in write_docs(options.docs, found) if options.docs else ():
        print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
