# Sourced by the test.sh of each binding, in its folder: what they need to test it with the library that is installed in $1. They
# use no network. A check prints a line as cargo's tests do, "test result: ...", which tests/run.py counts.
set -u
top=$(cd ../.. && pwd)
PKG_CONFIG_PATH=$(dirname "$(find "$1" -name metal-marlin.pc)")
export PKG_CONFIG_PATH
libraries=$(dirname "$PKG_CONFIG_PATH")
with_libraries="LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
build=$top/build/$(basename "$PWD")
scratch=$build/scratch
rm -rf "$scratch" && mkdir -p "$scratch"
status=0

# check NAME COMMAND...: one test, passed when the command succeeds.
check() {
  name=$1
  shift
  echo "== $name"
  if ("$@"); then
    echo "test result: ok. 1 passed; 0 failed; 0 ignored"
  else
    echo "test result: FAILED. 0 passed; 1 failed; 0 ignored ($name)"
    status=1
  fi
}
# tests NAME COMMAND...: tests that count themselves.
tests() {
  echo "== $1"
  shift
  "$@" || status=1
}
# without WHAT: what a toolchain may lack.
without() {
  echo "skipped: there is no $1"
  echo "test result: ok. 0 passed; 0 failed; 1 ignored"
}
# blocks LANGUAGE FILE [NUMBER]: the blocks of code in a page, or the one of this number.
blocks() { python3 -B "$top/tests/readme.py" blocks "$2" "$1" ${3:-}; }
# all_blocks PAGE LANGUAGE=NUMBER...: fails when the page has other blocks than those that are run here.
all_blocks() { python3 -B "$top/tests/readme.py" count "$@"; }

# hello FILE: whether a program printed what the hello of every language does.
hello() { grep -q '^W is 96 x 384, W\[0\]\[0\] = ' "$1"; }
# mixture FILE: whether a program printed what examples/moe.cc does.
mixture() { blocks text "$top/examples/README.md" | grep ': experts [0-9] and ' | diff - "$1"; }
arguments="$top/tests/data/gptq-v1-sym-g128 model.layers.0.mlp.down_proj"
# readme_commands README: its commands, which are those of docs/hello.md, at most five, where it says that they work.
readme_commands() {
  blocks sh "$1" >"$scratch/hello.sh" && python3 -B "$top/tests/readme.py" hello "$top/docs/hello.md" "$(basename "$build")" >"$scratch/top.sh" &&
    diff "$scratch/top.sh" "$scratch/hello.sh" && (cd "$top" && sh -e "$scratch/hello.sh") >"$scratch/output" && hello "$scratch/output"
}
