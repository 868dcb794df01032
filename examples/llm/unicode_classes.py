#!/usr/bin/env python3
"""Writes unicode_classes.inc: the code points that Unicode calls letters (L*), numbers (N*), capital (Lu, Lt) and small letters (Ll),
and marks (M*), as ranges of every step-th code point: capital and small letters often take turns.

    python3 unicode_classes.py > unicode_classes.inc
"""

import sys
import unicodedata


def ranges(kinds):
    """kinds: how names of categories begin."""
    inside = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith(kinds)]
    while inside:
        length = step = 1
        if len(inside) > 2 and inside[2] - inside[1] == inside[1] - inside[0]:
            step = inside[1] - inside[0]
        while length < len(inside) and inside[length] == inside[0] + length * step:
            length += 1
        yield "{0x%X, 0x%X%s}" % (inside[0], inside[length - 1], f", {step}" * (step > 1))
        del inside[:length]


print(f"// Written by unicode_classes.py from Unicode {unicodedata.unidata_version}.")
print("// clang-format off")
for kinds, name in ((("L",), "kLetters"), (("N",), "kNumbers"), (("Lu", "Lt"), "kCapitals"), (("Ll",), "kSmallLetters"), (("M",), "kMarks")):
    print(f"constexpr CodeRange {name}[] = {{")
    all_ranges = list(ranges(kinds))
    for i in range(0, len(all_ranges), 7):
        print("    " + ", ".join(all_ranges[i : i + 7]) + ",")
    print("};")
