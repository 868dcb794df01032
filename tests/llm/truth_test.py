#!/usr/bin/env python3
"""The chat against a decoder in float64: probabilities, perplexity, answers.

    truth_test.py CHAT MODEL.gguf
"""

import os
import pathlib

# Before numpy: threads that wait for each other by spinning cost more than they bring when others use the processors, too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from decoder import Decoder
from harness import MODEL, expect, main, run, score, test

WONDERLAND = pathlib.Path(__file__).parents[1] / "data" / "wonderland.txt"
WHOLE = "METAL_MARLIN_WHOLE" in os.environ
TEXTS = {
    "prose": WONDERLAND.read_text()[4000:5500],
    "code": "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n\n\nassert gcd(12, 18) == 6\n" * 3,
    "scripts": "Die Straße war naß. Le cœur a ses raisons. 東京は日本の首都です。 Быстрая лиса 🦊 прыгает; 3,14159 ≈ π.\n",
}
PROMPTS = ["What is the capital of France?", "Write a poem about the sea.", "Explain gravity to a child.", "Hello!",
           "List three fruits.", "Write a Python function that adds two numbers.", "Who wrote Hamlet?", "What is 2 + 2?"]
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # the template's default
BEGIN, END = 1, 2  # <|im_start|>, <|im_end|>
ANSWER = 32        # tokens
ROUNDING = 1e-3    # of a log-probability, in default compute

decoder = Decoder(MODEL)


def tokens(text):
    return [int(i) for i in run("--tokenize", "--null", text=text.encode() + b"\0")[0].split()]


def files(scratch, texts):
    for name, text in texts.items():
        (scratch / name).write_text(text)
        yield str(scratch / name)


@test
def probabilities(scratch):
    texts = [tokens(text) for text in TEXTS.values()]
    hidden = decoder.hidden(texts)
    wanted = np.split(np.concatenate(list(decoder.log_probabilities(hidden))), np.cumsum([len(text) for text in texts])[:-1])
    most = {}
    for name, path, logs in zip(TEXTS, files(scratch, TEXTS), wanted):
        run("--text", path, "--logits", str(scratch / f"{name}.npy"))
        logits = np.load(scratch / f"{name}.npy").astype(np.float64)
        expect(logits.shape == logs.shape, f"{name}: {logits.shape}, expected {logs.shape}")
        logits -= logits.max(axis=1, keepdims=True)
        most[name] = np.abs(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)) - logs).max()
    expect(max(most.values()) <= ROUNDING, f"they differ by up to {most}, expected at most {ROUNDING}")
    return ", ".join(f"{name} {len(text)} tokens, largest difference {most[name]:.1e}" for name, text in zip(TEXTS, texts))


@test
def perplexities(scratch):
    """Of a text that fills several blocks of the attention; the long form has twice as many tokens."""
    path, least = scratch / "text", 2000 if WHOLE else 1000
    path.write_text(WONDERLAND.read_text() if WHOLE else WONDERLAND.read_text()[:4600])
    text = tokens(path.read_text())
    expect(len(text) >= least, f"only {len(text)} tokens")
    blocks = decoder.log_probabilities(decoder.hidden([text])[:-1])
    nats = -np.mean(np.concatenate([logs[np.arange(len(logs)), text[1 + 256 * i:][:len(logs)]] for i, logs in enumerate(blocks)]))
    wanted, found = np.exp(nats), {}
    for compute, limit in ("default", 1e-5), ("int8", 5e-3):
        found[compute] = score("--text", str(path), "--context", "4096", "--compute", compute)["perplexity"]
        off = found[compute] / wanted - 1
        expect(abs(off) <= limit, f"{compute}: {found[compute]}, of the float64 {wanted} it is off by {off:.2e}, expected {limit}")
    return f"{len(text)} tokens, float64 {wanted:.6f}, " + ", ".join(f"{key} {value:.6f}" for key, value in found.items())


# The decoder reads each answer behind its prompt: where it would have said every token itself, it is its own answer as well.
@test
def greedy_answers(scratch):
    message = lambda role, content: [BEGIN, *tokens(f"{role}\n{content}"), END, *tokens("\n")]
    begins = [message("system", SYSTEM) + message("user", prompt) + [BEGIN, *tokens("assistant\n")] for prompt in PROMPTS]
    said = []
    for prompt in PROMPTS:
        out = run("--prompt", prompt, "--temperature", "0", "--repeat-penalty", "1", "--max-tokens", str(ANSWER))[0].removesuffix("\n")
        answer = tokens(out)
        said.append(answer if len(answer) >= ANSWER else answer + [END])
    texts = [begin + answer for begin, answer in zip(begins, said)]
    hidden = np.split(decoder.hidden(texts), np.cumsum([len(text) for text in texts])[:-1])
    same, ties = 0, []
    for prompt, begin, answer, h in zip(PROMPTS, begins, said, hidden):
        logs = np.concatenate(list(decoder.log_probabilities(h[len(begin) - 1:-1])))
        for token, log in zip(answer, logs, strict=True):
            if token == log.argmax():
                same += 1
                continue
            behind = log.max() - log[token]
            expect(behind <= ROUNDING, f"'{prompt}': token {token}, expected {log.argmax()}, which is {behind:.3g} nats more probable")
            ties.append(f"'{prompt}': {behind:.1e} nats")
            break  # from here on it may be another answer
    return f"{same} tokens of {len(PROMPTS)} answers; ties: {'; '.join(ties) or 'none'}"


main()
