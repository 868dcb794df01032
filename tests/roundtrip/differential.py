"""Files that are made at random, read by the library and by the packages gguf and safetensors: both find the same tensors.

usage: differential.py LIBRARY [FILES] [SEED]

Half of the files are sound, and half have a wrong byte, a wrong number or no end. The library must refuse what the package
refuses. It may refuse more of GGUF, whose package checks little, and tensors without elements whose other dimensions wrap. Of a file that both accept, names, shapes and bytes of all
tensors, and the key-values of GGUF, must agree. Prints the counts, and "passed NAME" or "FAILED NAME: why" a format.
"""

import json
import pathlib
import random
import re
import resource
import struct
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/python"))
import metal_marlin as mm  # noqa: E402
from gguf import GGUFReader, GGUFValueType, GGUFWriter  # noqa: E402
from safetensors import SafetensorError, safe_open  # noqa: E402

DTYPES = {"F32": 4, "F16": 2, "I32": 4, "U8": 1, "I8": 1, "I16": 2, "I64": 8}
MOST_MEMORY = 2 << 30  # of this process: the package gguf believes the counts of a file


def opened(library, path):
    """The file as the library opens it; None where it refuses."""
    try:
        return mm.Checkpoint(path, library=library)
    except mm.MarlinError:
        return None


def tensor_of(file, name):
    """Rows, columns and bytes; or why there are none."""
    try:
        found = file.tensor(name)
    except mm.MarlinError as why:
        return why
    return *found.shape, found.tobytes()


def matrix_of(shape):
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows, shape[-1] if shape else 1


def some_name(r):
    return "".join(r.choice('abcdefghij.0129_- "\\/\u00e9\u4e2d\U0001f600\t') for _ in range(r.randint(1, 14)))


def some_shape(r):
    return [r.randint(0 if r.random() < 0.1 else 1, 6) for _ in range(r.randint(0, 4))]


def make_safetensors(r):
    header, data = {}, b""
    for _ in range(r.randint(0, 5)):
        dtype, shape = r.choice(list(DTYPES)), some_shape(r)
        content = r.randbytes(int(np.prod(shape, dtype=np.int64)) * DTYPES[dtype])
        name = some_name(r)
        if name in header:
            continue
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    items = list(header.items())
    r.shuffle(items)
    if r.random() < 0.3:
        items.insert(0, ("__metadata__", {"format": some_name(r)}))
    text = json.dumps(dict(items), ensure_ascii=r.random() < 0.5, separators=r.choice([(",", ":"), (", ", ": ")])).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def damaged(r, content):
    """A wrong bit, a number in digits that is another, or an earlier end."""
    kind = r.random()
    if kind < 0.4:
        at = r.randrange(min(len(content), 400))
        return content[:at] + bytes([content[at] ^ 1 << r.randrange(8)]) + content[at + 1 :]
    numbers = list(re.finditer(rb"(?<=[\[,: ])\d+", content[8:]))
    if kind < 0.8 and numbers:
        found = r.choice(numbers)
        wrong = str(max(0, r.choice([int(found[0]) + 1, int(found[0]) - 1, 0, 2**31, 2**63, 2**64 - 1]))).encode()
        length = struct.unpack("<Q", content[:8])[0] + len(wrong) - len(found[0])
        return struct.pack("<Q", length % 2**64) + content[8 : 8 + found.start()] + wrong + content[8 + found.end() :]
    return content[: r.randrange(len(content))]


def size_wraps(shape):
    size = 1
    for dimension in shape:
        size *= max(dimension, 1)
    return size >= 2**60 or max(shape, default=0) >= (2**31 if 0 in shape else 2**63)


def bytes_of(file, name):
    try:
        return file.get_tensor(name).tobytes()
    except ValueError:  # NumPy has no array without elements whose other dimensions are huge
        return b""


def safetensors_of(path):
    """What the package finds; None where it refuses, and False where it does not get to the tensors: a type has another name."""
    try:
        with safe_open(path, "np") as file:
            names = list(file.keys())
            slices = {name: file.get_slice(name) for name in names}
            return {name: (part.get_dtype(), part.get_shape(), bytes_of(file, name)) for name, part in slices.items()}
    except (SafetensorError, OverflowError) as why:
        return False if "unknown variant" in str(why) else None


