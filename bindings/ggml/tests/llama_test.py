#!/usr/bin/env python3
"""llama.cpp with the plugin, beside llama.cpp alone: the same model, through llama_decode.

    llama_test.py FOLDER PLUGIN MODEL.gguf      FOLDER holds the Python package llama_cpp
"""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "tools" / "races"))
import llama  # noqa: E402

TEXT = """Once upon a time in a small village by the sea, there lived an old fisherman who mended his nets every morning. One day he
found a letter in a bottle, written by a child on the other shore, who asked what the fish say to each other at night."""
# llama.cpp alone rounds activations to 8 bits: so many nats may log-probabilities be off in the square mean, and in one place.
NEAR, FARTHEST = 0.2, 1.5
COUNT, RANDOM = 200, 400
MOST_MEMORY = 1.15  # of that of llama.cpp alone


def log_probabilities_are_near(alone, plugin, *sequences):
    a, b = alone.log_probabilities(*sequences), plugin.log_probabilities(*sequences)
    off = abs(a - b)[a > -7]  # what is hardly ever said may be further off
    mean, most = float((off ** 2).mean() ** 0.5), float(off.max())
    assert mean < NEAR and most < FARTHEST, f"{mean:.3f} nats apart in the mean and {most:.3f} at most, expected {NEAR} and {FARTHEST}"
    return f"{mean:.3f} nats apart in the mean, {most:.3f} at most"


def losses_are_near(alone, plugin, tokens):
    """With keys and values of 4 bits, single log-probabilities of llama.cpp alone are half a nat from those with floats."""
    a, b = (each.nats(None, tokens) for each in (alone, plugin))
    assert abs(a - b) < NEAR, f"{a:.3f} and {b:.3f} nats per token"
    return f"{a:.3f} and {b:.3f} nats per token"


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


def memory_is_that_of_llama(alone, plugin, tokens):
    """Of processes that did no more than this: text, and random tokens, which need rows from all over the embedding."""
    for each in alone, plugin:
        each.generate(tokens, COUNT)
        each.time(RANDOM, 0)
    ratio = plugin.kilobytes() / alone.kilobytes()
    assert ratio < MOST_MEMORY, f"{plugin.kilobytes()} KB at most, {ratio:.2f} of llama.cpp's, expected less than {MOST_MEMORY}"
    return f"{plugin.kilobytes() / 1000:.1f} MB at most, {ratio:.2f} of llama.cpp's {alone.kilobytes() / 1000:.1f} MB"


def a_model_may_be_loaded_twice(_alone, plugin, tokens):
    before = plugin.log_probabilities(tokens)
    plugin.load_again()
    plugin.log_probabilities(tokens)
    kilobytes = plugin.kilobytes("VmRSS")
    for _ in range(2):
        plugin.load_again()
        assert (plugin.log_probabilities(tokens) == before).all(), "other results"
    growth = plugin.kilobytes("VmRSS") / kilobytes
    # Two models that stay would triple it. What malloc keeps for later differs by a sixth from load to load.
    assert growth < 1.3, f"the process grew {growth:.2f} times"


def write_adapter(file):
    """Random changes of queries and of the feed-forward network, in the first layers of SmolLM2."""
    import gguf
    import numpy as np
    random = np.random.default_rng(3)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    for layer in range(4):
        for name, n, k in ("attn_q", 576, 576), ("ffn_down", 576, 1536):
            for part, shape in ("a", (8, k)), ("b", (n, 8)):
                writer.add_tensor(f"blk.{layer}.{name}.weight.lora_{part}", random.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def adapters_change_the_same(alone, plugin, tokens):
    """The last test of a process, as the adapter stays."""
    without = plugin.log_probabilities(tokens)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "adapter.gguf"
        write_adapter(file)
        for each in alone, plugin:
            each.adapt(file, 1.0)
    moved = float(((plugin.log_probabilities(tokens) - without) ** 2).mean() ** 0.5)
    assert moved > 2 * NEAR, f"the adapter moves log-probabilities by {moved:.3f} nats only"
    return log_probabilities_are_near(alone, plugin, tokens) + f"; {moved:.2f} without the adapter"


def sequences_of_one_batch_are_apart(alone, plugin, tokens):
    """As the slots of a server: several sequences in one batch, of which none sees the others."""
    sequences = tokens, tokens[5:], tokens[:9]
    found = log_probabilities_are_near(alone, plugin, *sequences)
    apart = plugin.log_probabilities(sequences[1])
    together = plugin.log_probabilities(*sequences)[len(tokens):][:len(apart)]
    off = float(((apart - together)[apart > -7] ** 2).mean() ** 0.5)
    assert off < NEAR, f"a sequence is {off:.3f} nats from what it is alone"
    return found


# A process each: its settings, how it computes, and its tests. Caches of keys and values in blocks and outside of the device, a file that
# is read and not mapped, and a model that is split between devices: 10 layers of 30, or all layers by rows.
CASES = (
    ("", {}, "int8", (memory_is_that_of_llama, log_probabilities_are_near, greedy_tokens_are_the_same, one_by_one_is_as_together,
                      a_model_may_be_loaded_twice, adapters_change_the_same)),
    ("", {}, "exact", (log_probabilities_are_near, greedy_tokens_are_the_same, one_by_one_is_as_together)),
    ("q8_0 cache, 3 sequences, ", {"context_settings": (("type_k", 8), ("type_v", 8), ("n_seq_max", 3))}, "int8", (sequences_of_one_batch_are_apart,)),
    ("q4_0 cache, ", {"context_settings": (("type_k", 2), ("type_v", 2))}, "int8", (losses_are_near,)),
    ("cache on the CPU, ", {"context_settings": (("offload_kqv", False),)}, "int8", (log_probabilities_are_near,)),
    ("10 layers, ", {"model_settings": (("n_gpu_layers", 10),)}, "int8", (log_probabilities_are_near,)),
    ("split by rows, ", {"model_settings": (("split_mode", 3),)}, "int8", (log_probabilities_are_near, a_model_may_be_loaded_twice)),
    ("no layers, ", {"model_settings": (("n_gpu_layers", 0),)}, "int8", (log_probabilities_are_near,)),
    ("not mapped, ", {"model_settings": (("load_mode", 0),)}, "int8", (log_probabilities_are_near, a_model_may_be_loaded_twice)),
    ("mapped, ", {"model_settings": (("load_mode", 1),)}, "int8", (log_probabilities_are_near,)),
)


def main(folder, plugin_file, model):
    failed = 0
    for words, settings, compute, tests in CASES:
        alone = llama.Apart(folder, model, 1, 512, context_settings=settings.get("context_settings", ()))
        tokens = alone.tokens(TEXT)
        plugin = llama.Apart(folder, model, 1, 512, plugin=plugin_file, compute=compute, **settings)
        for test in tests:
            name = f"{test.__name__.replace('_', ' ')}, {words}{compute}"
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
