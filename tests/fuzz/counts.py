"""How many inputs the fuzz targets have executed without a failure, by state of the sources.

Counts of this build folder are in its executions.json; tests/fuzz/executions.json has those that were kept. A state
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
    return {"executions": before["executions"] + new["executions"], "edges": max(before["edges"], new["edges"]), "date": new["date"]}


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
