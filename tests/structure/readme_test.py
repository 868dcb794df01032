#!/usr/bin/env python3
"""tests/readme.py refuses blocks that would break those behind them, links of pages lead somewhere, and the README has the figures of the pages that
measured them."""

import collections
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def table(page, *head):
    """The rows of the table of a page whose first line begins with these cells, each as {cell of the first line: cell}."""
    lines = iter((TOP / page).read_text().splitlines())
    cells = lambda line: [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
    names = next(found for found in map(cells, lines) if found[: len(head)] == list(head))
    next(lines)
    return [dict(zip(names, cells(line))) for line in itertools.takewhile(lambda line: line.startswith("|"), lines)]


class Blocks(unittest.TestCase):
    def said(self, mark, text):
        """What the program says of a page with this block; nothing if it takes the page."""
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text(f"# A page\n\n<!-- {mark} -->\n```sh\n{text}\n```\n")
            program = [sys.executable, "-B", str(TOP / "tests/readme.py"), "count", str(page), "sh=1"]
            return subprocess.run(program, stderr=subprocess.PIPE, text=True).stderr

    def test_a_change_of_folder_is_refused_whoever_runs_the_block(self):
        for mark in ("hello rust", "hello rust, run by the suite rust", "not run: a reason"):
            for text in ("cd bindings/rust", "make && cd bindings/rust", "  cd x; make", "pushd x", "(true) && cd x"):
                self.assertIn("write (cd FOLDER && COMMAND)", self.said(mark, text), (mark, text))

    def test_a_subshell_may_change_its_folder(self):
        for text in ("(cd bindings/rust && cargo run)", "(true && cd x && make)", "abcd x", "echo cd", "ls $(cd x && pwd)"):
            self.assertEqual(self.said("hello rust", text), "", text)


def anchors(page):
    """What a link may name of a page: its headings, as GitHub makes anchors of them."""
    found, seen = [], collections.Counter()
    for heading in re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower())
        anchor = words.replace(" ", "-")
        found.append(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def broken_links(pages):
    """The relative links of the pages that lead nowhere."""
    broken = []
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text()))):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if re.match(r"[a-z]+:", link) or target.is_dir():
                continue
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                broken.append(f"{page}: {link}")
    return broken


class Links(unittest.TestCase):
    def test_lead_somewhere(self):
        listed = subprocess.run(["git", "-C", TOP, "ls-files", "*.md"], stdout=subprocess.PIPE, text=True).stdout.split()
        pages = [TOP / name for name in listed if (TOP / name).exists()] or sorted((TOP / "docs").rglob("*.md"))
        self.assertGreater(len(pages), 20)
        self.assertEqual(broken_links(pages), [])

    def test_that_lead_nowhere_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text("# A `b` c\n[1](page.md#a-b-c) [2](#a-b) [3](other.md) [4](https://example.org/x)\n```\n[5](no)\n```\n")
            self.assertEqual(broken_links([page]), [f"{page}: #a-b", f"{page}: other.md"])


class Figures(unittest.TestCase):
    def test_of_the_chat(self):
        measured = {(row["file"], row["work"]): row for row in table("docs/llm.md", "file", "work", "ours int8")}
        rows = table("README.md", "file", "compute")
        self.assertEqual(len(rows), 4)
        for row in rows:
            name = "ours int8 / best other" if "int8" in row["compute"] else "ours default / best other"
            for work, column in (("pp128", "prompt of 128 tokens"), ("tg64", "generation")):
                figure = float(measured[row["file"].split(",")[0], work][name])
                self.assertEqual(float(row[column].removesuffix(" times as fast")), float(f"{figure:.2g}"), (row, work))


if __name__ == "__main__":
    unittest.main()
