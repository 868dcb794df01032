"""A copy of the project with planted edits (build/mutate/tree), and its build (build/mutate/build).

Every edit of a run is compiled into one build. Where the compiler rejects an edit, it is taken out and the file compiled again.
"""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess

import edits

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "build/mutate"
TREE = WORK / "tree"
BUILD = WORK / "build"
COPIED = ["CMakeLists.txt", "cmake", "include", "src", "shaders", "tests", "tools", "examples"]

METAL = "backends/metal"  # whose code is Objective-C++, and in no library of Linux
# The folders whose code is mutated. Kernels, whose tests compare each of them with an oracle, are left out.
FOLDERS = {"core": "src/core", "backends/gpu": "src/backends/gpu", "api": "src/api", "layouts": "src/layouts",
           "checkpoints": "src/checkpoints", "backends/cpu": "src/backends/cpu", METAL: "src/backends/metal"}
LEFT_OUT = re.compile(r"/x86/|/arm64/|/generic\.cc$|_arm64\.cc$|_other\.cc$|_windows\.cc$|/absent\.cc$")

# The programs whose tests may see an edit; those that are not in this build are left out.
PROGRAMS = """
    unit/unit_core_test unit/unit_threads_test unit/unit_formats_test unit/unit_checkpoints_test unit/unit_huge_test
    unit/cpu_features_test unit/kernels_test unit/kernels_row_invariance_unit_test
    gpu/gpu_mock_test gpu/gpu_forced_kernel_test gpu/gpu_experts_test shaders/exact_test
    cuda/cuda_host_test
    abi/abi_inside_test abi/abi_calls_test abi/abi_threads_test abi/abi_exports_test abi/abi_callbacks_test abi/abi_memory_test
    kernels/kernels_special_values_test kernels/kernels_experts_test kernels/kernels_shared_activations_test
    kernels/kernels_row_invariance_test kernels/kernels_guard_pages_test kernels/kernels_covering_test
""".split()
METAL_PROGRAMS = ["metal_host/metal_host_testbed", "metal_host/metal_host_kernels"]
# Where only some tests of a program are quick enough to be run hundreds of times.
QUICK_TESTS = {"gpu_experts_test": "Experts.*", "exact_test": "*UnpackKnowsEveryCode*"}


def sources(folder):
    """The files of a folder that get edits, relative to the project."""
    found = sorted(path for path in (ROOT / FOLDERS[folder]).rglob("*") if path.suffix in (".cc", ".mm"))
    return [name for name in (str(path.relative_to(ROOT)) for path in found) if not LEFT_OUT.search("/" + name)]


def chosen(folder, count, seed):
    """Up to `count` edits of a folder: of each function in turn one of each kind in turn, at random."""
    chance = random.Random(f"{seed} {folder}")
    functions = {}
    for file in sources(folder):
        for edit in edits.find(file, (ROOT / file).read_bytes()):
            functions.setdefault((edit.file, edit.function), {}).setdefault(edit.kind, []).append(edit)
    queues = []
    for kinds in functions.values():
        lists = list(kinds.values())
        for some in lists:
            chance.shuffle(some)
        chance.shuffle(lists)
        queues.append([some[i] for i in range(max(map(len, lists))) for some in lists if i < len(some)])
    chance.shuffle(queues)
    order = [queue[i] for i in range(max(map(len, queues), default=0)) for queue in queues if i < len(queue)]
    return order[:count]


def _update(path, content):
    """Writes a file only where it changes, so that only what changed is compiled."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def copy_project(mutated):
    """Makes the copy anew: the files of `mutated` (name to content) instead of the project's own."""
    present = set()
    for top in COPIED:
        start = ROOT / top
        for path in [start] if start.is_file() else start.rglob("*"):
            if path.is_symlink() or not path.is_file() or "__pycache__" in path.parts:
                continue
            name = str(path.relative_to(ROOT))
            present.add(name)
            _update(TREE / name, mutated.get(name) or path.read_bytes())
            if name not in mutated:
                shutil.copymode(path, TREE / name)
    for path in list(TREE.rglob("*")):
        if path.is_file() and str(path.relative_to(TREE)) not in present:
            path.unlink()


def plant(planted_edits):
    """Writes the copy with these edits; the places of each file's edits in it."""
    by_file = {}
    for number, edit in enumerate(planted_edits):
        edit.number = number
        by_file.setdefault(edit.file, []).append(edit)
    mutated, places = {}, {}
    for file, own in by_file.items():
        mutated[file], places[file] = edits.planted((ROOT / file).read_bytes(), own, ROOT / "tests/mutation/switch.h")
    copy_project(mutated)
    return mutated, places


