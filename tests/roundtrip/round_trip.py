"""What `metal-marlin quantize` writes, read by the packages that others read it with.

usage: round_trip.py COMMAND

Each check writes a file, has a package of PyPI decode it, and compares every value, bit for bit, with what `metal-marlin unpack`
says of the same file. (Files of bitsandbytes are those of tests/data, because the library does not write them.)
"""
import ctypes
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from told import Skip, run_tests  # noqa: E402

command = sys.argv[1]
LAYER = "model.layers.0.mlp.up_proj"


def run(*arguments):
    done = subprocess.run([command, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"metal-marlin {' '.join(map(str, arguments))}: {done.stderr.strip()}")


def write_model(folder, n, k):
    """Normal numbers with a few zeros, and a vector that must come through unchanged."""
    random = np.random.default_rng(7)
    w = random.normal(0, 0.02, (n, k)).astype(np.float16)
    w[random.random((n, k)) < 0.05] = 0
    folder.mkdir()
    save_file({f"{LAYER}.weight": w, "model.norm.weight": np.arange(5, dtype=np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "rope_theta": 1e6, "big": 2**53 + 1}))
    return folder


def unpacked(path, scratch):
    run("unpack", path, "-o", scratch / "values.safetensors", "--force")
    values = load_file(scratch / "values.safetensors")
    return values[LAYER] if LAYER in values else values[f"{LAYER}.weight"]


def same_bits(got, want):
    got, want = np.ascontiguousarray(got, np.float32), np.ascontiguousarray(want, np.float32)
    assert got.shape == want.shape, f"shape {got.shape} and not {want.shape}"
    wrong = np.argwhere(got.view(np.uint32) != want.view(np.uint32))
    assert not len(wrong), f"{len(wrong)} values differ, the first at {wrong[0]}: {got[tuple(wrong[0])]}, {want[tuple(wrong[0])]}"


# --- GGUF, by the package gguf -------------------------------------------------------------------------------------------------


def check_gguf(scratch, form, type_name, k=192):
    from gguf import GGUFReader
    from gguf.quants import dequantize

    out = scratch / "model.gguf"
    run("quantize", write_model(scratch / "in", 66, k), out, "--format", form)
    tensors = {tensor.name: tensor for tensor in GGUFReader(out).tensors}
    tensor = tensors[f"{LAYER}.weight"]
    assert tensor.tensor_type.name == type_name, tensor.tensor_type
    try:
        values = dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as missing:
        raise Skip(f"the package gguf does not decode {type_name}: {missing}") from missing
    if form == "nvfp4":
        values = values * tensors[f"{LAYER}.scale"].data[0]
    same_bits(values.reshape(66, k) + np.float32(0), unpacked(out, scratch) + np.float32(0))
    assert tensors["model.norm.weight"].data.tolist() == [0, 1, 2, 3, 4]


def check_gguf_keeps_key_values(scratch):
    from gguf import GGUFReader, GGUFWriter

    writer = GGUFWriter(scratch / "in.gguf", "llama")
    writer.add_block_count(3)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc", "\u00e9"])
    writer.add_tensor("blk.0.ffn_up.weight", np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    run("quantize", scratch / "in.gguf", scratch / "out.gguf", "--format", "int4")
    fields = GGUFReader(scratch / "out.gguf").fields
    assert fields["general.architecture"].contents() == "llama"
    assert fields["llama.block_count"].contents() == 3
    assert fields["tokenizer.ggml.tokens"].contents() == ["a", "bc", "\u00e9"]
    assert fields["general.file_type"].contents() == 2


# --- safetensors, by the package safetensors ---------------------------------------------------------------------------------------


def check_safetensors_bytes(scratch, *options):
    """The package's own writer makes the very same file of the same tensors."""
    run("quantize", write_model(scratch / "in", 72, 128), scratch / "out", *options)
    written = (scratch / "out" / "model.safetensors").read_bytes()
    length = int.from_bytes(written[:8], "little")
    metadata = json.loads(written[8 : 8 + length])["__metadata__"]
    tensors = load_file(scratch / "out" / "model.safetensors")
    assert save(tensors, metadata) == written, "not what safetensors itself writes"
    config = json.loads((scratch / "out" / "config.json").read_text())
    assert config["model_type"] == "llama" and config["big"] == 2**53 + 1 and config["rope_theta"] == 1e6


# --- MLX, which shares its codes and scales with the FP4 formats of compressed-tensors --------------------------------------------


def check_mlx(scratch, form):
    import mlx.core as mx

    run("quantize", write_model(scratch / "in", 70, 192), scratch / "out", "--format", form)
    stored = {}
    written = (scratch / "out" / "model.safetensors").read_bytes()
    length = int.from_bytes(written[:8], "little")
    for name, entry in json.loads(written[8 : 8 + length]).items():
        if name.startswith(LAYER):
            begin, end = (8 + length + at for at in entry["data_offsets"])
            stored[name.removeprefix(LAYER)] = np.frombuffer(written[begin:end], np.uint8).reshape(entry["shape"] + [-1])
    codes = np.ascontiguousarray(stored[".weight_packed"].reshape(70, -1)).view(np.uint32)
    scales = stored[".weight_scale"].reshape(70, -1)
    with mx.stream(mx.cpu):
        values = mx.dequantize(mx.array(codes), mx.array(scales), group_size=16 if form == "nvfp4" else 32, bits=4, mode=form,
                               dtype=mx.float32)
        values = np.array(values.astype(mx.float32))
    if form == "nvfp4":
        divisor = stored[".weight_global_scale"].tobytes()
        values = (values.astype(np.float64) / np.frombuffer(divisor, np.float32)[0].astype(np.float64)).astype(np.float32)
    same_bits(values, unpacked(scratch / "out", scratch))


def mlx_values(folder, base, n):
    """What MLX makes of an affine layer, by the config beside it, in float32."""
    import mlx.core as mx

    config = json.loads((folder / "config.json").read_text())["quantization"]
    how = {**config, **config.get(base, {})}
    tensors = load_file(folder / "model.safetensors")
    with mx.stream(mx.cpu):
        parts = [mx.array(tensors[f"{base}.{part}"]) for part in ("weight", "scales", "biases")]
        values = mx.dequantize(parts[0], parts[1].astype(mx.float32), parts[2].astype(mx.float32), how["group_size"], how["bits"],
                               how["mode"])
    return np.array(values).reshape(n, -1)


def check_mlx_affine(scratch, form, group):
    run("quantize", write_model(scratch / "in", 70, 256), scratch / "out", "--format", form, "--group", group, "--layout", "mlx")
    same_bits(mlx_values(scratch / "out", LAYER, 70) + np.float32(0), unpacked(scratch / "out", scratch) + np.float32(0))


def check_gguf_to_mlx(scratch, form, bits):
    """K-quants and others keep every value."""
    run("quantize", write_model(scratch / "in", 70, 512), scratch / "first.gguf", "--format", form)
    run("quantize", scratch / "first.gguf", scratch / "out", "--layout", "mlx")
    values = mlx_values(scratch / "out", LAYER, 70)
    assert json.loads((scratch / "out" / "config.json").read_text())["quantization"]["bits"] == bits
    same_bits(values + np.float32(0), unpacked(scratch / "first.gguf", scratch) + np.float32(0))


def check_imatrix(scratch):
    """An importance matrix as llama.cpp's GGUF, in its older form, and as norms: all give one file."""
    from gguf import GGUFWriter

    means = np.random.default_rng(3).lognormal(0, 2, 512).astype(np.float32)
    name = f"{LAYER}.weight"
    writer = GGUFWriter(scratch / "imatrix.gguf", "unused")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["some.txt"])
    writer.add_tensor(f"{name}.in_sum2", means.reshape(1, 512))
    writer.add_tensor(f"{name}.counts", np.ones((1, 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    number = lambda value: int(value).to_bytes(4, "little")
    entry = number(len(name)) + name.encode() + number(1) + number(512) + means.tobytes()
    (scratch / "imatrix.dat").write_bytes(number(1) + entry + number(1) + number(8) + b"some.txt")
    save_file({LAYER: np.sqrt(means)}, scratch / "norms.safetensors")
    model, files = write_model(scratch / "in", 6, 512), {}
    for source in ("imatrix.gguf", "imatrix.dat", "norms.safetensors", None):
        weighed = [] if source is None else ["--imatrix", scratch / source]
        run("quantize", model, scratch / "out.gguf", "--format", "q4_k", "--force", *weighed)
        files[source] = (scratch / "out.gguf").read_bytes()
    assert files["imatrix.gguf"] == files["imatrix.dat"] == files["norms.safetensors"] != files[None]


def check_comparison(_scratch):
    """The parts of tools/races, and a small race against MLX."""
    build = pathlib.Path(command).resolve().parents[1]
    test = pathlib.Path(__file__).resolve().parents[1] / "races" / "races_test.py"
    done = subprocess.run([sys.executable, "-B", test, build], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # ggml between them, where the suite ggml has left one
    assert re.search("candidates: ours, .*mlx", done.stdout), done.stdout


# --- bitsandbytes, whose files only its package writes ----------------------------------------------------------------------------


def bitsandbytes_library():
    """The compiled decoders of the package for the CPU. Importing the package would need torch."""
    spec = importlib.util.find_spec("bitsandbytes")
    if spec is None:
        raise Skip("bitsandbytes is not installed here")
    return ctypes.CDLL(str(pathlib.Path(spec.origin).parent / "libbitsandbytes_cpu.so"))


def check_bitsandbytes(scratch, folder):
    """A layer that the package wrote, decoded by the package, has the bits that we give. With nested scales, where the package
    rounds three times and we once, it is two units in the last place away at most. The matrix is one row for its decoder,
    because blocks run across rows, and its code for AVX-512 is wrong where a row is no multiple of a block. Its code
    for other processors decodes one of the two zeros of FP4 to -0, where its table has 0: the signs of these zeros do not count."""
    library, data = bitsandbytes_library(), pathlib.Path(__file__).resolve().parents[1] / "data" / folder
    with safe_open(data / "model.safetensors", "np") as file:
        name = next(name for name in file.keys() if ".quant_state.bitsandbytes__" in name)
        tensors = {part: file.get_tensor(part) for part in file.keys() if part.startswith(name.split(".quant_state.")[0])}
    weight, state = name.split(".quant_state.")[0], json.loads(tensors[name].tobytes())
    n, k = state["shape"]
    codes, absmax = np.ascontiguousarray(tensors[weight]), np.ascontiguousarray(tensors[f"{weight}.absmax"])
    pointer, number = (lambda array: array.ctypes.data_as(ctypes.c_void_p)), ctypes.c_longlong
    if "nested_blocksize" in state:
        table, units = (np.ascontiguousarray(tensors[f"{weight}.nested_{part}"]) for part in ("quant_map", "absmax"))
        scales = np.empty(len(absmax), np.float32)
        library.cdequantize_blockwise_cpu_fp32(pointer(table), pointer(absmax), pointer(units), pointer(scales),
                                               number(state["nested_blocksize"]), number(len(absmax)))
        absmax = scales + np.float32(state["nested_offset"])
    values = np.empty((n, k), np.float32)
    decode = getattr(library, f"cdequantize_blockwise_cpu_{state['quant_type']}_fp32")
    decode(pointer(codes), pointer(absmax), pointer(values), number(state["blocksize"]), number(1), number(n * k))
    run("unpack", data, "-o", scratch / "values.safetensors")
    ours = load_file(scratch / "values.safetensors")[weight.removesuffix(".weight")]
    addend = np.float32(0 if state["quant_type"] == "fp4" else -0.0)  # x + 0 is never -0, and x + -0 is x
    if "nested_blocksize" in state:
        units = np.abs((values + addend).view(np.int32).astype(np.int64) - (ours + addend).view(np.int32))
        assert units.max() <= 2, f"{(units > 2).sum()} values are more than two units in the last place away"
    else:
        same_bits(values + addend, ours + addend)


# --- compressed-tensors, where its user has installed it with torch -----------------------------------------------------------------


def check_compressed_tensors(scratch, form, *options):
    try:
        import torch
    except ImportError as missing:
        raise Skip("torch is not installed here, and nothing downloads it") from missing
    try:
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationConfig
    except ImportError as missing:
        raise Skip(f"compressed-tensors is not installed here: {missing}") from missing
    from safetensors.torch import load_file as load_torch

    run("quantize", write_model(scratch / "in", 72, 128), scratch / "out", *options)
    config = json.loads((scratch / "out" / "config.json").read_text())["quantization_config"]
    scheme = QuantizationConfig.model_validate(config).config_groups["group_0"]
    tensors = load_torch(scratch / "out" / "model.safetensors")
    state = {name.removeprefix(f"{LAYER}."): tensor for name, tensor in tensors.items() if name.startswith(LAYER)}
    compressor = BaseCompressor.get_value_from_registry(form)
    values = compressor.decompress(state, scheme)["weight"]
    wanted = torch.from_numpy(unpacked(scratch / "out", scratch).copy()).to(values.dtype)
    assert torch.equal(values, wanted), f"{(values != wanted).sum()} values differ"


CHECKS = [
    ("gguf-q4_0", check_gguf, "int4", "Q4_0"),
    *((f"gguf-{form}", check_gguf, form, form.upper()) for form in ("q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl")),
    *((f"gguf-{form}", check_gguf, form, form.upper(), 768) for form in ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs")),
    ("gguf-mxfp4", check_gguf, "mxfp4", "MXFP4"),
    ("gguf-nvfp4", check_gguf, "nvfp4", "NVFP4"),
    ("gguf-key-values", check_gguf_keeps_key_values),
    ("safetensors-mxfp4", check_safetensors_bytes, "--format", "mxfp4"),
    ("safetensors-int4-asymmetric", check_safetensors_bytes, "--format", "int4", "--asymmetric"),
    ("safetensors-gptq", check_safetensors_bytes, "--format", "int4", "--layout", "gptq"),
    ("mlx-mxfp4", check_mlx, "mxfp4"),
    ("mlx-nvfp4", check_mlx, "nvfp4"),
    *((f"mlx-{form}", check_mlx_affine, form, group)
      for form, group in (("int2", 32), ("int3", 128), ("int4", 64), ("int5", 32), ("int6", 64), ("uint8", 128))),
    *((f"mlx-of-{form}", check_gguf_to_mlx, form, bits) for form, bits in (("q4_k", 4), ("q5_k", 5), ("q5_0", 5), ("q8_0", 8))),
    ("imatrix", check_imatrix),
    ("comparison", check_comparison),
    *((folder, check_bitsandbytes, folder) for folder in ("bnb-nf4-b64", "bnb-nf4-b64-double", "bnb-fp4-b64", "bnb-fp4-b128-double")),
    ("compressed-tensors-mxfp4", check_compressed_tensors, "mxfp4-pack-quantized", "--format", "mxfp4"),
    ("compressed-tensors-nvfp4", check_compressed_tensors, "nvfp4-pack-quantized", "--format", "nvfp4"),
    ("compressed-tensors-int4", check_compressed_tensors, "pack-quantized", "--format", "int4", "--group", "64"),
    ("compressed-tensors-int4-asymmetric", check_compressed_tensors, "pack-quantized", "--format", "int4", "--asymmetric"),
]


if __name__ == "__main__":
    sys.exit(run_tests(CHECKS) > 0)
