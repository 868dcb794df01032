"""tools/races: its parts, and a small race of whatever is installed.

usage: races_test.py BUILD [unittest's arguments]
"""
import ast
import ctypes
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import numpy as np

TOP = pathlib.Path(__file__).resolve().parents[2]
COMPARE = TOP / "tools" / "races"
sys.path.insert(0, str(COMPARE))

import pages  # noqa: E402
import racing  # noqa: E402
import records  # noqa: E402
from charts import Chart, ticks  # noqa: E402
from peer import Absent, Peer, Product  # noqa: E402
from weights import FORMATS, Weights, expert_ids, nmse, to_bf16, weights_of  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)) if __name__ == "__main__" else None


def record(**values):
    """One of the records that tables and goals are made of; of ours unless said."""
    base = {
        "source": "race", "date": "2026-01-02", "machine": "a processor", "threads": 2, "isa": "native", "candidate": "ours", "variant": "int8",
        "kernel": "k", "about": "about it", "format": "mxfp4", "group": 32, "compute": "int8", "M": 1, "N": 64, "K": 128, "seconds": 1e-3,
        "cpu_seconds": 2e-3, "samples": 5, "weight_bytes": 4352, "gbytes_per_s": 50.0, "gflops": 100.0, "limit": "read",
        "fraction_of_limit": 0.9, "fraction_of_read": 0.9, "fraction_of_peak": 0.1, "read_gbytes_per_s": 55.0, "instruction": "dot",
        "peak_gflops": 1000.0, "nmse": 1e-5,
    }
    given = {**base, **values}
    return given if given["candidate"] != "ours" else {"over": {}, **given}


class WeightsTest(unittest.TestCase):
    """What a weight is worth, against the library's own decoding: of the codes as they are, and of the blocks that ggml gets."""

    def test_values_are_those_of_the_library(self):
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

    def test_odd_k(self):
        weights = Weights(FORMATS["int4"], 3, 77)
        self.assertEqual(weights.values(slice(None)).shape, (3, 77))
        self.assertEqual(weights.scales.shape, (3, 3))

    def test_scales_survive_float16(self):
        weights = Weights(FORMATS["int4-zeros"], 50, 640)
        for each in (weights.scales, weights.zeros):
            np.testing.assert_array_equal(each.astype(np.float16).astype(np.float32), each)

    def test_bfloat16_ties_to_even(self):
        np.testing.assert_array_equal(to_bf16(np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], np.float32)), [1, 1 + 2**-6, 1 + 2**-7])

    def test_nmse(self):
        self.assertEqual(nmse([1, 2, 2], np.array([1.0, 2.0, 3.0])), 1 / 14)


class TimedInCTest(unittest.TestCase):
    """race.cc calls everything that it times, and passes on what fails."""

    def test_products(self):
        import ours
        race = ours.Race(BUILD)
        candidate = ours.Ours(race, 1, "cpu", ["f32"])
        candidate.prepare(Weights(FORMATS["int4"], 8, 64), 2)
        row = np.ones((1, 64), np.float32)
        calls = [ours.mm.Gemm(row, each).descriptor() for each in candidate.copies]
        wall, cpu = race.time_products(calls)
        self.assertTrue(wall > 0 and cpu > 0)
        np.testing.assert_array_equal(*(call.out for call in calls))
        self.assertTrue(calls[0].out.any())
        narrow = ours.mm.Gemm(row, candidate.copies[1], out=np.zeros((1, 7), np.float32)).descriptor()
        with self.assertRaisesRegex(RuntimeError, "c.cols is 7"):
            race.time_products([calls[0], narrow])

    def test_threads_are_those_that_the_library_would_use(self):
        import ours
        mm, race = ours.mm, ours.Race(BUILD)
        context, ones = mm.Context(mm.Backend.CPU, library=race.library), np.ones((8, 64), np.float32)
        product = mm.Gemm(ones, mm.Weights.quantize(context, ones, mm.Quantize(mm.Format.INT4)))
        self.assertEqual(str(race.threads()), product.explain()["threads"])

    def test_graphs(self):
        import ours
        seen = []
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda backend, graph: seen.append((backend, graph)) or 0)
        ours.Race(BUILD).time_graphs(function, 5, [7, 9])
        self.assertEqual(seen, [(5, 7), (5, 9)])
        with self.assertRaises(RuntimeError):
            ours.Race(BUILD).time_graphs(type(function)(lambda *_: 1), 5, [7])


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


