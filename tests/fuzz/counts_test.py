"""Executions of other machines count once, under their state of the sources, and a failure takes its target's away."""

import pathlib
import tempfile
import unittest

import away
import counts

TARGETS = ("gguf", "pack")


def summary(run, state, executions, failed=()):
    targets = [{"target": target, "executions": executions, "edges": 7, "failed": target in failed} for target in TARGETS]
    return {"run": run, "state": state, "date": "2026-01-01", "targets": targets}


class Counts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.build = self.root / "build/fuzz"
        for folder in (self.build, self.root / "tests/fuzz"):
            folder.mkdir(parents=True)

    def total(self, state=None):
        return counts.executions(self.root, self.build, state)

    def test_states_add_up_and_stay_apart(self):
        self.assertEqual(counts.take_in(self.root, summary("1", "old", 5)), "")
        self.assertEqual(counts.take_in(self.root, summary("2", "new", 3)), "")
        self.assertEqual(counts.take_in(self.root, summary("3", "new", 4)), "")
        self.assertEqual(self.total(), {"gguf": 12, "pack": 12})
        self.assertEqual(self.total("new"), {"gguf": 7, "pack": 7})

    def test_a_run_counts_once(self):
        self.assertEqual(counts.take_in(self.root, summary("1", "old", 5)), "")
        self.assertIn("counted already", counts.take_in(self.root, summary("1", "old", 5)))
        self.assertEqual(self.total(), {"gguf": 5, "pack": 5})

    def test_a_failure_takes_its_target_away(self):
        self.assertEqual(counts.take_in(self.root, summary("1", "old", 5)), "")
        self.assertEqual(counts.take_in(self.root, summary("2", "new", 3, failed=("pack",))), "")
        self.assertEqual(self.total(), {"gguf": 8})

    def test_what_is_moved_keeps_its_runs(self):
        (self.root / "src").mkdir()
        counts.add(self.root, self.build, [{"target": "gguf", "executions": 2, "edges": 9, "date": "2026-01-02", "failed": False}])
        counts.take_in(self.root, summary("1", counts.state(self.root), 5))
        counts.keep(self.root, self.build)
        self.assertEqual(self.total(counts.state(self.root)), {"gguf": 7, "pack": 5})
        self.assertIn("counted already", counts.take_in(self.root, summary("1", "old", 5)))


class Order(unittest.TestCase):
    def test_the_shortest_way_comes_first(self):
        campaign = away.Campaign(pathlib.Path("."), pathlib.Path("."), 1000, 4)
        campaign.counted = {"gguf": away.GOAL}
        taken = [campaign.take()[0] for _ in range(40)]
        self.assertEqual(taken[0], "safetensors")
        self.assertEqual(taken.count("safetensors"), 10)  # slices of 45 s that 10,050,000 executions take
        self.assertNotIn("gguf", taken)
        for result in campaign.results.values():
            result["executions"] = away.GOAL
        self.assertIsNone(campaign.take())

    def test_the_last_target_is_shared_by_all_workers(self):
        campaign = away.Campaign(pathlib.Path("."), pathlib.Path("."), 1000, 4)
        campaign.counted = dict.fromkeys(campaign.results, away.GOAL) | {"convert": away.GOAL - 4000}
        target, _, seconds, executions = campaign.take()
        self.assertEqual((target, executions), ("convert", 1001))
        self.assertGreater(seconds, away.SLICE)


if __name__ == "__main__":
    unittest.main()
