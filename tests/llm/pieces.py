"""SentencePiece by its definition, a step at a time: what the chat's tokens are checked against. It takes n^2 steps for n characters."""

import re

from made_models import BYTE, NORMAL, UNKNOWN, UNUSED, USER_DEFINED

SPACE = "\u2581"


class Pieces:
    def __init__(self, names, types, scores, space_prefix):
        tokens = list(zip(names, types))
        self.names, self.scores, self.prefix = names, scores, SPACE if space_prefix else ""
        self.pieces = {name: i for i, (name, kind) in enumerate(tokens) if kind in (NORMAL, USER_DEFINED, UNUSED)}
        self.bytes = {int(name[3:5], 16): i for i, (name, kind) in enumerate(tokens) if kind == BYTE}
        self.unknown = types.index(UNKNOWN) if UNKNOWN in types else None
        added = sorted((name for name, kind in tokens if kind == USER_DEFINED), key=len, reverse=True)
        self.added = re.compile("(" + "|".join(map(re.escape, added)) + ")") if added else None

    def encode(self, text):
        ids = []
        for i, part in enumerate(self.added.split(text) if self.added else [text]):
            if i % 2:
                ids.append(self.pieces[part])
            elif part:
                ids += self.merged(self.prefix + part.replace(" ", SPACE))
        return ids

    def merged(self, text):
        symbols = list(text)
        while True:
            pairs = [(self.scores[self.pieces[a + b]], -at) for at, (a, b) in enumerate(zip(symbols, symbols[1:])) if a + b in self.pieces]
            if not pairs:
                break
            at = -max(pairs)[1]
            symbols[at:at + 2] = [symbols[at] + symbols[at + 1]]
        for symbol in symbols:
            if symbol in self.pieces:
                yield self.pieces[symbol]
            elif all(byte in self.bytes for byte in symbol.encode()):
                yield from (self.bytes[byte] for byte in symbol.encode())
            elif self.unknown is not None:
                yield self.unknown