class Stub(Peer):
    """Takes as long as it is told, and writes down who was called."""

    def __init__(self, name, seconds, calls, mixtures=False):
        self.name, self.seconds, self.calls, self.variants, self.about = name, list(seconds), calls, {"v": "int8"}, "stub"
        self.mixtures = mixtures

    def prepare(self, weights, copies):
        if self.name == "absent":
            raise Absent("has no such thing")
        self.weights = weights

    def product(self, variant, a, ids=None):
        def time(count):
            self.calls.append((self.name, count))
            seconds = self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
            return seconds * count, 2 * seconds * count

        def result():
            values, n = self.weights.values(slice(None)), self.weights.n
            if ids is None:
                return a @ values.T
            return np.stack([values[e:e + n] @ row for row, experts in zip(a, ids[0]) for e in experts])
        return Product(time, result)


class MixtureTest(unittest.TestCase):
    def test_experts_of_a_row_differ_and_draws_have_as_many(self):
        ids = expert_ids(20, 7, 3, 4)
        self.assertEqual((ids.shape, ids.dtype), ((4, 20, 3), np.int32))
        self.assertTrue(all(len(set(row)) == 3 for row in ids.reshape(-1, 3)))
        self.assertEqual(len({len(np.unique(each)) for each in expert_ids(1, 7, 3, 4)}), 1)
        self.assertGreater(len({tuple(each.ravel()) for each in ids}), 1)

    def test_the_result_is_that_of_the_first_draw(self):
        import ours
        weights, a, ids = Weights(FORMATS["mxfp4"], 16, 64, 5), np.ones((3, 64), np.float32), expert_ids(3, 5, 2, 2)
        candidate = ours.Ours(ours.Race(BUILD), 1, "cpu", ["f32"])
        candidate.prepare(weights, 1)
        product = candidate.product("f32", a, ids)
        wanted = np.stack([weights.values(np.arange(e, e + 16)) @ row for row, experts in zip(a, ids[0]) for e in experts])
        for _ in range(2):
            product.time(1)
            np.testing.assert_allclose(product.result(), wanted, rtol=1e-5, atol=1e-4)


class RaceTest(unittest.TestCase):
    def race(self, *peers, seconds=0.5):
        limits, contestants = [], [racing.Contestant(each, "v", np.zeros((1, 1))) for each in peers]
        for each in peers:
            each.calls.clear()
        medians = racing.race(contestants, lambda name: limits.append(name) or len(limits), ["read", "dot"], seconds)
        return contestants, medians, limits

    def test_order_turns_round_and_medians_hold(self):
        calls = []
        found, medians, _ = self.race(Stub("a", [0.1, 0.1, 0.3, 0.1, 0.1], calls), Stub("b", [0.12], calls))
        self.assertEqual([name for name, _ in calls], ["a", "b", "b", "a", "a", "b"])
        self.assertEqual(found[0].median(0), 0.1)
        self.assertEqual(found[1].median(1), 0.24)
        self.assertEqual(medians, {"read": 3, "dot": 4})

    def test_short_calls_are_warmed_and_counted_in_batches(self):
        calls = []
        found, _, _ = self.race(Stub("a", [2.0**-17], calls))
        self.assertEqual(calls[:4], [("a", 100), ("a", 394)] * 2)  # of 7.6 us: a batch of at least 3 ms
        self.assertEqual(found[0].median(0), 2.0**-17)
        self.assertEqual(len(found[0].samples), racing.MOST)

    def test_what_is_too_slow_is_sampled_once(self):
        found, _, _ = self.race(Stub("a", [0.1], []), Stub("slow", [3.0], []))
        self.assertEqual([len(each.samples) for each in found], [3, 1])

    def test_a_track_leaves_out_and_says_so(self):
        notes, limits = [], type("Limits", (), {"instruction": lambda *_: "dot", "sample": lambda *_: 1e9})()
        peers = [Stub("ours", [1.0], []), Stub("peer", [2.0], []), Stub("slow", [4.0], []), Stub("absent", [1.0], [])]
        track = racing.Track(peers, limits, "isa", {"source": "race"}, notes.append)
        first, second = track.run("int4", {"N": 8, "K": 64}, [1, 2], 1000, 0.1, 7.0)
        self.assertEqual([each["candidate"] for each in first], ["ours", "peer", "slow"])
        self.assertEqual([each["candidate"] for each in second], ["ours", "peer"])
        self.assertEqual(first[0]["over"], {"peer v": 2.0, "slow v": 4.0})
        self.assertEqual(notes, ["absent, int4, 8 x 64: has no such thing", "slow v, int4, 8 x 64, M = 2: would take more than 7 s a call"])
        self.assertLess(first[0]["nmse"], 1e-14)
        self.assertEqual(second[1]["fraction_of_peak"], 2 * 2 * 8 * 64 / 2.0 / 1e9)

    def test_a_track_of_experts(self):
        notes, limits = [], type("Limits", (), {"instruction": lambda *_: "dot", "sample": lambda *_: 1e9})()
        peers = [Stub("ours", [1.0], [], mixtures=True), Stub("plain", [1.0], [])]
        shape = {"N": 8, "K": 64, "experts": 5, "top_k": 2}
        ((record,),) = racing.Track(peers, limits, "isa", {}, notes.append).run("mxfp4", shape, [1], 1000, 0.1, 7.0)
        self.assertEqual(notes, ["plain, mxfp4, 8 x 64, 2 of 5 experts: it multiplies by no mixtures of experts here"])
        self.assertLess(record["nmse"], 1e-14)
        self.assertEqual([record[key] for key in ("M", "N", "experts", "top_k", "distinct_experts")], [1, 8, 5, 2, 2])
        self.assertEqual(record["fraction_of_peak"], 2 * 2 * 8 * 64 / 1e9)
        self.assertEqual(record["weight_bytes"], 2 * 8 * 64 * 4.25 / 8)


