#!/usr/bin/env python3
"""Has clang read the sources for arm64, with warnings as errors: that they compile shows on any machine, in seconds. Prints
"passed NAME", "FAILED NAME: why" and "skipped NAME: why"."""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The C library's headers for arm64 come last, since libc++ wraps them.
FLAGS = ["--target=aarch64-linux-gnu", "-std=c++20", "-stdlib=libc++", "-idirafter", "/usr/aarch64-linux-gnu/include", "-fsyntax-only",
         "-Werror", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion",
         *(f"-I{ROOT / folder}" for folder in ("include", "src", "."))]


def main():
    compiler = shutil.which("clang++-19") or shutil.which("clang++")
    failed = False
    for source in sorted((ROOT / "src/backends/cpu/arm64").glob("*.cc")):
        if compiler is None or not pathlib.Path("/usr/aarch64-linux-gnu/include").is_dir():
            print(f"skipped {source.name}: there is no clang, or no header of C for arm64")
            continue
        read = subprocess.run([compiler, *FLAGS, source], capture_output=True, text=True, check=False)
        failed = failed or read.returncode != 0
        print(f"passed {source.name}" if read.returncode == 0 else f"FAILED {source.name}: {read.stderr[:2000]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
