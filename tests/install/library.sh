#!/bin/sh
# library.sh FOLDER: what the installed shared library shows, needs and weighs.
set -eu
library=$(ls "$1"/libmetal-marlin.so.0 2>/dev/null) || { echo "skipped: no ELF library in $1"; exit 77; }
status=0
complain() { echo "FAILED: $*" >&2; status=1; }

foreign=$(nm -D --defined-only "$library" | awk '{ print $NF }' | sed 's/@.*//' | grep -v -E '^marlin_[a-z_0-9]+$' || true)
[ -z "$foreign" ] || complain "exported, but not marlin_*: $foreign"
nm -D --defined-only "$library" | grep -q ' marlin_get_api' || complain "marlin_get_api is not exported"

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v -E '^(libc|libm|libstdc\+\+|libgcc_s|ld-linux.*)\.so' || true)
[ -z "$needed" ] || complain "needs more than the C and C++ runtimes: $needed"
readelf -d "$library" | grep -q 'SONAME.*\[libmetal-marlin\.so\.0\]' || complain "soname is not libmetal-marlin.so.0"

# A library neither ends its host nor writes to its terminal.
forbidden=$(nm -D --undefined-only "$library" | awk '{ print $NF }' | sed 's/@.*//' |
  grep -x -E 'abort|exit|_exit|quick_exit|_Exit|stdout|stderr|printf|puts|putchar|perror|__assert_fail|__printf_chk|_ZSt4cout|_ZSt4cerr' || true)
[ -z "$forbidden" ] || complain "can reach: $forbidden"

cp "$library" stripped.so && strip stripped.so
size=$(wc -c <stripped.so)
echo "stripped: $size bytes"
[ "$size" -le $((8 << 20)) ] || complain "the stripped library has $size bytes, more than 8 MiB"
exit $status
