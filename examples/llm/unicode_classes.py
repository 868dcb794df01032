#!/usr/bin/env python3
"""Writes unicode_classes.inc: the ranges of code points that Unicode calls letters (L*), numbers (N*), capital (Lu, Lt) and small
letters (Ll), and marks (M*).

    python3 unicode_classes.py > unicode_classes.inc
"""

import itertools
import sys
import unicodedata


def ranges(kinds):
    """kinds: how names of categories begin."""
    inside = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith(kinds)]
    for _, run in itertools.groupby(enumerate(inside), lambda pair: pair[1] - pair[0]):
        run = [code for _, code in run]
        yield "{0x%X, 0x%X}" % (run[0], run[-1])


print(f"// Written by unicode_classes.py from Unicode {unicodedata.unidata_version}.")
print("// clang-format off")
for kinds, name in ((("L",), "kLetters"), (("N",), "kNumbers"), (("Lu", "Lt"), "kCapitals"), (("Ll",), "kSmallLetters"), (("M",), "kMarks")):
    print(f"constexpr CodeRange {name}[] = {{")
    all_ranges = list(ranges(kinds))
    for i in range(0, len(all_ranges), 7):
        print("    " + ", ".join(all_ranges[i : i + 7]) + ",")
    print("};")
