"""What fuzzing begins with, made from the tests' data: corpora of every layout, and dictionaries of the words that parsers know.

A file's header is kept whole for a few of its tensors, and their data become zeros, which the targets add again: the layouts that
they have are real, and a seed is no longer than a few hundred bytes.
"""

import json
import pathlib
import re
import struct

MOST_ZEROS = 65535
SMALL = 160  # bytes of a tensor that are kept: shapes, indices of groups, states


def layer_of(name):
    return name.rsplit(".", 1)[0].removesuffix(".weight")


def read_safetensors(path):
    """The tensors of a file: name, dtype, shape and bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    data = content[8 + length :]
    return [(name, t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()]


def small_safetensors(path):
    """A header and the first bytes of its data, and how many zeros are missing: of the smallest layers of the file."""
    tensors = read_safetensors(path)
    sizes = {}
    for name, _, _, data in tensors:
        sizes[layer_of(name)] = sizes.get(layer_of(name), 0) + len(data)
    kept = sorted(sizes, key=lambda layer: sizes[layer])[:2]
    chosen = sorted((t for t in tensors if layer_of(t[0]) in kept), key=lambda t: len(t[3]) > SMALL)
    header, data, zeros = {}, b"", 0
    for name, dtype, shape, content in chosen:
        begin = len(data) + zeros
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + len(content)]}
        if len(content) <= SMALL:
            data += content
        else:
            zeros += len(content)
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data, zeros


def gguf_parts(path):
    """The bytes before the names of the tensors, the alignment, and the tensors: their infos and sizes."""
    import io

    content = path.read_bytes()
    stream = io.BytesIO(content)
    take = lambda kind: struct.unpack("<" + kind, stream.read(struct.calcsize(kind)))[0]
    text = lambda: stream.read(take("Q"))
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    stream.seek(8)
    tensor_count, key_count = take("Q"), take("Q")
    keys = []

    def skip(kind):
        if kind == 8:
            text()
        elif kind == 9:
            element, count = take("I"), take("Q")
            for _ in range(count):
                skip(element)
        else:
            stream.read(sizes[kind])

    for _ in range(key_count):
        begin = stream.tell()
        text()
        skip(take("I"))
        if stream.tell() - begin <= 200:
            keys.append(content[begin : stream.tell()])
    tensors = []
    for _ in range(tensor_count):
        name = text()
        dims = [take("Q") for _ in range(take("I"))]
        kind, offset = take("I"), take("Q")
        tensors.append((name, dims, kind, offset))
    data = (stream.tell() + 31) // 32 * 32
    ends = [t[3] for t in tensors[1:]] + [len(content) - data]
    return keys, [(name, dims, kind, end - offset) for (name, dims, kind, offset), end in zip(tensors, ends)]


def small_gguf(keys, tensors):
    """A header of these tensors, and the zeros of their data."""
    infos, zeros = b"", 0
    for name, dims, kind, size in tensors:
        infos += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        infos += struct.pack("<IQ", kind, zeros)
        zeros += (size + 31) // 32 * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    return head + b"\0" * (-len(head) % 32), zeros


def checkpoints(data):
    return sorted(path for path in data.iterdir() if path.is_dir())


def write(folder, name, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def section(name, content, zeros=0):
    return f"== {name} {zeros}\n".encode() + content + b"\n" * (zeros == 0)


def write_file_seeds(data, out):
    for path in checkpoints(data):
        configs = b"".join(
            b"\n" + section(name, (path / name).read_bytes())
            for name in ("config.json", "quantize_config.json")
            if (path / name).exists() and (path / name).stat().st_size < 2000
        )
        models = sorted(path.glob("model*.safetensors"))
        for model in models[:1]:
            content, zeros = small_safetensors(model)
            if zeros <= MOST_ZEROS and len(content) < 4000:
                write(out / "safetensors", path.name, content + struct.pack("<H", zeros))
                write(out / "folder", path.name, section("model.safetensors", content, zeros) + configs)
        for model in sorted(path.glob("*.gguf"))[:1]:
            keys, tensors = gguf_parts(model)
            by_kind = {kind: (name, dims, kind, size) for name, dims, kind, size in sorted(tensors, key=lambda t: -t[3])}
            for kind, tensor in by_kind.items():
                content, zeros = small_gguf(keys[:4], [tensor])
                if zeros <= MOST_ZEROS:
                    write(out / "gguf", f"{path.name}-{kind}", content + struct.pack("<H", zeros))
            write(out / "folder", f"{path.name}-gguf", section("model.gguf", content, min(zeros, MOST_ZEROS)))
    for path in sorted(data.glob("container-*.marlin")):
        write(out / "folder", path.name, section(path.name, path.read_bytes()))
    write_index_seeds(out)


def write_index_seeds(out):
    """Shards with an index, and a split GGUF."""
    tensor = b'{"a.weight":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]}}'
    other = tensor.replace(b"a.weight", b"b.weight")
    shards = [struct.pack("<Q", len(text)) + text for text in (tensor, other)]
    index = b'{"metadata":{"total_size":64},"weight_map":{"a.weight":"s1","b.weight":"s2"}}'
    folder = section("model.safetensors.index.json", index)
    for name, content in zip(("s1", "s2"), shards):
        folder += b"\n" + section(name, content, 32)
    write(out / "folder", "index", folder)
    text = lambda word: struct.pack("<Q", len(word)) + word
    parts = b""
    for number in (0, 1):
        keys = [text(b"split." + key) + struct.pack("<IH", 2, value) for key, value in ((b"no", number), (b"count", 2))]
        keys.append(text(b"split.tensors.count") + struct.pack("<Ii", 5, 2))
        content, zeros = small_gguf(keys, [(b"t%d.weight" % number, [32, 1], 2, 18)])
        parts += b"\n" * number + section(f"m-0000{number + 1}-of-00002.gguf", content, zeros)
    write(out / "folder", "split", parts)


def write_call_seeds(out):
    """One sound descriptor of every kind: the first bytes choose, and the rest has its usual values."""
    for layout in range(11):
        for kind in range(18):
            for floats in (0, 1):
                write(out / "pack", f"{layout}-{kind}-{floats}", bytes([0, 0, 0, 0, kind, layout, floats, 0, 1]))
    for weights in range(11):
        for shape in (0, 100, 150, 230):
            write(out / "product", f"{weights}-{shape}", bytes([shape, weights] + [0] * 40))
            write(out / "product", f"{weights}-{shape}-routed", bytes([shape, weights] + [0] * 6 + [225] + [0] * 40))
    for source in range(9):
        for scheme in range(6):
            for writes in (0, 255):
                write(out / "convert", f"{source}-{scheme}-{writes}", bytes([source, scheme, 1 + scheme % 4, 0, writes]))


def write_argument_seeds(root, out):
    """The command lines of the documentation."""
    page = (root / "docs/command.md").read_text() + (root / "README.md").read_text()
    for i, line in enumerate(sorted(set(re.findall(r"metal-marlin ([a-z]+ [^`\n|#>]*)", page)))):
        write(out / "arguments", str(i), "\n".join(line.split()).encode())


def words(paths, pattern):
    return sorted({word for path in paths for word in re.findall(pattern, path.read_text())})


def write_dictionary(path, entries):
    path.write_text("".join('"' + "".join(f"\\x{b:02x}" for b in entry) + '"\n' for entry in entries))


def write_dictionaries(root, out):
    """The strings of the parsers' own sources, and numbers of the sizes that overflow."""
    sources = sorted((root / "src/checkpoints").rglob("*.cc")) + sorted((root / "src/layouts").rglob("*.cc"))
    names = [word.encode() for word in words(sources, r'"([A-Za-z0-9_.:-]{2,40})"')]
    numbers = [struct.pack("<Q", n) for n in (2**31, 2**32, 2**61, 2**63, 2**64 - 1, 2**64 - 32)]
    digits = [str(n).encode() for n in (2**31, 2**32, 2**61, 2**63 - 1, 2**63, 2**64 - 1)]
    for target in ("safetensors", "folder"):
        write_dictionary(out / f"{target}.dict", names + digits + [b"\n== ", b'"data_offsets":[', b'"shape":['])
    write_dictionary(out / "gguf.dict", names + numbers)
    options = words([root / "docs/command.md"], r"(--[a-z][a-z-]+)")
    values = words(sorted((root / "tools").glob("*.cc")), r'"([a-z0-9_-]{2,16})"')
    write_dictionary(out / "arguments.dict", [word.encode() for word in options + values])


def write_all(root, out):
    out.mkdir(parents=True, exist_ok=True)
    data = root / "tests/data"
    write_file_seeds(data, out)
    write_call_seeds(out)
    write_argument_seeds(root, out)
    write_dictionaries(root, out)


if __name__ == "__main__":
    import sys

    write_all(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
