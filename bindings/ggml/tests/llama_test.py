#!/usr/bin/env python3
"""llama.cpp with the plugin, beside llama.cpp alone: the same model, through llama_decode.

    llama_test.py FOLDER PLUGIN MODEL.gguf      FOLDER holds the Python package llama_cpp
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "tools" / "races"))
import llama  # noqa: E402

TEXT = """Once upon a time in a small village by the sea, there lived an old fisherman who mended his nets every morning. One day he
found a letter in a bottle, written by a child on the other shore, who asked what the fish say to each other at night."""
# llama.cpp alone rounds activations to 8 bits: so many nats may log-probabilities be off in the square mean, and in one place.
NEAR, FARTHEST = 0.2, 1.5
COUNT = 200


def log_probabilities_are_near(alone, plugin, tokens):
    a, b = alone.log_probabilities(tokens), plugin.log_probabilities(tokens)
    off = abs(a - b)[a > -7]  # what is hardly ever said may be further off
    mean, most = float((off ** 2).mean() ** 0.5), float(off.max())
    assert mean < NEAR and most < FARTHEST, f"{mean:.3f} nats apart in the mean and {most:.3f} at most, expected {NEAR} and {FARTHEST}"
    return f"{mean:.3f} nats apart in the mean, {most:.3f} at most"


def greedy_tokens_are_the_same(alone, plugin, tokens):
    """After each token that llama.cpp alone says, the plugin says the same one next, but where two tokens come close to each other."""
    chosen, margins = alone.generate(tokens, COUNT)
    found = plugin.log_probabilities(tokens + chosen[:-1])[len(tokens) - 1:].argmax(1).tolist()
    parted = [margins[i] for i in range(COUNT) if found[i] != chosen[i]]
    assert max(parted, default=0) < 2 * NEAR, f"other tokens where the margin was {max(parted):.3f} nats, expected less than {2 * NEAR}"
    assert len(parted) <= COUNT // 20, f"{len(parted)} of {COUNT} tokens are others"
    return f"{COUNT - len(parted)} of {COUNT}; the others within {max(parted, default=0):.3f} nats"


def one_by_one_is_as_together(_alone, plugin, tokens):
    """A prompt in one batch, and the tokens of its continuation one by one, agree with all of them in one batch."""
    chosen, _ = plugin.generate(tokens, 20)
    found = plugin.log_probabilities(tokens + chosen[:-1])[len(tokens) - 1:].argmax(1).tolist()
    differ = sum(x != y for x, y in zip(chosen, found))
    assert differ <= 1, f"{differ} of 20 tokens differ: {chosen}, {found}"


def main(folder, plugin_file, model):
    failed = 0
    alone = llama.Apart(folder, model, 1, 512)
    tokens = alone.tokens(TEXT)
    for compute in "int8", "exact":
        plugin = llama.Apart(folder, model, 1, 512, plugin=plugin_file, compute=compute)
        for test in log_probabilities_are_near, greedy_tokens_are_the_same, one_by_one_is_as_together:
            name = f"{test.__name__.replace('_', ' ')}, {compute}"
            try:
                found = test(alone, plugin, tokens)
                print(f"passed {name}" + (f": {found}" if found else ""), flush=True)
            except Exception as error:  # whatever it is, the others are still to run
                failed = 1
                print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
        plugin.close()
    alone.close()
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
