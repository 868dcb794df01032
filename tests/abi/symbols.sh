#!/bin/sh
# symbols.sh LIBRARY EXPORTS_MAP [BUDGETS OBJECT...]: what the shared library shows, needs and could call.
#   - It defines the symbols of the version script and no others.
#   - It needs libc, libm, the C++ runtime and the dynamic linker, nothing else.
#   - It imports nothing that ends the process or writes to stdout or stderr. Honesty: std::terminate, and through it abort,
#     stays reachable inside libstdc++ (an exception that leaves a noexcept function or a thread's body); the boundary catches
#     everything before that, which the tests of exceptions and of memory running out show, and no symbol table can.
#   - It is no larger than its budget (tests/structure/budgets.txt), if it was built as the budget says; nor are the objects of the
#     folder that has a budget of code, of those that follow the budgets.
set -eu
library=$1 map=$2 budgets=${3:-} failed=0
complain() {
  printf '%s\n' "$*"
  failed=1
}

expected=$(sed -n 's/^ *\(marlin_[a-z_]*\);$/\1/p' "$map" | sort)
found=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
[ "$expected" = "$found" ] || complain "exported symbols are not those of $map:" "$found"

nodes=$(nm -D --defined-only "$library" | awk '$2 == "A" { print $3 }')
case $nodes in marlin_[0-9]*) ;; *) complain "no version node marlin_N: $nodes" ;; esac

needed=$(objdump -p "$library" | awk '$1 == "NEEDED" { print $2 }')
for one in $needed; do
  case $one in
    libc.so.* | libm.so.* | libstdc++.so.* | libgcc_s.so.* | ld-linux* | libc++.so.* | libc++abi.so.* | libpthread.so.*) ;;
    *) complain "needs $one" ;;
  esac
done

imports=$(nm -D --undefined-only "$library" | awk '{ sub(/@.*/, "", $2); print $2 }' | sort -u)
for one in $imports; do
  case $one in
    abort | exit | _exit | _Exit | quick_exit | atexit | raise | kill | __assert | __assert_fail | __assert_perror_fail | err | errx | \
      verr | verrx | __stack_chk_fail_local) complain "imports $one, which ends the process" ;;
    stdout | stderr | printf | vprintf | puts | putchar | putc | fprintf | vfprintf | fputs | fputc | fwrite | perror | psignal | \
      __printf_chk | __vprintf_chk | __fprintf_chk | __vfprintf_chk | dprintf | __dprintf_chk | syslog | __syslog_chk | warn | warnx) \
      complain "imports $one, which prints" ;;
    _ZSt4cout | _ZSt4cerr | _ZSt4clog | _ZNSt8ios_base4InitC1Ev) complain "imports $one: a standard stream" ;;
    getenv) complain "imports getenv, which trusts variables where a process has more rights than who started it" ;;
    signal | sigaction | setlocale | setenv | putenv | system | execve | popen) complain "imports $one, which changes the process" ;;
  esac
done

# dlclose unloads it only when it holds no unique symbols.
if nm -D "$library" | awk '$2 == "u"' | grep .; then complain "has unique symbols, which keep it loaded"; fi
if objdump -p "$library" | grep -q 'NODELETE'; then complain "is marked NODELETE"; fi
# No work when loaded: no constructors beyond the compiler's own frame_dummy.
words=$(objdump -h "$library" | awk '$2 == ".init_array" { print $3 }')
[ "${words:-00000008}" = 00000008 ] || complain "runs code when loaded: .init_array holds 0x$words bytes, expected one entry"
if objdump -h "$library" | grep -q '\.tbss\|\.tdata'; then complain "keeps state per thread"; fi
if [ -n "$budgets" ]; then
  budget=$(awk '$1 == "bytes" { print $3 }' "$budgets") text=$(size "$library" | awk 'NR == 2 { print $1 }')
  [ "$text" -le "$budget" ] || complain "has $text bytes of code and constants, its budget is $budget"
  folder=$(awk '$1 == "text" { print $2 }' "$budgets") budget=$(awk '$1 == "text" { print $3 }' "$budgets") own=''
  shift 3
  for object; do case $object in */"$folder"/*) own="$own $object" ;; esac; done
  # shellcheck disable=SC2086  # paths of a build tree
  text=$(size -A $own | awk '/^\.text/ { sum += $2 } END { print sum + 0 }')
  [ "$text" -gt 0 ] && [ "$text" -le "$budget" ] || complain "has $text bytes of code from $folder, its budget is $budget"
fi
exit $failed
