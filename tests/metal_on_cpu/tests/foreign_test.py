"""Metal that others have written: the kernels of llama.cpp, unchanged, on the test-bed.

usage: foreign_test.py MSL_RUN FOLDER CACHE

FOLDER is ggml/src of an unpacked source package of llama-cpp-python. Every stand-alone source there has to compile, and the
kernels below have to give what numpy computes in float64. They run in checked mode, and those with findings name them. The
sizes are ragged. The argument structures are read from the package's own header. Prints "passed NAME" or "FAILED NAME: why".
"""

import os
import re
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

MSL_RUN, FOLDER, CACHE = sys.argv[1:4]
METAL = os.path.join(FOLDER, "ggml-metal")
INCLUDED = {"fa_common.metal", "fa_vec_common.metal"}  # by other sources; they have no kernels of their own
# The text of the sources for Q4_0 and Q8_0 with the name of another type: only the long form compiles them.
LIKE_OTHERS = re.compile(r"fa_(vec_)?q(4_1|5_0|5_1)")
FORMATS = {"int16_t": "h", "int32_t": "i", "int": "i", "int64_t": "q", "uint64_t": "Q", "size_t": "Q", "float": "f", "bool": "?"}
HEADER = open(os.path.join(METAL, "ggml-metal-impl.h"), encoding="utf-8").read()
RANDOM = np.random.default_rng(20261124)


def run(*words, findings=frozenset()):
    """Has msl-run do this. It has to find exactly these kinds of mistakes."""
    done = subprocess.run([MSL_RUN, *map(str, words), "-I", METAL, "-I", FOLDER], capture_output=True, text=True, check=False,
                          env={**os.environ, "METAL_ON_CPU_CACHE": CACHE})
    kinds = set(re.findall(r"^\S+:\d+: ([a-z-]+): ", done.stdout, re.MULTILINE))
    if done.returncode != (1 if findings else 0) or kinds != set(findings):
        raise AssertionError((done.stdout + done.stderr).strip() or f"exit status {done.returncode}, findings {kinds}")


def source(name):
    return os.path.join(METAL, "kernels", name + ".metal")


def fields_of(name):
    """The fields of an argument structure: (name, struct format, elements)."""
    for body, found in re.findall(r"typedef struct\s*\{([^}]*)\}\s*(\w+);", HEADER):
        if found == "ggml_metal_kargs_" + name:
            body = re.sub(r"//.*", "", body)
            return [(field, FORMATS[kind], int(count or 1))
                    for kind, field, count in re.findall(r"(\w+)\s+(\w+)(?:\[(\d+)\])?\s*;", body)]
    raise AssertionError(f"the header has no ggml_metal_kargs_{name}")


def arguments(name, **values):
    """The bytes of an argument structure. A field that is not given is 0; a value that has no field is an error."""
    layout, all_values = "@", []
    fields = fields_of(name)
    unknown = set(values) - {field for field, _, _ in fields}
    if unknown:
        raise AssertionError(f"ggml_metal_kargs_{name} has no {sorted(unknown)}")
    for field, kind, count in fields:
        given = values.get(field, 0)
        layout += kind * count
        all_values += list(given) if isinstance(given, (list, tuple)) else [given] * count
    widest = max(struct.calcsize("@" + kind) for _, kind, _ in fields)
    return np.frombuffer(struct.pack(layout + f"0{'q' if widest == 8 else 'i'}", *all_values), np.uint8)


def shape_of(prefix, array):
    """ne00.., nb00.. (or ne0.., nb0.. with an empty prefix) of a C-contiguous array of up to four dimensions."""
    sizes = list(reversed(array.shape)) + [1] * (4 - array.ndim)
    strides = list(reversed(array.strides)) + [array.nbytes] * (4 - array.ndim)
    return {**{f"ne{prefix}{i}": n for i, n in enumerate(sizes)}, **{f"nb{prefix}{i}": n for i, n in enumerate(strides)}}


def known(structure, values):
    names = {field for field, _, _ in fields_of(structure)}
    return {name: value for name, value in values.items() if name in names}


