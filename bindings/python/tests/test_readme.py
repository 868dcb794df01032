"""What the pages show works as it stands."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import TOP


@pytest.mark.parametrize("page", ["docs/hello.md", "bindings/python/README.md"])
def test_blocks(page, monkeypatch):
    """The blocks of a page follow each other, in the top folder."""
    monkeypatch.chdir(TOP)
    blocks = re.findall(r"^```python\n(.*?)^```", (TOP / page).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert isinstance(names["y"], np.ndarray) and names["y"].any()


def test_hello_without_arguments():
    done = subprocess.run([sys.executable, TOP / "bindings/python/examples/hello.py"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "usage: hello.py CHECKPOINT LAYER\n")
