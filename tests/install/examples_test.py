#!/usr/bin/env python3
"""What examples/README.md says that the examples print is right: computed here in float64 from the true values of the weights.

    examples_test.py TOP
"""

import json
import math
import pathlib
import struct
import sys

TOP = pathlib.Path(sys.argv[1])


def tensor(path, name):
    """The bytes from its first element on, and its shape."""
    data = (TOP / "tests/data" / path).read_bytes()
    head = 8 + struct.unpack("<Q", data[:8])[0]
    found = json.loads(data[8:head])[name]
    return data[head + found["data_offsets"][0]:], found["shape"]


def weights(folder, layer, expert=0):
    data, (*_, n, k) = tensor(f"{folder}/decoded.safetensors", layer)
    return [struct.unpack_from(f"<{k}f", data, 4 * k * (expert * n + row)) for row in range(n)]


def bfloat16(folder, name):
    data, (n, k) = tensor(f"{folder}/model.safetensors", name)
    bits = struct.unpack_from(f"<{n * k}H", data)
    values = struct.unpack(f"<{n * k}f", struct.pack(f"<{n * k}I", *(each << 16 for each in bits)))
    return [values[row * k:(row + 1) * k] for row in range(n)]


def times(w, x):
    return [sum(a * b for a, b in zip(row, x)) for row in w]


def swiglu_oai(gate, up):
    gate, up = min(gate, 7), max(-7, min(up, 7))
    return gate / (1 + math.exp(-1.702 * gate)) * (up + 1)


def mlp():
    folder, layer = "mxfp4-gpt-oss-experts", "model.layers.0.mlp.experts."
    sums = times(weights(folder, layer + "gate_up_proj", 1), [i % 7 - 3 for i in range(128)])
    y = times(weights(folder, layer + "down_proj", 1), [swiglu_oai(*pair) for pair in zip(sums[::2], sums[1::2])])
    return f"y = {y[0]:.3f} {y[1]:.3f} {y[2]:.3f} ... {y[-1]:.3f}\n"


def swiglu(gate, up):
    return gate / (1 + math.exp(-gate)) * up


def mixture():
    folder, layer, top_k = "qwen3moe-gptq-experts", "model.layers.0.mlp.", 2
    router = bfloat16(folder, layer + "gate.weight")
    of_expert = [[weights(folder, f"{layer}experts.{name}_proj", e) for name in ("gate", "up", "down")] for e in range(len(router))]
    for token in range(3):
        x = [(64 * token + k) % 7 - 3 for k in range(64)]
        logits = times(router, x)
        ids = sorted(range(len(logits)), key=lambda e: -logits[e])[:top_k]
        scales = [math.exp(logits[e] - logits[ids[0]]) for e in ids]
        y = [0] * 64
        for e, scale in zip(ids, scales):
            gate, up, down = of_expert[e]
            hidden = list(map(swiglu, times(gate, x), times(up, x)))
            y = [before + scale / sum(scales) * each for before, each in zip(y, times(down, hidden))]
        yield f"token {token}: experts {ids[0]} and {ids[1]}, y = {y[0]:.3f} ... {y[-1]:.3f}\n"


def one_layer():
    w = weights("gptq-v1-sym-g128", "model.layers.0.mlp.down_proj")
    yield f"the elements of W have the sum {sum(map(sum, w)):.3f}\n"
    for request in range(4):
        yield f"request {request}: y[0] = {sum((request + 1) / (k + 1) * element for k, element in enumerate(w[0])):.3f}\n"


page = (TOP / "examples/README.md").read_text()
missing = [line for line in [mlp(), *mixture(), *one_layer()] if line not in page]
sys.exit(f"examples/README.md does not have: {missing}" if missing else 0)
