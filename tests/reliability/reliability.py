"""The table of all campaigns: what each demands, what it has reached, and the command that shows it.

usage: reliability.py [--long] [ROW...]

Without --long each campaign runs its short form, and the table is printed. With --long the demands are those of a release, and
the table goes into docs/reliability.md, row by row: a long run can be several shorter ones. Exit status 1 where a row falls short;
build/reliability/ROW.log then has the output of its commands.
"""

import dataclasses
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from rows import ROWS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reliability.md"
HEAD = "| row | campaign | demanded | reached | date | command |\n|---|---|---|---|---|---|\n"
TABLE = re.compile(r"(<!-- begin: ./dev reliability --long -->\n)(.*?)(<!-- end: )", re.S)
HOURS = 3600


@dataclasses.dataclass
class Reached:
    """What commands have shown: tests by their outcome, the cases that they counted, and what they printed."""

    passed: int = 0
    failed: int = 0
    cases: int = 0
    printed: str = ""
    why_not: str = ""

    def add_report(self, report):
        """The outcomes and cases of a report of GoogleTest."""
        for test in (test for suite in json.loads(report)["testsuites"] for test in suite["testsuite"]):
            self.cases += sum(int(test.get(key, 0)) for key in ("cases", "allocations"))
            if test.get("failures"):
                self.fail(f"{test['classname']}.{test['name']} failed")
            elif test["result"] != "SKIPPED":
                self.passed += 1

    def fail(self, why):
        self.failed += 1
        self.why_not = self.why_not or why.replace(f"{ROOT}/", "")[:160]

    def run(self, command, long):
        """Runs one line of a shell. A GoogleTest program says itself what it counted; of others the exit status counts."""
        environment = os.environ | ({"METAL_MARLIN_WHOLE": "1"} if long else {})
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            line = command + (f" --gtest_output=json:{report}" if "--gtest_filter" in command else "")
            try:
                done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * HOURS)
            except subprocess.TimeoutExpired:
                return self.fail("no end after two hours")
            self.printed += done.stdout + done.stderr
            if report.exists():
                self.add_report(report.read_text())
            elif done.returncode == 0:
                self.passed += 1
            if done.returncode != 0 and self.failed == 0:
                last = ((done.stdout + done.stderr).strip().splitlines() or ["nothing was printed"])[-1]
                self.fail(f"exit status {done.returncode}: {last}")


def line_of(row, long):
    """Runs the commands of a row: its line of the table, and whether it reached enough."""
    reached = Reached()
    for command in row.commands(long):
        reached.run(command, long)
    figure = row.measure(reached)
    enough = reached.failed == 0 and reached.passed > 0 and figure >= row.demanded(long)
    text = f"{figure:,} {row.unit}{row.also()}, {reached.failed} failed" + (f" ({reached.why_not})" if reached.why_not else "")
    if not enough:
        text = f"**falls short:** {text}"
        log = ROOT / "build/reliability" / f"{row.number}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(reached.printed)
        print(f"row {row.number} falls short; the output of its commands is in {log.relative_to(ROOT)}", file=sys.stderr)
    commands = " && ".join(f"`{command}`" for command in row.commands(long))
    cells = [row.number, row.campaign, row.demand(long), text, datetime.date.today().isoformat(), commands]
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |", enough


def write_page(line):
    """Puts this row into the page, and keeps the others that it has."""
    page = PAGE.read_text()
    rows = {each.split("|")[1].strip(): each for each in [*TABLE.search(page)[2].splitlines(), line] if re.match(r"\| \d", each)}
    ordered = [rows[row.number] for row in ROWS if row.number in rows]
    PAGE.write_text(TABLE.sub(lambda found: found[1] + HEAD + "\n".join(ordered) + "\n" + found[3], page))


def main(arguments):
    long = "--long" in arguments
    wanted = [a for a in arguments if a != "--long"]
    unknown = set(wanted) - {row.number for row in ROWS}
    if unknown:
        sys.exit(f"reliability: there is no row {sorted(unknown)[0]}; there are {', '.join(row.number for row in ROWS)}")
    print(HEAD, end="")
    status = 0
    for row in (row for row in ROWS if not wanted or row.number in wanted):
        line, enough = line_of(row, long)
        print(line, flush=True)
        status = status if enough else 1
        if long:
            write_page(line)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
