#!/usr/bin/env python3
"""The tool that plants mistakes, tested on a small C++ file."""
import pathlib
import subprocess
import sys
import tempfile

import campaign
import edits
import mutate

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from told import run_tests  # noqa: E402

SOURCE = b"""\
#include <array>
namespace {
constexpr int kTwo = 1 + 1;
struct Counter { int value = 0; void add(int n) { value += n; } };
}
int clamp(int x, int most) {
  std::array<int, 3 + 1> unused{};
  (void)unused;
  if (x < 0) return 0;
  if (x > most && most > 0) {  // a comment stays on its line
    x = most;
  }
  return x;
}
int count(int from, int to) {
  Counter counter;
  for (int i = from; i < to; ++i)
    counter.add(1);
  return counter.value * kTwo;
}
int difference(int a, int b) { return count(a, b); }
int unreached(int x) { switch (x) { case 7: return x + 1; default: return 0; } }
int endless(int n) {
  int i = 0;
  while (i != n) i += 1;
  return i;
}
int at(const int* numbers, bool none) {
  if (none) return 0;
  return *numbers;
}
"""

TEST = """\
#include <gtest/gtest.h>
int clamp(int, int); int difference(int, int); int endless(int); int at(const int*, bool);
TEST(Clamp, Clamps) { EXPECT_EQ(clamp(5, 3), 3); EXPECT_EQ(clamp(-2, 3), 0); EXPECT_EQ(clamp(2, 3), 2); }
TEST(Difference, IsTwice) { EXPECT_EQ(difference(1, 4), 6); }
TEST(Endless, Ends) { EXPECT_EQ(endless(3), 3); }
TEST(At, MayBeNull) { EXPECT_EQ(at(nullptr, true), 0); }
"""


def texts(found, function):
    return {edit.text for edit in found if edit.function == function}


def test_edits_are_found_where_code_runs():
    found = edits.find("small.cc", SOURCE)
    assert texts(found, "clamp") == {
        "x < 0 -> x <= 0", "0 -> 0 + 1", "drop: return 0;", "0 -> 0 + 1 #2", "x > most && most > 0 -> (x > most) || (most > 0)",
        "x > most && most > 0 -> x > most", "x > most && most > 0 -> most > 0", "x > most -> x >= most", "most > 0 -> most >= 0",
        "0 -> 0 + 1 #3", "drop: x = most;"}, texts(found, "clamp")
    assert "x + 1 -> x - 1" in texts(found, "unreached")
    assert not any("7" in text for text in texts(found, "unreached")), "a case label is constant"
    assert "count(a, b) -> count(b, a)" in texts(found, "difference")
    assert {edit.function for edit in found} == {"clamp", "add", "count", "difference", "unreached", "endless", "at"}


def test_lines_keep_their_numbers():
    found = edits.find("small.cc", SOURCE)
    for number, edit in enumerate(found):
        edit.number = number
    copy, places = edits.planted(SOURCE, found, "switch.h")
    lines, before = copy.split(b"\n")[2:], SOURCE.split(b"\n")
    assert len(lines) == len(before)
    for begin, end, edit in places:
        assert f"on({edit.number})".encode() in copy[begin:end]
        assert f"on({edit.number})".encode() in lines[edit.line - 1]


def test_a_run_kills_and_tells_survivors():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        found = edits.find("small.cc", SOURCE)
        for number, edit in enumerate(found):
            edit.number = number
        (folder / "small.cc").write_bytes(edits.planted(SOURCE, found, HERE / "switch.h")[0])
        (folder / "test.cc").write_text(TEST)
        program = folder / "small_test"
        campaign.GRACE = 1
        subprocess.run(["c++", "-std=c++20", "-w", folder / "small.cc", folder / "test.cc", HERE / "reached.cc", "-o", program,
                        "-lgtest", "-lgtest_main", "-pthread"], check=True)
        of_edit = campaign.reached([program], {}, len(found), folder, 1, lambda text: None)
        outcome = {(edit.function, edit.text): campaign.run_edit(edit.number, of_edit[edit.number], 10, folder) for edit in found}
        by = {key: verdict.by for key, verdict in outcome.items() if verdict.killed}
        assert by["clamp", "drop: x = most;"] == "Clamp.Clamps"
        assert by["difference", "count(a, b) -> count(b, a)"] == "Difference.IsTwice"
        assert by["endless", "drop: i += 1;"] == "Endless.Ends does not end"
        assert by["at", "drop: return 0;"] == "At.MayBeNull ends with SIGSEGV"
        alive = {key: verdict.by for key, verdict in outcome.items() if not verdict.killed}
        assert alive.pop(("clamp", "x < 0 -> x <= 0")) == "1 tests pass", "it changes nothing"
        assert alive.pop(("clamp", "x > most -> x >= most")) == "1 tests pass", "nor does this"
        assert {why for (function, _), why in alive.items() if function == "unreached"} == {"no test reaches it"}
        assert ("count", "i < to -> i <= to") in by and ("add", "value += n -> value -= n") in by


def test_equivalent_edits_need_a_reason():
    known = mutate.equivalents("# about\na.cc\tf\ta < b -> a <= b\n  equal numbers leave earlier\n")
    assert known == {"a.cc\nf\na < b -> a <= b": "equal numbers leave earlier"}
    try:
        mutate.equivalents("a.cc\tf\ta < b -> a <= b\n")
    except SystemExit as error:
        assert "why" in str(error)
    else:
        raise AssertionError("an entry without a reason was read")


if __name__ == "__main__":
    tests = [(name, lambda _, each=each: each()) for name, each in globals().items() if name.startswith("test_")]
    sys.exit(run_tests(tests) > 0)
