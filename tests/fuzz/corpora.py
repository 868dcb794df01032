"""Small corpora that every build replays: tests/fuzz/corpora/TARGET.inputs, each input behind its length, a little-endian uint32."""

import struct

MOST_BYTES = 120_000  # a target; the shortest inputs are kept


def write(root, target, inputs):
    """Returns how many inputs there was room for."""
    path = root / "tests/fuzz/corpora" / f"{target}.inputs"
    path.parent.mkdir(exist_ok=True)
    content, kept = b"", 0
    for one in sorted(set(inputs), key=lambda x: (len(x), x)):
        if len(content) + 4 + len(one) > MOST_BYTES:
            break
        content += struct.pack("<I", len(one)) + one
        kept += 1
    path.write_bytes(content)
    return kept


def unpack(root, target, folder):
    """Writes the inputs to files of their own."""
    path = root / "tests/fuzz/corpora" / f"{target}.inputs"
    content = path.read_bytes() if path.exists() else b""
    folder.mkdir(parents=True, exist_ok=True)
    at = number = 0
    while at < len(content):
        (length,) = struct.unpack_from("<I", content, at)
        (folder / f"kept-{number}").write_bytes(content[at + 4 : at + 4 + length])
        at, number = at + 4 + length, number + 1