class PagesTest(unittest.TestCase):
    RECORDS = [record(variant=variant, compute=variant, M=m, gflops=rate * m, over={"peer v": 2.5}) for variant, rate in (("int8", 100.0), ("bf16", 80.0)) for m in (1, 8)]
    RECORDS += [record(candidate="peer", variant="v", M=m, gflops=40.0 * m, about="another") for m in (1, 8)]

    def test_row(self):
        race = self.RECORDS[0], self.RECORDS[4]
        self.assertTrue(pages.row(race[1], race).endswith("2.50 int8"))
        self.assertIn(" 1 ms      2 ms   50.0    100.0  0.90 read ", pages.row(race[0], race))

    def test_times(self):
        self.assertEqual([pages.seconds_text(each) for each in (2, 0.0123, 4.5e-5, 2e-7)], ["2 s", "12.3 ms", "45 us", "0.2 us"])

    def test_ticks(self):
        self.assertEqual(ticks(1, 10), [1, 2, 5, 10])
        self.assertLessEqual(len(ticks(1e-3, 1e5)), 9)

    def test_the_roofline_shows_every_record(self):
        circles = xml.etree.ElementTree.fromstring(pages.roofline(self.RECORDS)).iter("{http://www.w3.org/2000/svg}circle")
        places = [(float(each.get("cx")), float(each.get("cy"))) for each in circles]
        self.assertEqual(sum(x > 800 for x, _ in places), 3)  # of the legend
        self.assertEqual(sum(x <= 800 for x, _ in places), len(self.RECORDS))
        self.assertTrue(all(84 <= x <= 800 and 64 <= y <= 470 for x, y in places if x <= 800), places)

    def test_a_point_above_the_axis_is_an_arrowhead(self):
        def marks(y):
            chart = Chart("title", ("x", 1, 2, []), ("y", 1, 2, []))
            chart.mark(1.5, y, "#000", True, "words")
            shapes = [each for each in xml.etree.ElementTree.fromstring(chart.svg()) if len(each)]
            return [each.tag.rpartition("}")[2] for each in shapes]

        self.assertEqual((marks(2), marks(2.01)), (["circle"], ["path"]))

    def test_notes_fit_beside_the_drawing(self):
        chart = Chart("title", ("x", 1, 2, [1]), ("y", 1, 2, [1]))
        chart.notes("at the upper edge: far beyond this axis", "short")
        texts = [each for each in xml.etree.ElementTree.fromstring(chart.svg()).iter("{http://www.w3.org/2000/svg}text") if each.get("font-size") == "11"]
        self.assertEqual(" ".join(each.text for each in texts), "at the upper edge: far beyond this axis short")
        for each in texts:
            self.assertLess(float(each.get("x")) + 6.1 * len(each.text), 980, each.text)

    def test_the_page_keeps_its_words(self):
        page = (TOP / "docs" / "performance.md").read_text("utf-8")
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "performance.md"
            copy.write_text(page, "utf-8")
            written = pages.write_docs(copy, self.RECORDS)
            text = copy.read_text("utf-8")
            self.assertTrue(all(path.exists() for path in written))
        self.assertIn("| native | mxfp4 | 64 x 128 | bf16 | 1 ms, 0.90 r, 2.50 | 1 ms, 0.90 r, 2.50 |", text)
        self.assertIn("![roofline](performance/roofline.svg)", text)
        self.assertIn("a processor, 2 threads, 2026-01-02.", text)
        self.assertEqual(pages.PART.sub("", text), pages.PART.sub("", page))