def configure():
    if (BUILD / "build.ninja").exists():
        return
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    # Without optimization, objects of Objective-C live until a pool that no test has ends.
    flags = [f"-DCMAKE_{language}_FLAGS=-O1 -DNDEBUG -w" for language in ("CXX", "OBJCXX")]
    subprocess.run(["cmake", "-G", "Ninja", "-S", TREE, "-B", BUILD, "-DCMAKE_BUILD_TYPE=None", *flags, "-DCMAKE_C_FLAGS=-O1",
                    "-DCMAKE_UNITY_BUILD=ON", "-DMETAL_MARLIN_TESTS=ON", "-DMETAL_MARLIN_TOOLS=OFF",
                    "-DMETAL_MARLIN_INSTALL=OFF", "-DMETAL_MARLIN_MUTATION=ON", *launcher],
                   check=True, stdout=subprocess.DEVNULL)


def ninja(jobs, targets):
    """(status, output) of a build that goes on after errors."""
    environment = dict(os.environ, CCACHE_SLOPPINESS="pch_defines,time_macros")
    run = subprocess.run(["nice", "-n", "5", "ninja", "-C", BUILD, "-k", "0", f"-j{jobs}", *targets], env=environment,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    (WORK / "build.log").write_text(run.stdout)
    return run.returncode, run.stdout


def blamed(output, mutated, places):
    """The edits that the compiler's errors point at: the innermost around the place, else those of the line, else of the function."""
    found = set()
    for file, line, column in set(re.findall(r"^(?:\S*?/tree/)?(src/\S+?):(\d+):(\d+): (?:fatal )?error:", output, re.M)):
        if file not in places:
            continue
        lines = mutated[file].split(b"\n")
        at = sum(len(text) + 1 for text in lines[:int(line) + 1]) + int(column) - 1  # two lines precede the original's first
        around = [place for place in places[file] if place[0] <= at < place[1]]
        if around:
            least = min(end - begin for begin, end, _ in around)
            found.update(edit.key for begin, end, edit in around if end - begin == least)
            continue
        same = [edit for _, _, edit in places[file] if edit.line == int(line)]
        if not same:
            before = [edit for _, _, edit in places[file] if edit.line <= int(line)]
            nearest = max(before, key=lambda edit: edit.line, default=None)
            same = [edit for edit in before if edit.function == nearest.function] if nearest else []
        found.update(edit.key for edit in same)
    return found


def programs_of(folders):
    """The programs that may see edits of these folders."""
    return (PROGRAMS if set(folders) != {METAL} else []) + (METAL_PROGRAMS if METAL in folders else [])


def build(wanted, folders, jobs, say):
    """Plants and builds what compiles of these edits, and returns it. What was rejected before is not tried again."""
    objects = (["metal_marlin_objects"] if set(folders) != {METAL} else []) + (
        ["metal_host_backend", "metal_host_device"] if METAL in folders else [])
    WORK.mkdir(parents=True, exist_ok=True)
    rejected_at = WORK / "rejected.json"
    rejected = set(json.loads(rejected_at.read_text())) if rejected_at.exists() else set()
    for _ in range(20):
        wanted = [edit for edit in wanted if edit.key not in rejected]
        mutated, places = plant(wanted)
        configure()
        status, output = ninja(jobs, objects)
        if status == 0:
            return wanted
        bad = blamed(output, mutated, places)
        if not bad:
            raise SystemExit(f"dev: the copy of the sources does not compile, and no edit is to blame: {WORK / 'build.log'}")
        say(f"{len(bad)} edits do not compile and are taken out")
        rejected |= bad
        rejected_at.write_text(json.dumps(sorted(rejected), indent=1))
    raise SystemExit(f"dev: edits still do not compile after 20 attempts: {WORK / 'build.log'}")


def build_programs(jobs, names):
    """Builds the test programs, and returns the paths of those that this machine can build."""
    known = subprocess.run(["ninja", "-C", BUILD, "-t", "targets", "all"], stdout=subprocess.PIPE, text=True, check=True).stdout
    there = [name for name in names if f"\n{pathlib.Path(name).name}:" in known]
    status, _ = ninja(jobs, [pathlib.Path(name).name for name in there])
    if status != 0:
        raise SystemExit(f"dev: the test programs do not build: {WORK / 'build.log'}")
    return [BUILD / "tests" / name for name in there]
