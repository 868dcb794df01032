# ./dev docs, sourced by ./dev and by the suite docs. Without a network once the packages are there; Rust's pages only where cargo is.
docs() {
  install_packages docs
  environment docs || return 1
  mkdir -p build/docs
  python3 -B tests/abi/abi_table.py include/metal_marlin/metal_marlin.h --json build/docs/abi_table.json || return 1
  if command -v cargo >/dev/null; then
    (cd bindings/rust && DOCS_RS=1 CARGO_TARGET_DIR=../../build/docs/rust RUSTDOCFLAGS="-D warnings" \
      cargo doc -q --locked --offline --no-deps --all-features) || return 1
  fi
  # Not with -q, which hides warnings from strict, too.
  NO_MKDOCS_2_WARNING=1 build/env/docs/bin/mkdocs build -f docs/site/mkdocs.yml >build/docs/mkdocs.log 2>&1 ||
    { cat build/docs/mkdocs.log; return 1; }
  python3 -B docs/site/links.py build/site &&
    say "build/site, in $SECONDS s; python3 -m http.server -d build/site shows it, with its search"
}
