"""What the pages show works as it stands."""

from __future__ import annotations

import re

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
