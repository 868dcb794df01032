"""How many inputs the fuzz targets have executed without a failure, by state of the sources.

Counts of this build folder are in its executions.json; tests/fuzz/executions.json has those that came from elsewhere. A state
is a hash of what the targets are built from.
"""

import hashlib
import json

BUILT_FROM = ("include", "src", "tools", "tests/fuzz")


def state(root):
    digest = hashlib.sha256()
    for folder in BUILT_FROM:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cc", ".c", ".h", ".hpp", ".inc") and path.is_file():
                digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def read(path):
    return json.loads(path.read_text()) if path.exists() else {}


def write(path, counts):
    """One state a line."""
    rows = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(counts.items()) if value]
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def files(root, build):
    return build / "executions.json", root / "tests/fuzz/executions.json"


def forget(root, build, target):
    """A failure takes the executions of its target away, everywhere."""
    for path in files(root, build):
        counts = read(path)
        for one in counts.values():
            one.pop(target, None)
        if path.exists():
            write(path, counts)


def added(old, new):
    """The counts of one target in one state, with those of a later run."""
    before = old or {"executions": 0, "edges": 0}
    runs = before.get("runs", []) + new.get("runs", [])
    sum_ = {"executions": before["executions"] + new["executions"], "edges": max(before["edges"], new["edges"]), "date": new["date"]}
    return sum_ | ({"runs": runs} if runs else {})


def add(root, build, results):
    """Adds executions without a failure."""
    for failed in [result for result in results if result["failed"]]:
        forget(root, build, failed["target"])
    here, _ = files(root, build)
    counts = read(here)
    now = counts.setdefault(state(root), {})
    for result in [result for result in results if not result["failed"]]:
        now[result["target"]] = added(now.get(result["target"]), result)
    write(here, counts)


def take_in(root, summary):
    """Adds the executions of a run on another machine (away.py) to those of the repository, under the state of the sources that its
    programs were built from. Returns why not, if not: a run counts once.
    """
    build = root / "build/fuzz"
    kept = files(root, build)[1]
    counts, run = read(kept), summary["run"]
    if any(run in one.get("runs", []) for targets in counts.values() for one in targets.values()):
        return f"the executions of run {run} are counted already"
    of_state = counts.setdefault(summary["state"], {})
    for result in [result for result in summary["targets"] if not result["failed"] and result["executions"]]:
        new = {"executions": result["executions"], "edges": result["edges"], "date": summary["date"], "runs": [run]}
        of_state[result["target"]] = added(of_state.get(result["target"]), new)
    write(kept, counts)
    for failed in [result for result in summary["targets"] if result["failed"]]:
        forget(root, build, failed["target"])
    return ""


def keep(root, build):
    """Moves the counts of this build folder to those of the repository."""
    here, kept = files(root, build)
    counts = read(kept)
    for name, targets in read(here).items():
        for target, new in targets.items():
            of_state = counts.setdefault(name, {})
            of_state[target] = added(of_state.get(target), new)
    write(kept, counts)
    here.unlink(missing_ok=True)


def executions(root, build, of_state=None):
    """Of each target, over all states or of one."""
    total = {}
    for path in files(root, build):
        for name, targets in read(path).items():
            for target, one in targets.items():
                if of_state in (None, name):
                    total[target] = total.get(target, 0) + one["executions"]
    return total