def kernel(file, name, buffers, groups, threads, threadgroup=0, constants=None, check=True, findings=frozenset()):
    """Runs it. A buffer is an array, or the number of an earlier one that it shares its memory with. Returns all arrays.
    `findings` are the kinds of mistakes that this kernel has."""
    groups, threads = ([*sizes, 1, 1][:3] for sizes in (groups, threads))
    with tempfile.TemporaryDirectory() as folder:
        words = [source(file), name, "--grid", ",".join(str(g * t) for g, t in zip(groups, threads)), "--group",
                 ",".join(map(str, threads)), "--seed", 3] + ["--check"] * check
        if threadgroup:
            words += ["--threadgroup", f"0={threadgroup}"]
        for index, value in (constants or {}).items():
            words += ["--constant", f"{index}={str(value).lower()}"]
        for index, buffer in enumerate(buffers):
            if isinstance(buffer, int):
                words += ["--buffer", f"@{buffer}"]
                continue
            path = os.path.join(folder, str(index))
            buffer.tofile(path)
            words += ["--buffer", path, "--out", f"{index}={path}"]
        run(*words, findings=findings)
        return [buffer if isinstance(buffer, int) else
                np.fromfile(os.path.join(folder, str(index)), buffer.dtype).reshape(buffer.shape)
                for index, buffer in enumerate(buffers)]


def floats(*shape, dtype=np.float32, low=-2.0, high=2.0):
    return RANDOM.uniform(low, high, shape).astype(dtype)


def close(found, wanted, tolerance=2e-5):
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    error = np.abs(found - wanted) / (1 + np.abs(wanted))
    if not np.all(error <= tolerance):
        at = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), error.shape)
        raise AssertionError(f"at {at}: expected {wanted[at]}, found {found[at]}")


def equal(found, wanted):
    if not np.array_equal(found, wanted):
        raise AssertionError(f"expected {wanted}, found {found}")


def constant(base, number):
    return int(re.search(rf"#define FC_{base}\s+(\d+)", HEADER).group(1)) + number


def named(name):
    return int(re.search(rf"#define {name}\s+(\d+)", HEADER).group(1))


# --- the kernels ------------------------------------------------------------------------------------------------------------


def softmax(x, mask=0.0, scale=1.0):
    z = np.float64(x) * scale + mask
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def soft_max_with_mask():
    x, mask, y = floats(2, 3, 5, 77), floats(2, 1, 5, 77), np.zeros((2, 3, 5, 77), np.float32)
    values = {**shape_of("0", x), **shape_of("1", mask), **shape_of("", y), "scale": 0.5}
    args = arguments("soft_max", **known("soft_max", values))
    wanted = softmax(x, np.float64(mask), 0.5)
    close(kernel("softmax", "kernel_soft_max_f32", [args, x, mask, 1, y], (5, 3, 2), (32,), 128)[4], wanted)
    # With two simdgroups, a barrier with mem_none stands between the reads of one reduction and the writes of the next.
    kernel("softmax", "kernel_soft_max_f32", [args, x, mask, 1, y], (5, 3, 2), (64,), 128, findings={"threadgroup-race"})


def soft_max_of_vectors_without_mask():
    x, y = floats(1, 2, 3, 76), np.zeros((1, 2, 3, 76), np.float32)
    values = {**shape_of("0", x), **shape_of("1", x), **shape_of("", y), "scale": 1.5}
    args = arguments("soft_max", **known("soft_max", values))
    out = kernel("softmax", "kernel_soft_max_f32_4", [args, x, 1, 1, y], (3, 2, 1), (32,), 128)
    close(out[4], softmax(x, 0, 1.5))


