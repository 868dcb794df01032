#!/bin/sh
# test.sh PREFIX: tests the crates with the library that is installed in PREFIX.
cd "$(dirname "$0")" || exit 1
. ../checks.sh
export CARGO_TARGET_DIR="$build/target" CARGO_NET_OFFLINE=true CARGO_INCREMENTAL=0

# have TOOL: a toolchain can be without it.
have() {
  cargo "$1" --version >/dev/null 2>&1 && return 0
  without "cargo $1"
  return 1
}
# A project of its own, with the dependency that the README tells; its other program is the block of docs/hello.md.
readme_project() {
  app=$scratch/app
  mkdir -p "$app/src/bin" && ln -s "$top" "$app/metal-marlin" && cp metal-marlin/examples/hello.rs "$app/src/bin/app.rs" &&
    blocks rust "$top/docs/hello.md" >"$app/src/bin/top.rs" &&
    { printf '[package]\nname = "app"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n'; blocks toml metal-marlin/README.md; } >"$app/Cargo.toml" &&
    (cd "$app" && cargo build) && export "$with_libraries" &&
    "$CARGO_TARGET_DIR/debug/app" $arguments >"$scratch/output" && hello "$scratch/output" &&
    (cd "$top" && "$CARGO_TARGET_DIR/debug/top") | grep -x 'y\[0\]\[0\] = -0\.802'
}
# The archive, carried along: the program needs no shared library of ours.
static() {
  METAL_MARLIN_STATIC=1 CARGO_TARGET_DIR=$CARGO_TARGET_DIR/static cargo run --example hello $arguments >"$scratch/output" &&
    hello "$scratch/output" && ! grep -q 'libmetal-marlin\.so' "$CARGO_TARGET_DIR/static/debug/examples/hello"
}
# A mixture of experts, and a file that is not there: `main` returns the error, which prints as one line.
moe() {
  export "$with_libraries"
  cargo run --example moe "$top/tests/data/qwen3moe-gptq-experts" >"$scratch/output" && mixture "$scratch/output" &&
    ! cargo run -q --example moe /nonexistent.gguf 2>"$scratch/output" && cat "$scratch/output" &&
    [ "$(wc -l <"$scratch/output")" = 1 ] && grep -q "^Error: MARLIN_E_FILE: /nonexistent.gguf: " "$scratch/output"
}
# Without an installed library it is built from the sources. But for the whole tests, a stand-in for CMake has it ready.
from_sources() {
  printf '#!/bin/sh\n[ "$1" != --build ] || cp "%s/libmetal-marlin.a" "$2"\n' "$libraries" >"$scratch/cmake" && chmod +x "$scratch/cmake" || return 1
  [ -n "${METAL_MARLIN_WHOLE:-}" ] || export CMAKE="$scratch/cmake"
  export PKG_CONFIG=/nonexistent CARGO_TARGET_DIR="$CARGO_TARGET_DIR/built"
  cargo run --example hello $arguments >"$scratch/output" && hello "$scratch/output" &&
    ! CMAKE=/nonexistent cargo build >"$scratch/output" 2>&1 && grep '/nonexistent does not run .*; set CMAKE' "$scratch/output"
}
# What a build says that finds neither the library nor the sources.
not_found() {
  cp -R metal-marlin-sys "$scratch/sys" && cd "$scratch/sys" &&
    ! PKG_CONFIG_PATH=/nonexistent PKG_CONFIG_LIBDIR=/nonexistent CARGO_TARGET_DIR=$CARGO_TARGET_DIR/lost \
      cargo build >"$scratch/output" 2>&1 && grep -q 'set PKG_CONFIG_PATH to its lib/pkgconfig' "$scratch/output"
}

have fmt && check "cargo fmt" cargo fmt --check
if have clippy; then
  check "clippy" cargo clippy --locked --all-targets --all-features -- -D warnings
  check "clippy, loaded only" cargo clippy --locked --all-targets --no-default-features --features load -- -D warnings
fi
tests "linked, and loaded as well" cargo test --locked --all-features --no-fail-fast
tests "loaded only" env "$with_libraries" cargo test --locked --no-default-features --features load --tests --no-fail-fast
check "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features
check "README, no other blocks" all_blocks metal-marlin/README.md rust=1 sh=1 toml=1
check "README, hello" readme_commands metal-marlin/README.md
check "READMEs, a project" readme_project
check "a mixture of experts" moe
check "the static library" static
check "from the sources" from_sources
check "no library" not_found
exit $status
