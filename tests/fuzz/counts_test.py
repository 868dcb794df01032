"""Executions add up by the state of their sources, and a failure takes its target's away."""

import pathlib
import tempfile
import unittest

import counts


def results(executions, failed=()):
    return [{"target": target, "executions": executions, "edges": 7, "date": "2026-01-01", "failed": target in failed} for target in ("gguf", "pack")]


class Counts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.build = self.root / "build/fuzz"
        for made in (self.build, self.root / "tests/fuzz", self.root / "src"):
            made.mkdir(parents=True)

    def add(self, source, *args):
        """Of sources with this text; returns their state."""
        (self.root / "src/a.cc").write_text(source)
        counts.add(self.root, self.build, results(*args))
        return counts.state(self.root)

    def total(self, state=None):
        return counts.executions(self.root, self.build, state)

    def test_states_add_up_and_stay_apart(self):
        self.add("old", 5)
        self.add("new", 3)
        new = self.add("new", 4)
        self.assertEqual(self.total(), {"gguf": 12, "pack": 12})
        self.assertEqual(self.total(new), {"gguf": 7, "pack": 7})

    def test_a_failure_takes_its_target_away(self):
        self.add("old", 5)
        counts.keep(self.root, self.build)
        self.add("new", 3, ("pack",))
        self.assertEqual(self.total(), {"gguf": 8})

    def test_what_is_kept_adds_to_what_was_kept(self):
        for executions in (5, 2):
            state = self.add("same", executions)
            counts.keep(self.root, self.build)
            self.assertFalse((self.build / "executions.json").exists())
        self.assertEqual(self.total(state), {"gguf": 7, "pack": 7})


if __name__ == "__main__":
    unittest.main()