def norm_arguments(x, others, width, eps):
    arrays = [x, *others, *[x] * (2 - len(others))]
    values = {**shape_of("", x), "ne00": x.shape[-1], "ne00_t": x.shape[-1] // width, "eps": eps}
    for i in (1, 2, 3):
        values[f"nef{i}"] = [shape_of("", a)[f"ne{i}"] for a in arrays]
        values[f"nbf{i}"] = [shape_of("", a)[f"nb{i}"] for a in arrays]
    return arguments("norm", **known("norm", values))


def normalized(x, eps, centered):
    x = np.float64(x)
    x = x - x.mean(-1, keepdims=True) if centered else x
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def layer_norm():
    x = floats(2, 3, 5, 77)
    out = kernel("norm", "kernel_norm_f32", [norm_arguments(x, [], 1, 1e-5), x, 1, 1, np.zeros_like(x)], (5, 3, 2), (96,), 128)
    close(out[4], normalized(x, 1e-5, True))


def layer_norm_of_vectors_scaled_and_shifted():
    x, scale, shift = floats(1, 2, 3, 76), floats(76), floats(1, 1, 3, 76)
    out = kernel("norm", "kernel_norm_mul_add_f32_4",
                 [norm_arguments(x, [scale, shift], 4, 1e-5), x, scale, shift, np.zeros_like(x)], (3, 2, 1), (32,), 128)
    close(out[4], normalized(x, 1e-5, True) * scale + shift)


def rms_norm_scaled():
    x, scale = floats(1, 2, 5, 77), floats(77)
    out = kernel("norm", "kernel_rms_norm_mul_f32", [norm_arguments(x, [scale], 1, 1e-6), x, scale, 2, np.zeros_like(x)],
                 (5, 2, 1), (64,), 128, {constant("NORM", 0): False})
    close(out[4], normalized(x, 1e-6, False) * scale)


def group_norm():
    x = floats(1, 6, 5, 7)
    values = {**shape_of("0", x), "ngrp": 3, "eps": 1e-5}
    args = arguments("group_norm", **known("group_norm", values))
    out = kernel("norm", "kernel_group_norm_f32", [args, x, np.zeros_like(x)], (3,), (32,), 128)
    # With two simdgroups, no barrier stands between the reads of one reduction and the writes of the next. This order of the
    # simdgroups makes the results wrong.
    kernel("norm", "kernel_group_norm_f32", [args, x, np.zeros_like(x)], (3,), (64,), 128, findings={"threadgroup-race"})
    close(out[2], normalized(x.reshape(3, 70), 1e-5, True).reshape(x.shape))


def sums_of_rows():
    x, y = floats(2, 3, 5, 77), np.zeros((2, 3, 5, 1), np.float32)
    args = arguments("sum_rows", **known("sum_rows", {**shape_of("0", x), **shape_of("", y)}))
    for op, wanted in (("SUM_ROWS", np.sum), ("MEAN", np.mean)):
        out = kernel("reduce", "kernel_sum_rows_f32_f32", [args, x, y], (5, 3, 2), (64,), 128,
                     {constant("SUM_ROWS", 0): named("OP_SUM_ROWS_NUM_" + op)})
        close(out[2], wanted(np.float64(x), axis=-1, keepdims=True))


def sum_of_all():
    x = floats(1037)
    out = kernel("reduce", "kernel_op_sum_f32", [arguments("sum", np=1037), x, np.zeros(1, np.float32)], (1,), (256,), 128)
    close(out[2], [np.float64(x).sum()])


def running_sums():
    x, y, blocks = floats(1, 2, 3, 150), np.zeros((1, 2, 3, 150), np.float32), np.zeros((1, 2, 3, 3), np.float32)
    total = {f"net{i}": n for i, n in enumerate((3, 3, 2, 1))} | {f"nbt{i}": n for i, n in enumerate((4, 12, 36, 72))}
    values = {**shape_of("0", x), **total, "outb": True}
    # With fewer than 32 simdgroups, some lanes read what none has written, and add it to nothing that is used.
    first = kernel("reduce", "kernel_cumsum_blk_f32", [arguments("cumsum_blk", **values), x, blocks, y], (9, 2, 1), (64,), 128,
                   findings={"uninitialized-threadgroup-read"})
    sums = np.cumsum(first[2], axis=-1, dtype=np.float32)
    out = kernel("reduce", "kernel_cumsum_add_f32", [arguments("cumsum_add", **{**shape_of("0", x), **total}), sums, first[3]],
                 (9, 2, 1), (64,))
    close(out[2], np.cumsum(np.float64(x), axis=-1))


def triangles():
    x = floats(1, 2, 9, 7)
    args = arguments("tri", **{**shape_of("0", x), **shape_of("", x)})
    wanted = {0: np.triu(x), 1: np.triu(x, 1), 2: np.tril(x), 3: np.tril(x, -1)}
    for kind, value in wanted.items():
        # It declares its output as const, and casts: checked mode takes the buffer for read-only, and ends the threadgroup.
        equal(kernel("tri", f"kernel_tri_f32_{kind}", [args, x, np.zeros_like(x)], (9, 2, 1), (32,), check=False)[2], value)


def unary_functions():
    x = floats(1, 1, 5, 77)
    z = np.float64(x)
    wanted = {"SILU": z / (1 + np.exp(-z)), "ELU": np.where(z > 0, z, np.expm1(z)), "CLAMP": np.clip(z, -0.5, 0.75),
              "GELU": 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * z * (1 + 0.044715 * z * z))),
              "HARDSWISH": z * np.clip(z / 6 + 0.5, 0, 1), "ROUND": np.trunc(z + np.copysign(0.5, z))}
    args = arguments("unary", **{**shape_of("0", x), **shape_of("", x), "min": -0.5, "max": 0.75})
    for op, value in wanted.items():
        out = kernel("unary", "kernel_unary_f32_f32", [args, x, np.zeros_like(x)], (5 * 3, 1, 1), (32,), 0,
                     {constant("UNARY", 0): named("OP_UNARY_NUM_" + op), constant("UNARY", 1): False})
        close(out[2], value)


