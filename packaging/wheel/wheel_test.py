#!/usr/bin/env python3
"""Wheels for other machines hold what they claim, and compute there.

    wheel_test.py WHEEL...

Each wheel is read (its name, its library's processor, the libraries and versions of glibc that it needs). A wheel for this
processor is installed into a fresh environment and multiplies by checkpoints of tests/data. A wheel for arm64 on another
processor runs examples/mlp.c under QEMU with the library of the wheel. Prints "passed NAME", "FAILED NAME: why" and "skipped
NAME: why". The exit status is 1 where something failed. This script runs with the Python of build/env/wheel, which has pyelftools.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

TOP = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"metal_marlin-[\d.]+-py3-none-manylinux2014_(\w+)\.manylinux_2_17_\1\.whl")
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
# What every Linux has that a manylinux wheel may run on (PEP 600), as far as the library needs it.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
OLDEST = (2, 17)
LIBRARY = "metal_marlin/libmetal-marlin.so"
# Products in both computes, against float64 over the same decoded weights.
PROGRAM = """
import sys, numpy as np, metal_marlin as mm
assert mm.__file__.startswith(sys.prefix), mm.__file__
context = mm.Context(mm.Backend.CPU)
products = 0
for path in sys.argv[1:]:
    for layer in mm.Checkpoint(path).layers():
        if layer.experts > 1 or layer.format == mm.Format.NONE:
            continue
        weights = mm.Weights.load(context, mm.Checkpoint(path), layer.name)
        w = weights.unpack().astype(np.float64)
        for rows in (1, 7, 65):
            x = np.random.default_rng(rows).standard_normal((rows, w.shape[1])).astype(np.float32)
            size = np.abs(x.astype(np.float64)) @ np.abs(w).T + 1e-30
            for compute, bound in ((mm.Compute.DEFAULT, 1e-5), (mm.Compute.INT8, 2e-2)):
                wrong = np.abs(mm.gemm(x, weights, compute=compute) - x.astype(np.float64) @ w.T) / size
                assert wrong.max() < bound, (path, layer.name, rows, compute, wrong.max())
                products += 1
assert products >= 30, products
print(products, "products are right")
"""
CHECKPOINTS = ["gptq-v1-sym-g128", "gguf-mixed", "mlx-affine-g64", "nvfp4-modelopt"]


class Failed(Exception):
    pass


def expect(true, words):
    if not true:
        raise Failed(words)


def run(*command, **options):
    said = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    expect(said.returncode == 0, f"{command[0]} ended with {said.returncode}: {(said.stdout + said.stderr)[-600:]}")
    return said.stdout


def holds_what_it_claims(wheel, processor, library):
    """The name says manylinux_2_17, and nothing inside needs more."""
    with zipfile.ZipFile(wheel) as file:
        binaries = [name for name in file.namelist() if file.read(name)[:4] == b"\x7fELF"]
    expect(binaries == [LIBRARY], f"expected the library alone, found {binaries}")
    with library.open("rb") as stream:
        elf = ELFFile(stream)
        expect(elf["e_machine"] == MACHINES[processor], f"expected {MACHINES[processor]}, found {elf['e_machine']}")
        needed = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
        expect(needed <= SYSTEM, f"expected {sorted(SYSTEM)} or fewer, needs {sorted(needed)}")
        section = next(each for each in elf.iter_sections() if isinstance(each, GNUVerNeedSection))
        names = {version.name for _, versions in section.iter_versions() for version in versions}
    for name in names:
        match = re.fullmatch(r"GLIBC_([\d.]+)", name)
        expect(match and tuple(map(int, match[1].split("."))) <= OLDEST, f"expected glibc 2.17 or older, needs {name}")
    said = run(pathlib.Path(sys.executable).with_name("auditwheel"), "show", wheel)
    expect(re.search(r'following platform\s+tag:\s+"manylinux_2_17_' + processor, said), f"auditwheel says: {said}")


def computes_here(wheel, scratch):
    """In an environment that has nothing but the wheel and what pip fetches for it."""
    run(sys.executable, "-m", "venv", scratch / "fresh")
    python = scratch / "fresh/bin/python"
    run(python, "-m", "pip", "--disable-pip-version-check", "--timeout", "20", "install", "-q", wheel)
    said = run(python, "-c", PROGRAM, *(TOP / "tests/data" / name for name in CHECKPOINTS), cwd=scratch)
    print(f"  {wheel.name}: {said.strip()}")


def computes_in_qemu(library, scratch):
    """As README's C programs are compiled, on a processor with every instruction that the kernels use and on one with none."""
    shutil.copy(library, scratch / "libmetal-marlin.so")
    (scratch / "libmetal-marlin.so.0").symlink_to("libmetal-marlin.so")
    program = scratch / "mlp"
    run("aarch64-linux-gnu-gcc", TOP / "examples/mlp.c", f"-I{TOP / 'include'}", f"-L{scratch}", "-lmetal-marlin", "-lm",
        "-o", program)
    expected = re.search(r"^y = .*$", (TOP / "examples/README.md").read_text(), re.MULTILINE)[0].split(" ... ")
    for cpu in ("cortex-a53", "max"):
        said = run("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", cpu, "-E", f"LD_LIBRARY_PATH={scratch}", program,
                   TOP / "tests/data/mxfp4-gpt-oss-experts", "1").strip()
        expect(said.startswith(expected[0]) and said.endswith(expected[1]), f"{cpu}: expected {expected}, found {said}")


def test(wheel):
    match = NAME.fullmatch(wheel.name)
    expect(match, f"expected metal_marlin-VERSION-py3-none-manylinux2014_PROCESSOR.manylinux_2_17_PROCESSOR.whl, found {wheel.name}")
    processor = match[1]
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        with zipfile.ZipFile(wheel) as file:
            library = pathlib.Path(file.extract(LIBRARY, scratch))
        yield f"{processor}: what it needs", lambda: holds_what_it_claims(wheel, processor, library)
        if processor == platform.machine():
            yield f"{processor}: products in a fresh environment", lambda: computes_here(wheel, scratch)
        elif processor == "aarch64" and shutil.which("qemu-aarch64") and shutil.which("aarch64-linux-gnu-gcc"):
            yield f"{processor}: products under QEMU", lambda: computes_in_qemu(library, scratch)
        else:
            print(f"skipped {processor}: products: expected {processor}, or QEMU and a cross compiler for arm64")


def main():
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    failed = not sys.argv[1:]
    for wheel in map(pathlib.Path, sys.argv[1:]):
        try:
            for name, check in test(wheel.absolute()):
                check()
                print(f"passed {name}")
        except Failed as error:
            failed = True
            print(f"FAILED {wheel.name}: {error}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