def compare_safetensors(library, path):
    theirs, ours = safetensors_of(path), opened(library, path)
    if theirs is False:
        return ""
    if theirs is not None and ours is None and any(size_wraps(shape) for _, shape, _ in theirs.values()):
        return ""  # a tensor without elements, whose other dimensions the library still counts
    if theirs is None or ours is None:
        return "" if theirs is ours else f"the library says {ours}, and the package says {theirs is not None}"
    with ours:
        for name, (dtype, shape, content) in theirs.items():
            if dtype not in DTYPES or size_wraps(shape):
                continue
            found = tensor_of(ours, name)
            if found != (*matrix_of(shape), content):
                return f"tensor {name!r}: {found}, and the package has {shape}"
    return ""


def make_gguf(r, path):
    writer = GGUFWriter(path, "llama")
    for i in range(r.randint(0, 6)):
        key, kind = f"k.{i}", r.randrange(5)
        if kind == 0:
            writer.add_uint32(key, r.getrandbits(32))
        elif kind == 1:
            writer.add_int64(key, r.getrandbits(63) - 2**62)
        elif kind == 2:
            writer.add_string(key, some_name(r))
        elif kind == 3:
            writer.add_float64(key, r.random())
        else:
            writer.add_array(key, [r.randint(0, 9) for _ in range(r.randint(1, 5))])
    for i in range(r.randint(1, 5)):
        shape = [r.randint(1, 6) for _ in range(r.randint(1, 4))]
        writer.add_tensor(f"t{i}.weight", np.frombuffer(r.randbytes(int(np.prod(shape)) * 2), np.float16).reshape(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_of(path):
    """What the package finds; None where it refuses, and False where it does not get to the file: names need not be UTF-8 here, and
    a type may be unknown."""
    try:
        return GGUFReader(path)
    except (UnicodeDecodeError, MemoryError):
        return False
    except Exception as why:  # it has no error of its own
        return False if "is not a valid GGMLQuantizationType" in str(why) else None


def compare_gguf(library, path, sound):
    ours = opened(library, path)
    if ours is None:
        return "the library refuses a sound file" if sound else ""
    theirs = gguf_of(path)
    if theirs is None or theirs is False:
        return "" if theirs is False else "it was opened, and the package refuses it"
    with ours:
        for tensor in theirs.tensors:
            if tensor.tensor_type.name != "F16":
                continue
            shape = [int(size) for size in reversed(tensor.shape)]
            found = tensor_of(ours, tensor.name)
            if found != (*matrix_of(shape), tensor.data.tobytes()):
                return f"tensor {tensor.name!r}: {found}, and the package has {shape}"
        for name, field in theirs.fields.items():
            if name.startswith("GGUF.") or "\0" in name or field.types[0] == GGUFValueType.ARRAY:
                continue
            text = field.types[0] == GGUFValueType.STRING
            want = field.parts[-1].tobytes().decode(errors="surrogateescape") if text else field.contents()
            if ours.values.get(name) != want:
                return f"key {name!r}: {ours.values.get(name)!r}, and the package has {want!r}"
    return ""


def campaign(name, files, make, compare, scratch):
    wrong, path = [], scratch / name
    for i in range(files):
        sound = i % 2 == 0
        make(path, sound)
        why = compare(path, sound)
        if why:
            wrong.append(f"file {i}: {why}; it begins {path.read_bytes()[:300]!r}")
    print(f"{name}: {files} files, {len(wrong)} disagreements")
    print(f"passed {name}" if not wrong else f"FAILED {name}: {wrong[0]}")
    return not wrong


def main(library, files="1000", seed=None):
    seed = int(seed) if seed is not None else random.randrange(2**32)
    print(f"seed {seed}")
    r = random.Random(seed)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    library = mm.Library(library)
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)

        def safetensors(path, sound):
            content = make_safetensors(r)
            path.write_bytes(content if sound else damaged(r, content))

        def gguf(path, sound):
            make_gguf(r, path)
            if not sound:
                path.write_bytes(damaged(r, path.read_bytes()))

        half = int(files) // 2
        return all(
            [
                campaign("a.safetensors", half, safetensors, lambda path, _: compare_safetensors(library, path), scratch),
                campaign("a.gguf", half, gguf, lambda path, sound: compare_gguf(library, path, sound), scratch),
            ]
        )


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