class OutputsTest(unittest.TestCase):
    def test_what_is_there_stays_without_force(self):
        with tempfile.TemporaryDirectory() as folder:
            file, link = pathlib.Path(folder) / "records.jsonl", pathlib.Path(folder) / "link"
            file.write_text("precious")
            link.symlink_to(file)
            for path, force in ((file, False), (link, False), (link, True)):
                with self.assertRaisesRegex(SystemExit, "is there already"):
                    records.opened(path, force)
            self.assertEqual(file.read_text(), "precious")
            with records.opened(file, True) as opened:
                opened.write("new")
            self.assertEqual(file.read_text(), "new")


class WholeTest(unittest.TestCase):
    def test_a_small_race(self):
        """Ours, and what of the others is installed: none is slower by lower accuracy."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "records.jsonl"
            # A ggml that ./dev bench --compare or the suite ggml has left here.
            ggml = [each for place in ("compare/llama", "env/ggml") for each in (TOP / "build" / place).glob("**/libggml-cpu.so")]
            run = [sys.executable, "-B", COMPARE, f"--build={BUILD}", *(f"--ggml={each.parent}" for each in ggml[:1])]
            shown = subprocess.run([*run, "--quick", "--shapes=96x256,96x256x6x2", "--formats=mxfp4,int4,int4-zeros", "-m=1,5", "--seconds=0.001", "--rotation=0.1",
                                    f"--json={file}"], capture_output=True, text=True)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            found = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
            ours = [each for each in found if each["candidate"] == "ours"]
            self.assertEqual([(each["format"], each.get("experts"), each["M"], each["compute"]) for each in ours],
                             [(fmt, experts, m, compute) for fmt in ("mxfp4", "int4", "int4-zeros") for experts in (None, 6) for m in (1, 5)
                              for compute in ("int8", "bf16", "f32")])
            for each in found:
                bound = {"int8": 5e-4, "f32": 1e-11}.get(each["compute"], 1e-11 if each["candidate"] == "ours" else 1e-3)
                self.assertLess(each["nmse"], bound, each)
                self.assertGreater(min(each["seconds"], each["read_gbytes_per_s"], each["peak_gflops"]), 0, each)
        print("candidates:", ", ".join(dict.fromkeys(each["candidate"] for each in found)))

    def test_a_wrong_product_is_exit_status_1(self):
        for nmse_of, status in ((4e-4, 0), (6e-4, 1), (float("nan"), 1)):
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
                file.write(json.dumps(record(nmse=nmse_of)) + "\n")
                file.flush()
                shown = subprocess.run([sys.executable, "-B", COMPARE, f"--from={file.name}"], capture_output=True, text=True)
            self.assertEqual((shown.returncode, "WRONG: ours int8, mxfp4, 64 x 128, M = 1" in shown.stderr), (status, status == 1), shown.stderr)

    def test_a_name_that_is_none(self):
        shown = subprocess.run([sys.executable, "-B", COMPARE, "--formats=mxfp5"], capture_output=True, text=True)
        self.assertEqual(shown.returncode, 2)
        self.assertIn("no mxfp5; there are: mxfp4, nvfp4", shown.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
