"""Runs tests of threads in the tree of ThreadSanitizer: sanitized.py tsan FILTER. Prints how many cases they counted."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(preset, tests):
    calm = ["setarch", "-R"] if shutil.which("setarch") else []  # where mappings are spread too widely for ThreadSanitizer
    environment = os.environ | {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1", "METAL_MARLIN_PROFILE": "off"}
    if shutil.which("ccache"):
        environment |= {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_SLOPPINESS": "pch_defines,time_macros"}
    for command in (["cmake", "--preset", preset, "-DMETAL_MARLIN_SANITIZE_KERNELS=OFF"],
                    [*calm, "cmake", "--build", f"build/{preset}", "-j2", "--target", "abi_threads_test"]):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout[-2000:] + done.stderr[-2000:])
            return 1
    report = ROOT / f"build/{preset}/threads.json"
    program = ROOT / f"build/{preset}/tests/abi/abi_threads_test"
    status = subprocess.run([*calm, program, f"--gtest_filter={tests}", f"--gtest_output=json:{report}"], env=environment).returncode
    print("cases:", sum(int(n) for n in re.findall(r'"cases": "?(\d+)', report.read_text())) if status == 0 else 0)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
