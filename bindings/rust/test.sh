#!/bin/sh
# test.sh PREFIX: tests the crates with the library that is installed in PREFIX. Uses no network. Each check of its own prints a
# line as cargo's tests do: "test result: ...".
set -u
cd "$(dirname "$0")" || exit 1
prefix=$1
here=$PWD
top=$here/../..
status=0
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name metal-marlin.pc)")
libraries=$(dirname "$PKG_CONFIG_PATH")
scratch=$top/build/rust/scratch
export PKG_CONFIG_PATH
export CARGO_TARGET_DIR="$top/build/rust/target" CARGO_NET_OFFLINE=true CARGO_INCREMENTAL=0
rm -rf "$scratch" && mkdir -p "$scratch"

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
# have TOOL: a toolchain can be without it.
have() {
  cargo "$1" --version >/dev/null 2>&1 && return 0
  echo "skipped: there is no cargo $1"
  echo "test result: ok. 0 passed; 0 failed; 1 ignored"
  return 1
}
# blocks LANGUAGE FILE
blocks() { awk -v language="$1" '$0 == "```" language { inside = 1; next } /^```$/ { inside = 0 } inside' "$2"; }

hello() { grep -q '^W is 96 x 384, W\[0\]\[0\] = ' "$1"; }
arguments="$top/tests/data/gptq-v1-sym-g128 model.layers.0.mlp.down_proj"

# The commands of the README, where it says that they work.
readme_commands() {
  blocks sh metal-marlin/README.md >"$scratch/hello.sh"
  [ "$(wc -l <"$scratch/hello.sh")" -le 5 ] && (cd "$top" && sh -e "$scratch/hello.sh") >"$scratch/output" && hello "$scratch/output"
}
# A project of its own, with the dependency that the README tells; its other program is the block of the top folder's README.
readme_project() {
  app=$scratch/app
  mkdir -p "$app/src/bin" && ln -s "$(cd "$top" && pwd)" "$app/metal-marlin" && cp metal-marlin/examples/hello.rs "$app/src/bin/app.rs" &&
    {
      echo 'fn main() -> Result<(), Box<dyn std::error::Error>> {'
      blocks rust "$top/README.md"
      echo 'assert!(y.iter().any(|&y| y != 0.0)); Ok(()) }'
    } >"$app/src/bin/top.rs" &&
    { printf '[package]\nname = "app"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n'; blocks toml metal-marlin/README.md; } >"$app/Cargo.toml" &&
    (cd "$app" && cargo build) && export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" &&
    "$CARGO_TARGET_DIR/debug/app" $arguments >"$scratch/output" && hello "$scratch/output" && (cd "$top" && "$CARGO_TARGET_DIR/debug/top")
}
# The archive, carried along: the program needs no shared library of ours.
static() {
  METAL_MARLIN_STATIC=1 CARGO_TARGET_DIR=$CARGO_TARGET_DIR/static cargo run --example hello $arguments >"$scratch/output" &&
    hello "$scratch/output" && ! grep -q 'libmetal-marlin\.so' "$CARGO_TARGET_DIR/static/debug/examples/hello"
}
# What a build says that does not find the library.
not_found() {
  ! PKG_CONFIG_PATH=/nonexistent PKG_CONFIG_LIBDIR=/nonexistent CARGO_TARGET_DIR=$CARGO_TARGET_DIR/lost \
    cargo build >"$scratch/output" 2>&1 && grep -q 'set PKG_CONFIG_PATH to its lib/pkgconfig' "$scratch/output"
}

have fmt && check "cargo fmt" cargo fmt --check
if have clippy; then
  check "clippy" cargo clippy --locked --all-targets --all-features -- -D warnings
  check "clippy, loaded only" cargo clippy --locked --all-targets --no-default-features --features load -- -D warnings
fi
tests "linked, and loaded as well" cargo test --locked --all-features --no-fail-fast
tests "loaded only" env "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" cargo test --locked --no-default-features --features load --tests --no-fail-fast
check "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features
check "README, hello" readme_commands
check "READMEs, a project" readme_project
check "the static library" static
check "no library" not_found
exit $status
