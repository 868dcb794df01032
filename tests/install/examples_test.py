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


def weights(folder, layer, expert=0):
    data = (TOP / "tests/data" / folder / "decoded.safetensors").read_bytes()
    head = 8 + struct.unpack("<Q", data[:8])[0]
    tensor = json.loads(data[8:head])[layer]
    n, k = tensor["shape"][-2:]
    first = head + tensor["data_offsets"][0] + expert * n * k * 4
    return [struct.unpack_from(f"<{k}f", data, first + row * k * 4) for row in range(n)]


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


def one_layer():
    w = weights("gptq-v1-sym-g128", "model.layers.0.mlp.down_proj")
    yield f"the elements of W have the sum {sum(map(sum, w)):.3f}\n"
    for request in range(4):
        yield f"request {request}: y[0] = {sum((request + 1) / (k + 1) * element for k, element in enumerate(w[0])):.3f}\n"


page = (TOP / "examples/README.md").read_text()
missing = [line for line in [mlp(), *one_layer()] if line not in page]
sys.exit(f"examples/README.md does not have: {missing}" if missing else 0)
