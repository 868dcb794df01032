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
    path.write_text(json.dumps({key: value for key, value in sorted(counts.items()) if value}, indent=1) + "\n")


def files(root, build):
    return build / "executions.json", root / "tests/fuzz/executions.json"


def add(root, build, results):
    """Adds executions without a failure; a failure takes those of the target away, everywhere."""
    here, kept = files(root, build)
    counts = read(here)
    for result in results:
        target, now = result["target"], counts.setdefault(state(root), {})
        if result["failed"]:
            for path, all_counts in ((here, counts), (kept, read(kept))):
                for one in all_counts.values():
                    one.pop(target, None)
                if path.exists():
                    write(path, all_counts)
            continue
        before = now.get(target, {"executions": 0})
        now[target] = {"executions": before["executions"] + result["executions"], "edges": result["edges"], "date": result["date"]}
    write(here, counts)


def keep(root, build):
    """Moves the counts of this build folder to those of the repository."""
    here, kept = files(root, build)
    counts = read(kept)
    for name, targets in read(here).items():
        for target, new in targets.items():
            old = counts.setdefault(name, {}).get(target, {"executions": 0})
            counts[name][target] = new | {"executions": old["executions"] + new["executions"]}
    write(kept, counts)
    here.unlink(missing_ok=True)


def executions(root, build):
    """Of each target, over all states."""
    total = {}
    for path in files(root, build):
        for targets in read(path).values():
            for target, one in targets.items():
                total[target] = total.get(target, 0) + one["executions"]
    return total