def gated_units():
    for dtype, suffix, tolerance in ((np.float32, "f32", 2e-5), (np.float16, "f16", 2e-3)):
        x, gate = floats(5, 77, dtype=dtype), floats(5, 77, dtype=dtype)
        args = arguments("glu", ne00=77, ne10=77, ne0=77, nb01=x.strides[0], nb11=x.strides[0], nb1=x.strides[0])
        out = kernel("unary", f"kernel_swiglu_{suffix}", [args, x, gate, np.zeros_like(x)], (5,), (32,))
        z = np.float64(x)
        close(out[3], z / (1 + np.exp(-z)) * np.float64(gate), tolerance)


def binary_operations_that_broadcast():
    x, other = floats(2, 3, 5, 12), floats(1, 3, 1, 4, low=0.5)
    args = arguments("bin", **{**shape_of("0", x), **shape_of("1", other), **shape_of("", x)})
    full = np.tile(other, (1, 1, 1, 3))
    for op, wanted in enumerate((np.add, np.subtract, np.multiply, np.divide)):
        out = kernel("binbcast", "kernel_bin_fuse_f32_f32_f32", [args, x, other, np.zeros_like(x)], (5, 3, 2), (8,), 0,
                     {constant("BIN", 0): op, constant("BIN", 1): 1, constant("BIN", 2): False, constant("BIN", 3): True})
        close(out[3], wanted(np.float64(x), np.float64(full)), 1e-6)


def pooling():
    x, y = floats(3, 9, 11), np.zeros((3, 5, 4), np.float32)
    args = arguments("pool_2d", k0=3, k1=2, s0=3, s1=2, p0=1, p1=1, IH=9, IW=11, OH=5, OW=4, np=60)
    padded = np.pad(np.float64(x), ((0, 0), (1, 1), (1, 2)), constant_values=np.nan)
    windows = np.array([[[padded[c, 2 * i:2 * i + 2, 3 * j:3 * j + 3] for j in range(4)] for i in range(5)] for c in range(3)])
    close(kernel("pool", "kernel_pool_2d_max_f32", [args, x, y], (2,), (32,))[2], np.nanmax(windows, axis=(-1, -2)))
    close(kernel("pool", "kernel_pool_2d_avg_f32", [args, x, y], (2,), (32,))[2], np.nansum(windows, axis=(-1, -2)) / 6)


def argsort():
    x, y = floats(1, 1, 3, 50), np.zeros((1, 1, 3, 50), np.int32)
    values = {**shape_of("0", x), **shape_of("", y), "top_k": 50}
    args = arguments("argsort", **known("argsort", values))
    for order, sign in (("asc", 1), ("desc", -1)):
        out = kernel("argsort", f"kernel_argsort_f32_i32_{order}", [args, x, y], (3, 1, 1), (64,), 256)
        equal(out[2], np.argsort(sign * x, axis=-1))


def argmax():
    x = floats(5, 777)
    # All threads write the same result to the same place.
    out = kernel("misc", "kernel_argmax_f32", [arguments("argmax", ne00=777, nb01=x.strides[0]), x, np.zeros(5, np.int32)], (5,),
                 (128,), 256, findings={"device-race"})
    equal(out[2], np.argmax(x, axis=-1))


def rotary_positions():
    x, positions = floats(1, 3, 2, 40), np.array([0, 7, 300], np.int32)
    values = {**shape_of("0", x), **shape_of("", x), "n_dims": 32, "freq_base": 10000.0, "freq_scale": 1.0, "attn_factor": 1.0,
              "n_ctx_orig": 4096, "beta_fast": 32.0, "beta_slow": 1.0}
    args = arguments("rope", **known("rope", values))
    out = kernel("rope", "kernel_rope_norm_f32", [args, x, positions, 1, np.zeros_like(x)], (2, 3, 1), (16,), 0,
                 {constant("ROPE", 0): False, constant("ROPE", 1): False})
    angle = positions[:, None, None] * 10000.0 ** (-np.arange(16) / 16)
    wanted = np.float64(x).copy()
    even, odd = np.float64(x[..., 0:32:2]), np.float64(x[..., 1:32:2])
    wanted[..., 0:32:2] = even * np.cos(angle) - odd * np.sin(angle)
    wanted[..., 1:32:2] = even * np.sin(angle) + odd * np.cos(angle)
    close(out[4], wanted, 5e-5)


