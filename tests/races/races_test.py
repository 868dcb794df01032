"""tools/races: what its weights are worth, and small races of whatever is installed.

usage: races_test.py BUILD [unittest's arguments]
"""
import ast
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

TOP = pathlib.Path(__file__).resolve().parents[2]
COMPARE = TOP / "tools" / "races"
sys.path.insert(0, str(COMPARE))

import pages  # noqa: E402
from weights import FORMATS, Weights, expert_ids, weights_of  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)) if __name__ == "__main__" else None


class CandidateTest(unittest.TestCase):
    def test_values_are_those_of_the_library(self):
        """What a weight is worth, against the library's own decoding: of the codes as they are, and of the blocks that ggml gets."""
        import ours
        mm, library = ours.mm, ours.Race(BUILD).library
        context = mm.Context(mm.Backend.CPU, library=library)
        for fmt in FORMATS.values():
            weights = weights_of(fmt, 6, 256)
            candidate = ours.Ours(ours.Race(BUILD), 1, "cpu", ["f32"])
            candidate.prepare(weights, 1)
            wanted = weights.values(slice(None)).astype(np.float32)
            np.testing.assert_array_equal(candidate.copies[0].unpack(), wanted, fmt.name)
            if fmt.name in ("mxfp4", "nvfp4", "int4", "int4-zeros", "int8"):  # that GGUF has
                blocks = mm.Part(mm.Format[fmt.base.upper()], weights.blocks(), n=6, k=256, layout=mm.Layout.GGUF, additive_zeros=fmt.additive)
                np.testing.assert_array_equal(mm.Weights.pack(context, blocks).unpack(), wanted, f"blocks of {fmt.name}")

    def test_what_fails_in_c_is_told(self):
        import ours
        race = ours.Race(BUILD)
        candidate = ours.Ours(race, 1, "cpu", ["f32"])
        candidate.prepare(Weights(FORMATS["int4"], 8, 64), 2)
        narrow = ours.mm.Gemm(np.ones((1, 64), np.float32), candidate.copies[1], out=np.zeros((1, 7), np.float32)).descriptor()
        with self.assertRaisesRegex(RuntimeError, "c.cols is 7"):
            race.time_products([narrow])

    def test_the_result_of_a_mixture_is_that_of_the_first_draw(self):
        import ours
        weights, a, ids = Weights(FORMATS["mxfp4"], 16, 64, 5), np.ones((3, 64), np.float32), expert_ids(3, 5, 2, 2)
        candidate = ours.Ours(ours.Race(BUILD), 1, "cpu", ["f32"])
        candidate.prepare(weights, 1)
        product = candidate.product("f32", a, ids)
        wanted = np.stack([weights.values(np.arange(e, e + 16)) @ row for row, experts in zip(a, ids[0]) for e in experts])
        for _ in range(2):
            product.time(1)
            np.testing.assert_allclose(product.result(), wanted, rtol=1e-5, atol=1e-4)


def private_uses(text, public):
    """What a program uses of the package metal_marlin, or of mm, that is not public."""
    yield from re.findall(r"(?:from|import) (metal_marlin\.\w+)", text)
    names = re.findall(r"from metal_marlin import (.*)", text)
    yield from (name for name in [*re.findall(r"\bmm\.(\w+)", text), *", ".join(names).split(", ")] if name and name not in public)
    yield from re.findall(r"(?!self\b)\b\w+\._[a-z]\w*", text) if "metal_marlin" in text else ()


class PublicApiTest(unittest.TestCase):
    """The races show what every program can do with the package, so they use its public names alone."""

    def test_the_races_use_no_more(self):
        text = (TOP / "bindings/python/metal_marlin/__init__.py").read_text()
        public = ast.literal_eval(re.search(r"__all__ = (\[.*?\])", text, re.S)[1])
        self.assertEqual(list(private_uses((COMPARE / "ours.py").read_text() + "from metal_marlin.products import Call\nmm._abi\n", public)),
                         ["metal_marlin.products", "_abi", "mm._abi"])
        self.assertEqual([(path.name, use) for path in COMPARE.glob("*.py") for use in private_uses(path.read_text(), public)], [])


class WholeTest(unittest.TestCase):
    def run_races(self, *arguments):
        return subprocess.run([sys.executable, "-B", COMPARE, *arguments], capture_output=True, text=True)

    def test_a_small_race(self):
        """Ours, and what of the others is installed: none is slower by lower accuracy. The page gets their figures, and keeps its words."""
        with tempfile.TemporaryDirectory() as folder:
            file, copy = pathlib.Path(folder) / "records.jsonl", pathlib.Path(folder) / "performance.md"
            # A ggml that ./dev bench --compare or the suite ggml has left here.
            ggml = [each for place in ("compare/llama", "env/ggml") for each in (TOP / "build" / place).glob("**/libggml-cpu.so")]
            shown = self.run_races(f"--build={BUILD}", *(f"--ggml={each.parent}" for each in ggml[:1]), "--quick", "--shapes=96x256,96x256x6x2",
                                   "--formats=mxfp4,int4,int4-zeros", "-m=1,5", "--seconds=0.001", "--rotation=0.1", f"--json={file}")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            found = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
            page = (TOP / "docs" / "performance.md").read_text("utf-8")
            copy.write_text(page, "utf-8")
            pages.write_docs(copy, found)
            text = copy.read_text("utf-8")
        ours = [each for each in found if each["candidate"] == "ours"]
        self.assertEqual([(each["format"], each.get("experts"), each["M"], each["compute"]) for each in ours],
                         [(fmt, experts, m, compute) for fmt in ("mxfp4", "int4", "int4-zeros") for experts in (None, 6) for m in (1, 5)
                          for compute in ("int8", "bf16", "f32")])
        for each in found:
            bound = {"int8": 5e-4, "f32": 1e-11}.get(each["compute"], 1e-11 if each["candidate"] == "ours" else 1e-3)
            self.assertLess(each["nmse"], bound, each)
            self.assertGreater(min(each["seconds"], each["read_gbytes_per_s"], each["peak_gflops"]), 0, each)
        cell = next(each for each in ours if each["format"] == "mxfp4" and "experts" not in each and each["compute"] == "int8" and each["M"] == 5)
        self.assertRegex(text, rf"\| native \| mxfp4 \| 96 x 256 \| int8 \| .* \| {re.escape(pages.seconds_text(cell['seconds']))}, ")
        self.assertEqual(pages.PART.sub("", text), pages.PART.sub("", page))
        print("candidates:", ", ".join(dict.fromkeys(each["candidate"] for each in found)))

    def test_a_wrong_product_is_exit_status_1(self):
        base = {"source": "race", "candidate": "ours", "variant": "int8", "compute": "int8", "format": "mxfp4", "N": 64, "K": 128, "M": 1}
        for nmse_of, status in ((4e-4, 0), (6e-4, 1), (float("nan"), 1)):
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
                file.write(json.dumps({**base, "nmse": nmse_of}) + "\n")
                file.flush()
                shown = self.run_races(f"--from={file.name}")
                self.assertIn("is there already", self.run_races("--quick", f"--json={file.name}").stderr)
            self.assertEqual((shown.returncode, "WRONG: ours int8, mxfp4, 64 x 128, M = 1" in shown.stderr), (status, status == 1), shown.stderr)

    def test_a_name_that_is_none(self):
        shown = self.run_races("--formats=mxfp5")
        self.assertEqual(shown.returncode, 2)
        self.assertIn("no mxfp5; there are: mxfp4, nvfp4", shown.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
