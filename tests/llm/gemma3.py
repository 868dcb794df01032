#!/usr/bin/env python3
"""The chat with the real Gemma 3, which only the long form of the suite fetches: tokens, probabilities, answers.

    gemma3.py CHAT MODEL.gguf
"""

import os
import pathlib
import random

# Before numpy: threads that wait for each other by spinning cost more than they bring when others use the processors, too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gguf
import numpy as np

from decoder import Decoder
from harness import MODEL, expect, expect_equal, main, run, test
from pieces import Pieces

WONDERLAND = (pathlib.Path(__file__).parents[1] / "data" / "wonderland.txt").read_text()
ROUNDING = 2e-4  # of a log-probability, in default compute
BEGIN = 2        # <bos>


def tokens(text):
    return [int(i) for i in run("--tokenize", "--null", text=text.encode() + b"\0")[0].split()]


@test
def tokens_are_those_of_sentence_piece(_scratch):
    fields = gguf.GGUFReader(MODEL).fields
    value = lambda key: fields["tokenizer.ggml." + key].contents()
    pieces = Pieces(value("tokens"), value("token_type"), value("scores"), value("add_space_prefix"))
    rng = random.Random(11)
    parts = [*WONDERLAND[:3000].split(" "), "\n", "\n" * 33, "\t\t", "  ", " " * 40, "<bos>", "<start_of_turn>", "</ul>", "[multimodal]", "<0x41>",
             "\u2581", "\u00e9", "e\u0301", "\U0001f469\u200d\U0001f467", "\u6771\u4eac", "\ufb01", "\U000f0000", "\r\n", "def f(x):", "3.14159"]
    texts = ["".join(rng.choices(parts, k=rng.randint(1, 25))) for _ in range(500)] + [" ".join(rng.choices(parts, k=20)) for _ in range(500)]
    out, _ = run("--tokenize", "--null", text=b"".join(text.encode() + b"\0" for text in texts))
    for text, line in zip(texts, out.split("\n")):
        expect_equal([int(i) for i in line.split()], pieces.encode(text), repr(text))
    return f"{len(texts)} texts"


@test
def probabilities(scratch):
    texts = {"prose": WONDERLAND[:3600], "scripts": "Le c\u0153ur a ses raisons. \u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002 \U0001f98a 3,14159 \u2248 \u03c0.\n"}
    decoder, most = Decoder(MODEL), {}
    ids = [tokens(text) for text in texts.values()]
    expect(len(ids[0]) > decoder.window + 100, f"{len(ids[0])} tokens: local layers should not see the first of them")
    hidden = decoder.hidden([[BEGIN] + each for each in ids])
    at = 0
    for (name, text), each in zip(texts.items(), ids):
        (scratch / name).write_text(text)
        run("--text", str(scratch / name), "--logits", str(scratch / f"{name}.npy"))
        rows = iter(np.load(scratch / f"{name}.npy", mmap_mode="r"))
        most[name], at = 0, at + 1  # behind the opening
        for logs in decoder.log_probabilities(hidden[at:at + len(each)], 64):
            found = np.array([next(rows) for _ in logs], np.float64)
            found -= found.max(axis=1, keepdims=True)
            found -= np.log(np.exp(found).sum(axis=1, keepdims=True))
            most[name] = max(most[name], np.abs(found - logs).max())
        at += len(each)
    expect(max(most.values()) <= ROUNDING, f"they differ by up to {most}, expected at most {ROUNDING}")
    return ", ".join(f"{name} {len(each)} tokens, largest difference {most[name]:.1e}" for name, each in zip(texts, ids))


@test
def answers(_scratch):
    """The file has a model that no one taught to chat, and no template."""
    out, _ = run("--temperature", "0", "--repeat-penalty", "1", "--max-tokens", "30", text=b"What is the capital of France?\nWhat is the capital of Germany?\n")
    expect_equal(out, "The capital of France is Paris.\nThe capital of Germany is Berlin.\n")


main()
