#!/usr/bin/env python3
"""Times mlx.core.quantized_matmul at the shapes of `metal-marlin bench --json` and prints both side by side.

    metal-marlin bench --backend metal --dtype f16 --compute default --json >bench.jsonl
    pip install mlx && tools/compare_mlx.py bench.jsonl

On a Mac MLX uses the GPU; elsewhere its CPU build, with a device column that says so: compare only like with like. Weights are
rotated through copies that no cache holds; times are medians of whole calls, mx.eval included, so they are set against `seconds`
and not against device_seconds. Formats that MLX does not have are left out, and said so.
"""
import json
import statistics
import sys
import time

import mlx.core as mx

# MLX's mode, by ours; int4 has a scale and a bias a group there, 1/16 more bytes at group 64.
MODES = {"int4": "affine", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
DTYPES = {"f16": mx.float16, "bf16": mx.bfloat16, "f32": mx.float32}
COLD = 420 << 20  # bytes of copies, as `metal-marlin bench` has
SAMPLES = 15


def time_mlx(record):
    """Median seconds of one product, or None where MLX has no such weights."""
    mode = MODES.get(record["format"])
    if mode is None or record["compute"] != "default" or record["sparse"] != "none":
        return None
    n, k, group = record["N"], record["K"], record["group"]
    if k % group or mode == "affine" and group not in (32, 64, 128):
        return None
    dtype = DTYPES[record["dtype"]]
    made = mx.quantize(mx.random.normal((n, k)).astype(dtype), group_size=group, bits=4, mode=mode)
    count = max(2, min(200, COLD // sum(part.nbytes for part in made)))
    copies = [[mx.array(part) + mx.zeros_like(part) for part in made] for _ in range(count)]
    x = mx.random.normal((record["M"], k)).astype(dtype)
    mx.eval(copies, x)
    samples = []
    for i in range(SAMPLES + 2):
        begun = time.perf_counter()
        mx.eval(mx.quantized_matmul(x, *copies[i % count], transpose=True, group_size=group, bits=4, mode=mode))
        samples.append(time.perf_counter() - begun)
    return statistics.median(samples[2:])


def main(path):
    print(f"mlx {mx.__version__ if hasattr(mx, '__version__') else ''} on {mx.default_device()}")
    print(f"{'backend':8} {'format':6} {'group':>5} {'M':>5} {'N':>6} {'K':>6} {'ours us':>10} {'mlx us':>10} {'mlx / ours':>10}")
    left_out = 0
    with open(path, encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            seconds = time_mlx(record)
            if seconds is None:
                left_out += 1
                continue
            ours = record["seconds"]
            print(f"{record['backend']:8} {record['format']:6} {record['group']:5} {record['M']:5} {record['N']:6} {record['K']:6} "
                  f"{ours * 1e6:10.1f} {seconds * 1e6:10.1f} {seconds / ours:10.2f}", flush=True)
    if left_out:
        print(f"{left_out} rows without a like in MLX")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
