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
BEGIN, END = "<!-- begin: ./dev reliability --long -->", "<!-- end: ./dev reliability --long -->"
HEAD = "| row | campaign | demanded | reached | date | command |\n|---|---|---|---|---|---|\n"
HOURS = 3600


@dataclasses.dataclass
class Reached:
    """What a command has shown: tests by their outcome, the cases that they counted, and what it printed."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    cases: int = 0
    printed: str = ""
    why_not: str = ""

    def __add__(self, other):
        numbers = [a + b for a, b in zip(dataclasses.astuple(self)[:4], dataclasses.astuple(other)[:4])]
        return Reached(*numbers, self.printed + other.printed, self.why_not or other.why_not)


def counted(report):
    """The outcomes and cases of a report of GoogleTest."""
    reached = Reached()
    for suite in json.loads(report.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            if test.get("failures"):
                reached.failed += 1
                reached.why_not = reached.why_not or f"{test['classname']}.{test['name']} failed"
            elif test["result"] == "SKIPPED":
                reached.skipped += 1
            else:
                reached.passed += 1
            reached.cases += sum(int(test.get(key, 0)) for key in ("cases", "allocations"))
    return reached


def run(command, long):
    """Runs one line of a shell. A GoogleTest program says itself what it counted; of others the exit status counts."""
    environment = os.environ | ({"METAL_MARLIN_WHOLE": "1"} if long else {})
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        google = "--gtest_filter" in command
        line = command + (f" --gtest_output=json:{report}" if google else "")
        try:
            done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * HOURS)
        except subprocess.TimeoutExpired:
            return Reached(failed=1, why_not="no end after two hours")
        said = done.stdout + done.stderr
        if google and report.exists():
            reached = counted(report)
            reached.printed = said
            if done.returncode != 0 and reached.failed == 0:
                reached.failed, reached.why_not = 1, f"exit status {done.returncode}"
            return reached
        if done.returncode != 0:
            last = (said.strip().splitlines() or ["nothing was printed"])[-1]
            return Reached(failed=1, printed=said, why_not=f"exit status {done.returncode}: {last}"[:160])
        return Reached(passed=1, printed=said)


def keep_output(number, printed):
    """The output of a row that falls short: a later run of the same tests replaces all other traces of it."""
    log = ROOT / "build/reliability" / f"{number}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(printed)
    print(f"row {number} falls short; the output of its commands is in {log.relative_to(ROOT)}", file=sys.stderr)


def judge(row, long):
    """Runs the commands of a row: the text of what they reached, and whether that is enough."""
    reached = Reached()
    for command in row.commands(long):
        reached += run(command, long)
    figure, demanded = row.figure(reached), row.demanded(long)
    enough = reached.failed == 0 and reached.passed > 0 and figure >= demanded
    reached.why_not = reached.why_not.replace(f"{ROOT}/", "")
    if not enough:
        keep_output(row.number, reached.printed)
    text = f"{row.say(figure, reached)}, {reached.failed} failed" + (f" ({reached.why_not})" if reached.why_not else "")
    return text, enough


def line_of(row, long):
    text, enough = judge(row, long)
    mark = text if enough else f"**falls short:** {text}"
    commands = " && ".join(f"`{command}`" for command in row.commands(long))
    cells = [row.number, row.campaign, row.demand(long), mark, datetime.date.today().isoformat(), commands]
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |", enough


def write_page(lines):
    """Puts these rows into the page, and keeps the others that it has."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    table, after = rest.split(END)
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if re.match(r"\| \d", line)}
    rows |= {line.split("|")[1].strip(): line for line in lines}
    for row in ROWS:
        open_row = [row.number, row.campaign, row.demand(True), "**no long run yet**", "", f"`./dev reliability --long {row.number}`"]
        rows.setdefault(row.number, "| " + " | ".join(open_row) + " |")
    ordered = sorted(rows.values(), key=lambda line: [int(part) for part in re.findall(r"\d+", line.split("|")[1])])
    PAGE.write_text(f"{before}{BEGIN}\n{HEAD}" + "\n".join(ordered) + f"\n{END}{after}")


def main(arguments):
    long = "--long" in arguments
    wanted = [a for a in arguments if a != "--long"]
    unknown = set(wanted) - {row.number for row in ROWS}
    if unknown:
        sys.exit(f"reliability: there is no row {sorted(unknown)[0]}; there are {', '.join(row.number for row in ROWS)}")
    print(HEAD, end="")
    all_enough = True
    for row in ROWS:
        if wanted and row.number not in wanted:
            continue
        line, enough = line_of(row, long)
        print(line, flush=True)
        all_enough = all_enough and enough
        if long:
            write_page([line])
    return 0 if all_enough else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
