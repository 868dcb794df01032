"""Runs the campaigns of docs/reliability.md, whose table is the only list of them, and writes what they reached into it.

usage: reliability.py [--targets] [ROW...]

A row says how much is demanded, and the commands that show it, which run in their long form (METAL_MARLIN_WHOLE=1). Without rows,
all run. --targets only prints the presets and the targets that the commands want built, a line for each preset. Exit status 1
where a row falls short; build/reliability/ROW.log then has the output of its commands. A row that needs what a machine has not
falls short there, and says why.
"""

import collections
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reliability.md"
CASES = ("files", "calls", "products", "runs", "loops", "children")  # what tests count themselves; of all else, tests count
HOURS = 3600


class Row:
    def __init__(self, line):
        self.number, self.campaign, self.demand, _, _, shown = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        self.commands = re.findall("`([^`]+)`", shown)
        figure, self.unit = re.match(r"([\d,]+) (.*?),", self.demand).groups()
        self.least = int(figure.replace(",", ""))
        self.passed = self.failed = self.cases = self.told = 0
        self.log = self.why_not = ""

    def fail(self, why):
        self.failed += 1
        self.why_not = self.why_not or why.replace(f"{ROOT}/", "")[:160]

    def add_report(self, report):
        """The outcomes and cases of a report of GoogleTest."""
        for test in (test for suite in json.loads(report)["testsuites"] for test in suite["testsuite"]):
            self.cases += sum(int(test.get(key, 0)) for key in ("cases", "allocations"))
            if test.get("failures"):
                self.fail(f"{test['classname']}.{test['name']} failed")
            elif test["result"] != "SKIPPED":
                self.passed += 1

    def run(self, command):
        """Runs one line of a shell. A GoogleTest program says itself what it counted; of others the exit status counts, and a
        number that they print in front of the row's unit or, for suites, of "passed"."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            line = command + (f" --gtest_output=json:{report}" if "--gtest_filter" in command else "")
            try:
                done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=os.environ | {"METAL_MARLIN_WHOLE": "1"}, capture_output=True,
                                      text=True, timeout=2 * HOURS)
            except subprocess.TimeoutExpired:
                return self.fail("no end after two hours")
            said = done.stdout + done.stderr
            self.log += said
            if report.exists():
                self.add_report(report.read_text())
            else:
                self.passed += done.returncode == 0
                printed = rf"(-?\d+) {re.escape(self.unit)}|(\d+) passed, \d+ failed, \d+ skipped$"
                self.told += sum(int(a or b) for a, b in re.findall(printed, said, re.M))
            if done.returncode != 0 and self.failed == 0:
                self.fail(f"exit status {done.returncode}: {(said.strip().splitlines() or ['nothing was printed'])[-1]}")

    def line(self):
        """The row with what it has reached, and whether that is enough."""
        for command in self.commands:
            self.run(command)
        figure = self.told or (self.cases if self.unit in CASES else self.passed)
        enough = self.failed == 0 and self.passed > 0 and figure >= self.least
        text = f"{figure:,} {self.unit}, {self.failed} failed" + (f" ({self.why_not})" if self.why_not else "")
        if not enough:
            text = f"**falls short:** {text}"
            log = ROOT / "build/reliability" / f"{self.number}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(self.log)
            print(f"row {self.number} falls short; the output of its commands is in {log.relative_to(ROOT)}", file=sys.stderr)
        cells = [self.number, self.campaign, self.demand, text.replace("|", "\\|"), datetime.date.today().isoformat(),
                 " && ".join(f"`{command}`" for command in self.commands)]
        return f"| {' | '.join(cells)} |", enough


def targets(rows):
    """What the commands run, as targets of a build, by its preset."""
    found = collections.defaultdict(set)
    for command in (command for row in rows for command in row.commands):
        for tree, folder, program in re.findall(r"build/(release|tsan|integer)/tests/(\w+)(?:/(\w+))?", command):
            # Programs of the shader test-bed are no targets where it is not installed.
            found[tree.replace("release", "tests")].add(program if program and "testbed" not in program else f"tests/{folder}/all")
        if "build/release" in command:
            found["tests"] |= {"metal_marlin"} | ({"metal-marlin", "container_test"} if "programs.py" in command else set())
    return found


def main(arguments):
    wanted = [a for a in arguments if a != "--targets"]
    rows = {line: Row(line) for line in PAGE.read_text().splitlines() if re.match(r"\| \d[\d.]* \|", line)}
    unknown = set(wanted) - {row.number for row in rows.values()}
    if unknown:
        sys.exit(f"reliability: there is no row {sorted(unknown)[0]}; there are {', '.join(row.number for row in rows.values())}")
    rows = {line: row for line, row in rows.items() if not wanted or row.number in wanted}
    if "--targets" in arguments:
        for preset, names in targets(rows.values()).items():
            print(preset, *sorted(names))
        return 0
    status = 0
    for old, row in rows.items():
        line, enough = row.line()
        print(line, flush=True)
        PAGE.write_text(PAGE.read_text().replace(old, line))
        status = status if enough else 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
