"""Multiplies by a layer of a checkpoint: hello.py CHECKPOINT LAYER"""

import sys

import metal_marlin as mm
import numpy as np

if len(sys.argv) != 3:
    sys.exit("usage: hello.py CHECKPOINT LAYER")
path, layer = sys.argv[1:]
weights = mm.Weights.load(mm.Context(), mm.Checkpoint(path), layer)
info = weights.info()
a = np.zeros((1, info.k), np.float32)  # one row of activations
a[0, 0] = 1  # picks the first column of W
c = mm.gemm(a, weights)
print(f"W is {info.n} x {info.k}, W[0][0] = {c[0, 0]:g}")
