#!/usr/bin/env python3
"""The model of the time on n ranks: what it is fitted to, what it is held against, its plan and its drawing."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "examples" / "distributed"))
import scaling_model as scaling  # noqa: E402

PROTOCOL = scaling.Protocol(3e-6, 20e9)
LINK = scaling.Link(PROTOCOL)


def measured(link=LINK, ranks=(2, 4), slow=1.0):
    """Records of a machine with this link. Layers of 1 row are `slow` times as slow as it lets them be."""
    records = []
    for n in ranks:
        records += [{"measured": "sum", "ranks": n, "bytes": size, "ms": 1e3 * link.sum(n, size)} for size in (4096, 65536, 1 << 20, 1 << 24)]
        for rows, alone in ((1, 0.1), (512, 4.0)):
            size = 16384 * rows
            records.append({"measured": "layer", "ranks": 1, "shards": n, "rows": rows, "format": "int4", "without_sums_ms": alone / n,
                            "layer_ms": alone / n, "bytes_of_a_sum": size})
            layer = alone / n + 2e3 * link.sum(n, size)
            records.append({"measured": "layer", "ranks": n, "shards": n, "rows": rows, "format": "int4", "without_sums_ms": 9.0,
                            "layer_ms": layer * (slow if rows == 1 else 1), "bytes_of_a_sum": size, "share_of_communication": 0.1})
    return records


class Model(unittest.TestCase):
    def test_a_ring(self):
        self.assertAlmostEqual(scaling.Link(scaling.Protocol(2.0, 10.0)).sum(4, 40), 2 * 3 * 2 + 2 * 3 / 4 * 40 / 10)
        self.assertEqual(LINK.sum(1, 1 << 20), 0)

    def test_the_link_is_found(self):
        ((points, link),) = scaling.systems(measured()).values()
        self.assertAlmostEqual(link.protocols[0].latency / PROTOCOL.latency, 1, 6)
        self.assertAlmostEqual(link.protocols[0].bandwidth / PROTOCOL.bandwidth, 1, 6)
        self.assertTrue(all(abs(point.error(link)) < 1e-6 for point in points))
        # Every second size of the sums is fitted, and no layer is.
        self.assertEqual(sorted(point.size for point in points if point.fitted), [4096, 4096, 1 << 20, 1 << 20])
        self.assertEqual(sum(point.name.startswith("layer") for point in points), 4)

    def test_two_protocols(self):
        link = scaling.Link(scaling.Protocol(3e-6, 8e9), scaling.Protocol(9e-6, 90e9), switch=1 << 18)
        points = [scaling.Point("sum", 2, 1 << power, link.sum(2, 1 << power)) for power in range(12, 25)]
        found = scaling.fit(points)
        for protocol, wanted in zip(found.protocols, link.protocols, strict=True):
            self.assertAlmostEqual(protocol.latency / wanted.latency, 1, 6)
            self.assertAlmostEqual(protocol.bandwidth / wanted.bandwidth, 1, 6)
        self.assertEqual(found.switch, link.switch)
        self.assertLess(max(abs(point.error(found)) for point in points), 1e-6)
        self.assertEqual(len(scaling.fit(points[:5]).protocols), 1)

    def test_a_chat(self):
        records = []
        for rows, alone in ((1, 2e-3), (16, 4e-3), (128, 2e-2), (512, 9e-2)):
            communication = 61 * LINK.sum(2, 2304 * rows) + LINK.gather(2, 196608)
            records.append({"measured": "chat", "ranks": 2, "rows": rows, "step_ms": 1e3 * (alone + communication), "sums": 61,
                            "share_of_communication": communication / (alone + communication), "bytes_of_a_sum": 2304 * rows, "bytes_gathered": 196608})
        ((points, link),) = scaling.systems(records).values()
        self.assertAlmostEqual(link.protocols[0].latency / PROTOCOL.latency, 1, 6)
        self.assertEqual([point.fitted for point in points], [True, False, True, False])
        self.assertTrue(all(abs(point.error(link)) < 1e-6 for point in points))

    def test_points_far_from_the_model_are_told(self):
        ((points, link),) = scaling.systems(measured(slow=1.3)).values()
        _, worst = scaling.report({"x": (points, link)})
        self.assertAlmostEqual(worst, 1 - 1 / 1.3, 6)
        for slow, status in ((1.1, 0), (1.3, 1)):
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "records"
                file.write_text("a word\n" + "\n".join(json.dumps(each) for each in measured(slow=slow)))
                sys.argv = ["scaling_model.py", str(file)]
                with contextlib.redirect_stdout(io.StringIO()), self.assertRaises(SystemExit) as end:
                    scaling.main()
                self.assertEqual(int(end.exception.code), status)

    def test_the_measured_table(self):
        layer = {"measured": "layer", "device": "X", "backend": "nccl", "format": "int4", "ranks": 2, "shards": 2, "rows": 16, "layer_ms": 0.25,
                 "products_ms": 0.125, "share_of_communication": 0.2}
        chat = {"measured": "chat", "ranks": 3, "rows": 1, "step_ms": 2.5, "share_of_communication": 0.5, "oversubscribed": True}
        alone = {**layer, "ranks": 1}  # a shard without the others
        self.assertEqual(scaling.measured([{**layer, "layer_ms": 9.0}, layer, chat, alone, {"measured": "right", "ranks": 2}]).splitlines()[2:],
                         ["| X, nccl | layer, int4 | 2 | 16 | 0.250 | 0.125 | 20 % |", "| CPU, MPI | chat | 3, taking turns | 1 | 2.500 |  | 50 % |"])

    def test_what_is_no_line(self):
        with self.assertRaisesRegex(ValueError, "a latency and a bandwidth above 0"):
            scaling.fit([scaling.Point("a", 2, 100, 2e-3), scaling.Point("b", 2, 100000, 1e-3)])
        taking_turns = [{**each, "oversubscribed": True} for each in measured()]
        self.assertEqual(scaling.systems(taking_turns), {})


class Plan(unittest.TestCase):
    cluster = scaling.Cluster(LINK, scaling.Link(scaling.Protocol(5e-6, 45e9)))
    layers = scaling.Layers(measured(ranks=(1, 2, 4)))

    def test_seconds_of_a_layer(self):
        self.assertAlmostEqual(self.layers.seconds(scaling.LLAMA_70B, 2, 1), 0.05e-3)
        self.assertAlmostEqual(self.layers.seconds(scaling.LLAMA_70B, 2, 512), 2e-3)
        between = self.layers.seconds(scaling.LLAMA_70B, 2, 16)
        self.assertTrue(0.05e-3 < between < 2e-3)
        self.assertGreater(self.layers.seconds(scaling.LLAMA_405B, 2, 1), 3 * 0.05e-3)

    def test_a_split_by_hand(self):
        split = scaling.split_of(scaling.LLAMA_70B, self.cluster, self.layers, 2, 2, 3, 1, 8192)
        reading = 8192 * scaling.LLAMA_70B.cache / 80 / 2 / 2.7e12
        token = 80 * (0.05e-3 + reading + 2 * LINK.sum(2, 16384)) + 2 * (5e-6 + 16384 / 45e9)
        self.assertAlmostEqual(split.token_seconds / token, 1)
        self.assertAlmostEqual(split.tokens_a_second, 3 * 2 / token)
        self.assertAlmostEqual(split.bytes_a_token, 2 * 80 / 2 * 16384 + 16384)

    def test_memory_and_limits(self):
        self.assertIsNone(scaling.split_of(scaling.LLAMA_405B, self.cluster, self.layers, 1, 2, 4, 1, 8192))
        best = [scaling.best_split(scaling.LLAMA_70B, self.cluster, self.layers, 64, limit, 8192) for limit in (0.008, 0.02, 0.1)]
        self.assertTrue(all(best))
        self.assertLessEqual(best[0].tokens_a_second, best[1].tokens_a_second)
        self.assertLessEqual(best[1].tokens_a_second, best[2].tokens_a_second)
        for split, limit in zip(best, (0.008, 0.02, 0.1)):
            self.assertLessEqual(split.token_seconds, limit)
            self.assertEqual(split.tensor * split.pipeline * split.data, 64)
        self.assertIsNone(scaling.best_split(scaling.LLAMA_70B, self.cluster, self.layers, 64, 1e-6, 8192))
        self.assertIn("| 1024 |", scaling.plan(scaling.LLAMA_70B, self.cluster, self.layers, (0.02, 0.1)))


class Page(unittest.TestCase):
    """docs/scaling.md has the table that the records give, and the model holds."""

    def setUp(self):
        if not scaling.RECORDS.exists():
            self.skipTest(f"{scaling.RECORDS.name} is not there: nothing was measured")
        self.texts, self.worst, self.found = scaling.sections(scaling.read([scaling.RECORDS]))

    def test_the_model_holds(self):
        self.assertLessEqual(self.worst, scaling.LIMIT, self.texts["points"])
        page = scaling.PAGE.read_text()
        for name, text in self.texts.items():
            self.assertEqual(scaling.written(page, name, text), page)

    def test_the_drawing(self):
        drawn = xml.etree.ElementTree.fromstring(scaling.drawing(self.found))
        titles = [each for each in drawn.iter("{http://www.w3.org/2000/svg}title")][1:]
        self.assertEqual(len(titles), sum(len(points) for points, _ in self.found.values()))
        self.assertEqual(scaling.DRAWING.read_text(), scaling.drawing(self.found))


class Told(unittest.TextTestResult):
    """Says of each test "passed NAME" or "FAILED NAME"."""

    def stopTest(self, test):
        super().stopTest(test)
        bad, without = (any(test is each for each, _ in those) for those in (self.failures + self.errors, self.skipped))
        print("FAILED" if bad else "skipped" if without else "passed", test.id().partition(".")[2].replace("_", " "))


if __name__ == "__main__":
    unittest.main(testRunner=unittest.TextTestRunner(resultclass=Told, verbosity=0))
