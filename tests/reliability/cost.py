"""How many instructions the checks and the plan of one product take: cost.py PROGRAM, which is made of cost.c

callgrind counts what runs inside of read_product() (src/api/gemm.cc), which does all that comes before the work, for two numbers
of calls: their difference is free of what happens once. Four instructions a nanosecond are few for a processor of today.
"""

import os
import re
import subprocess
import sys
import tempfile

MOST = 6000


def instructions(program, calls, folder):
    count = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", "--toggle-collect=*read_product*", program, str(calls)],
        capture_output=True, text=True, check=True, env=os.environ | {"METAL_MARLIN_ISA": "avx2"},
    ).stderr
    return int(re.search(r"Collected : (\d+)", count)[1])


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        each = (instructions(program, 15, folder) - instructions(program, 5, folder)) / 10
    print(f"instructions: {each:.0f}, {MOST - each:.0f} instructions to spare")
    return 0 if 0 < each <= MOST else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
