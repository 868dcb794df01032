#!/usr/bin/env python3
"""Asks a Mac what nothing else can say of Apple's compiler, GPUs and simulators; .github/workflows/test.yml runs it.

    measure.py kernels TREE            seconds of Apple's compiler for each file of kernels of a tree of CMake, and bytes of its library
    measure.py limits DOCTOR           the most threads of a threadgroup of each kernel, from what doctor --json printed
    measure.py verify COMMAND BACKEND  metal-marlin verify on each folder of tests/data
    measure.py simulator XCFRAMEWORK   tests/abi/simulator.c on a simulator of iOS
"""
import json
import pathlib
import platform
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def kernels(tree):
    """Compiles each file alone, one after another; Ninja's log has the times in milliseconds. macOS 26 is the first with Metal 4."""
    tree = pathlib.Path(tree).resolve()
    made = sorted(tree.rglob("*.metallib"))
    for path in made:
        path.unlink()
    subprocess.run(["cmake", "--build", tree, "-j", "1", "--target", "metal_marlin_shaders"], check=True)
    lines = [line.split("\t") for line in (tree / ".ninja_log").read_text().splitlines() if line.count("\t") == 4]
    seconds = {(tree / output).name: (int(end) - int(begin)) / 1000 for begin, end, _, output, _ in lines}
    for path in made:
        print(f"{path.stem:24} {seconds[path.name]:8.1f} s {path.stat().st_size:10} bytes" + ("" if path.stat().st_size else ": REFUSED"))
    print(f"{'all':24} {sum(seconds[path.name] for path in made):8.1f} s {sum(path.stat().st_size for path in made):10} bytes")
    old = int(platform.mac_ver()[0].split(".")[0] or 26) < 26
    new = {path.stem for path in (ROOT / "shaders/metal4").glob("*.metal")}
    return bool(made) and all(path.stat().st_size or (old and path.stem in new) for path in made)


def limits(doctor):
    """Fewer threads than others of its kind are those of a kernel that needs many registers; a probe that fails is said, too."""
    sound = False
    for checks in json.loads(pathlib.Path(doctor).read_text())["kernel_checks"]:
        found = {each["kernel"]: each for each in checks["kernels"]}
        for name, each in sorted(found.items()):
            most = re.match(r"up to (\d+) threads", each["pipeline"])
            print(f"{name:40} {most.group(1) if most else '?':>5} threads  {each['probe']}")
        refused = sorted({each["refused"] for each in checks["kernels"]} - {""})
        print(*checks["messages"], f"refused: {', '.join(refused) or 'none'}", checks["failure"], sep="\n")
        sound = sound or (bool(found) and not refused and not checks["failure"])
    return sound


def verify(command, backend):
    wrong = []
    for folder in sorted(path for path in (ROOT / "tests/data").iterdir() if path.is_dir()):
        ran = subprocess.run([command, "verify", "--backend", backend, folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ran.returncode != 0:
            wrong.append(folder.name)
            print(f"{folder.name}: status {ran.returncode}\n{ran.stdout}")
    print(f"verified on {backend}; wrong: {', '.join(wrong) or 'none'}")
    return not wrong


def simulator(framework):
    """The newest iPhone that this Xcode has runs the program, whose first line is what Metal says of itself."""
    slice_ = next(pathlib.Path(framework).glob("*simulator*"))
    program = slice_.parent / "simulator_test"
    subprocess.run(["xcrun", "-sdk", "iphonesimulator", "clang", "-std=c99", "-arch", "arm64", "-mios-simulator-version-min=17.0",
                    f"-I{slice_}/Headers", ROOT / "tests/abi/simulator.c", next(slice_.glob("*.a")), "-lc++", "-framework", "Foundation",
                    "-framework", "Metal", "-o", program], check=True)
    listed = json.loads(subprocess.run(["xcrun", "simctl", "list", "devices", "available", "--json"], check=True, capture_output=True).stdout)
    phones = [(runtime, each["udid"]) for runtime, some in listed["devices"].items() for each in some if "iPhone" in each["name"]]
    phone = max(phones, key=lambda each: [int(part) for part in re.findall(r"\d+", each[0])])[1]
    subprocess.run(["xcrun", "simctl", "bootstatus", phone, "-b"], check=True)
    return subprocess.run(["xcrun", "simctl", "spawn", phone, program.resolve()]).returncode == 0


if __name__ == "__main__":
    sys.exit(0 if {"kernels": kernels, "limits": limits, "verify": verify, "simulator": simulator}[sys.argv[1]](*sys.argv[2:]) else 1)
