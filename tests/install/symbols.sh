#!/bin/sh
# symbols.sh SOURCE FOLDER: the packages in FOLDER, unpacked in FOLDER/root, have a file of symbols that is the library's own.
set -eu
cd "$2"
mkdir -p control debian
dpkg-deb -e libmetal-marlin0_*.deb control
cmp control/symbols "$1/cmake/debian/symbols"
printf 'Source: metal-marlin\nMaintainer: nobody <nobody@example.org>\n\nPackage: libmetal-marlin0\nArchitecture: any\n' >debian/control
cp "$1/cmake/debian/symbols" debian/libmetal-marlin0.symbols
# -c4: symbols that came are an error, as those that went; of a version to come, because those of this one may still change.
symbols() { rm -f new.symbols && dpkg-gensymbols -c4 -plibmetal-marlin0 -v9999 -Proot -Onew.symbols >"$1" 2>&1; }
symbols symbols.log || { cat symbols.log; echo "FAILED: cmake/debian/symbols is not what the library exports" >&2; exit 1; }
# It can fail: without one line, and with one that no library has.
sed -i '/ marlin_gemm@/d' debian/libmetal-marlin0.symbols
! symbols absent.log || { echo "FAILED: a symbol that the file lacks is no error" >&2; exit 1; }
cp "$1/cmake/debian/symbols" debian/libmetal-marlin0.symbols
echo ' marlin_nothing@marlin_0 0.9.0' >>debian/libmetal-marlin0.symbols
! symbols more.log || { echo "FAILED: a symbol that the library lacks is no error" >&2; exit 1; }
