#!/usr/bin/env python3
"""Looks for spilled accumulators in the kernels of a built library.

    spills.py LIBRARY [--objdump OBJDUMP]

A loop that multiplies should keep its sums in registers: sums that live on the stack have cost a kernel half of its speed, and
no result shows it. This disassembles LIBRARY, takes the innermost loops that hold at least MULTIPLIES dot products or
multiply-adds, and fails when such a loop stores a vector to the stack for every TOLERATED of them or more often. (Loads from
there are constants, or scales that were decoded for a superblock.) Prints a line for each kernel that spills; exits with 1 then,
with 2 when it found nothing to judge.
"""
import argparse
import re
import subprocess
import sys

MULTIPLIES = 16
TOLERATED = 8
# What multiplies, by the kernels of each instruction set. Scalar and 128-bit forms are other code.
DOTS = re.compile(r"^(vpdpbusds?|vdpbf16ps|vpmaddubsw|vfmadd\d+ps|[su]dot|usdot|[su]mmla|usmmla|bfdot|bfmmla|fmla)$")
X86_STORE = re.compile(r"^vmov\w+\s+%[yz]mm\d+,[^,]*\(%r[sb]p[,)]")
ARM_STORE = re.compile(r"^(str|stp|stur)\s+q\d+,.*\[(sp|x29)\b")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
JUMP_TARGET = re.compile(r"\b([0-9a-f]+) <")
# Kernels that spill and stay.
ACCEPTED = {
    # 3 rows of 8-bit codes whose scales may overflow times d, which no file in use has
    "multiply_columns<3, true, true, 0>",
    # 3 rows of 2:4 sparse codes: scales go to the stack, not the sums; they take as long as with halves of the columns apart
    "run_pass<(metal_marlin::cpu::Reading)2, (metal_marlin::cpu::Zeros)0, true, false, 3, 2>",
    # adds up what other kernels stored, a row of C after another: bound by memory
    "sum_token(",
}


def functions(text):
    """(name, [(address, mnemonic, operands)]) of a disassembly."""
    name, body = None, []
    for line in text.splitlines():
        if head := FUNCTION.match(line):
            if body:
                yield name, body
            name, body = head[1], []
        elif name and (found := INSTRUCTION.match(line)):
            body.append((int(found[1], 16), found[2], found[3]))
    if body:
        yield name, body


def disassembled(path, objdump):
    """functions() of a library or an object."""
    command = [objdump, "-d", "-C", "--no-show-raw-insn", path]
    return functions(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def is_jump(mnemonic):
    return mnemonic.startswith("j") or mnemonic == "b" or mnemonic.startswith(("b.", "cb", "tb"))


def loops(body):
    """Pieces (start, end) of the body that a jump back repeats."""
    index = {address: i for i, (address, _, _) in enumerate(body)}
    found = []
    for i, (_, mnemonic, operands) in enumerate(body):
        if is_jump(mnemonic) and (target := JUMP_TARGET.search(operands)):
            start = index.get(int(target[1], 16), i + 1)
            if start <= i:
                found.append((start, i + 1))
    return found


def inner_loops(body):
    """Those that hold no other."""
    found = loops(body)
    return [(a, b) for a, b in found if not any((c, d) != (a, b) and a <= c and d <= b for c, d in found)]


def stores(loop):
    """Number of vectors that it stores to the stack."""
    return sum(1 for _, mnemonic, operands in loop
               if X86_STORE.match(f"{mnemonic} {operands}") or ARM_STORE.match(f"{mnemonic} {operands}"))


def spills(named_bodies):
    """Number of loops that multiply, and (function, stores, multiplications) of those that spill."""
    judged, found = 0, []
    for name, body in named_bodies:
        for start, end in inner_loops(body):
            loop = body[start:end]
            dots = sum(1 for _, mnemonic, _ in loop if DOTS.match(mnemonic))
            if dots < MULTIPLIES:
                continue
            judged += 1
            if stores(loop) * TOLERATED > dots:
                found.append((name, stores(loop), dots))
    return judged, found


def self_test():
    def loop(extra="nop", times=3, dot="vpdpbusd %zmm1,%zmm2,%zmm3", back="jne    10"):
        dots = "".join(f"  {0x10 + i:x}:\t{dot}\n" for i in range(MULTIPLIES))
        more = f"  3f:\t{extra}\n" * times
        return functions(f"0000 <kernel>:\n{dots}{more}  40:\t{back} <kernel>\n  41:\tret\n")

    spilled = (1, [("kernel", 3, MULTIPLIES)])
    assert spills(loop()) == (1, [])
    assert spills(loop("vmovaps %zmm7,0x40(%rsp)")) == spilled
    assert spills(loop("vmovaps %zmm7,0x40(%rsp)", times=2)) == (1, [])
    assert spills(loop("vmovaps %zmm7,0x40(%rdi)")) == (1, [])
    assert spills(loop("vmovaps 0x40(%rsp),%zmm7")) == (1, [])
    assert spills(loop(back="jne    60")) == (0, [])
    assert spills(loop("str\tq8, [sp, #16]", dot="sdot\tv0.4s, v1.16b, v2.4b[0]", back="b.ne\t10")) == spilled


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("library")
    options.add_argument("--objdump", default="objdump")
    options = options.parse_args()
    self_test()
    judged, found = spills(disassembled(options.library, options.objdump))
    new = [line for line in found if not any(known in line[0] for known in ACCEPTED)]
    for name, stored, dots in new:
        print(f"{name}: a loop of {dots} multiplications stores {stored} vectors to the stack")
    print(f"{judged} loops, {len(new)} of them spill")
    return 1 if new else 0 if judged else 2


if __name__ == "__main__":
    sys.exit(main())