def matrix_times_vectors():
    for dtype, name in ((np.float32, "f32_f32"), (np.float16, "f16_f32")):
        w, x = floats(1, 1, 37, 77, dtype=dtype), floats(1, 1, 3, 77)
        y = np.zeros((1, 1, 3, 37), np.float32)
        values = {**shape_of("0", w), **shape_of("1", x), **shape_of("", y), "nr0": 2, "r2": 1, "r3": 1}
        args = arguments("mul_mv", **known("mul_mv", values))
        constants = {constant("MUL_MV", i): v for i, v in enumerate((2, 0, 1, 1, 1))} | {constant("MUL_MV", 5): False}
        out = kernel("mul_mv", f"kernel_mul_mv_{name}_short", [args, w, x, y], (2, 3, 1), (32,), 0, constants)
        close(out[3], np.float64(x) @ np.float64(w).swapaxes(-1, -2))


def matrix_times_matrix():
    w, x = floats(1, 1, 68, 96, dtype=np.float16), floats(1, 1, 33, 96)
    y = np.zeros((1, 1, 33, 68), np.float32)
    values = {**shape_of("0", w), **shape_of("1", x), **shape_of("", y), "r2": 1, "r3": 1}
    args = arguments("mul_mm", **known("mul_mm", values))
    constants = {constant("MUL_MM", 0): False, constant("MUL_MM", 1): True} | {constant("MUL_MM", i): 1 for i in range(2, 6)}
    out = kernel("mul_mm", "kernel_mul_mm_f16_f32", [args, w, x, y], (2, 2, 1), (128,), 8192, constants)
    close(out[3], np.float64(np.float16(x)) @ np.float64(w).swapaxes(-1, -2), 2e-3)


def upscaling():
    x, y = floats(1, 2, 5, 7), np.zeros((1, 2, 15, 14), np.float32)
    values = {**shape_of("0", x), **shape_of("", y), "sf0": 2.0, "sf1": 3.0, "sf2": 1.0, "sf3": 1.0}
    args = arguments("upscale", **known("upscale", values))
    out = kernel("upscale", "kernel_upscale_nearest_f32", [args, x, y], (15, 2, 1), (8,), 0, {constant("UPSCALE", 0): False})
    equal(out[2], x.repeat(3, axis=2).repeat(2, axis=3))


KERNELS = [soft_max_with_mask, soft_max_of_vectors_without_mask, layer_norm, layer_norm_of_vectors_scaled_and_shifted,
           rms_norm_scaled, group_norm, sums_of_rows, sum_of_all, running_sums, triangles, unary_functions, gated_units,
           binary_operations_that_broadcast, pooling, argsort, argmax, rotary_positions, matrix_times_vectors,
           matrix_times_matrix, upscaling]


def compiles(name):
    """All kernels of the source become an image of checked mode, with function constants that have no values."""
    with tempfile.TemporaryDirectory() as folder:
        run(source(name), "--check", "--emit", os.path.join(folder, "image"))


def tests():
    names = sorted(f[:-len(".metal")] for f in os.listdir(os.path.join(METAL, "kernels"))
                   if f.endswith(".metal") and f not in INCLUDED)
    if len(names) != 34:
        yield "sources", lambda: (_ for _ in ()).throw(AssertionError(f"expected 34 stand-alone sources, found {len(names)}"))
    for name in names:
        if LIKE_OTHERS.fullmatch(name) and "METAL_MARLIN_WHOLE" not in os.environ:
            continue
        yield "compiles " + name, lambda name=name: compiles(name)
    for function in KERNELS:
        yield function.__name__, function


def result(test):
    name, function = test
    try:
        function()
    except Exception as error:  # whatever it is, the others go on
        return f"FAILED {name}: {str(error) or type(error).__name__}"
    return f"passed {name}"


def main():
    wanted = sys.argv[4:]
    chosen = [test for test in tests() if not wanted or test[0] in wanted]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(result, chosen))
    print("\n".join(results))
    return any(line.startswith("FAILED") for line in results)


if __name__ == "__main__":
    sys.exit(main())
