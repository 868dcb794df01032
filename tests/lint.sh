# ./dev format and ./dev lint, sourced by ./dev.
# Without the shaders that plant mistakes, whose comments belong to the lines where they stand, and without the scripts of suites.
sources() {
  find include src shaders tools examples bindings/ggml tests \
    '(' -path tests/metal_on_cpu/shaders/tests/shaders -o -path tests/suites ')' -prune -o -type f -print |
    grep -E '\.(cc|h|hpp|c|inc|mm|metal|cu|cuh)$' | sort
}
llvm_tool() {
  command -v "$1-19" || { command -v brew >/dev/null && ls "$(brew --prefix llvm@19)/bin/$1"; } || die "$1 19 is not installed"
}

format() {
  install_packages lint
  sources | xargs "$(llvm_tool clang-format)" -i
}

# tidy FILE... -- FLAG...: clang-tidy. .clang-tidy says why the static analyzer is shallow.
tidy_options="--quiet --warnings-as-errors=* --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=mode=shallow"
tidy() {
  # shellcheck disable=SC2086
  nice build/env/tidy/bin/clang-tidy $tidy_options "$@"
}
# tidy_tree: CMake runs clang-tidy where it compiles a file, so that files that were clean and have not changed are not read again.
tidy_tree() {
  local checks
  checks=$(cksum <.clang-tidy | tr ' ' _)
  cmake --preset release -B build/lint -DCMAKE_UNITY_BUILD=OFF -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" \
    -DCMAKE_CXX_CLANG_TIDY="$PWD/build/env/tidy/bin/clang-tidy;${tidy_options// /;};--extra-arg=-DCHECKS=$checks" >/dev/null &&
    nice cmake --build build/lint -j "$jobs" --target metal_marlin_objects tools/all examples/llm/all examples/distributed/all -- -k 0
}
lint_workflows() {
  if environment actionlint; then
    build/env/actionlint/bin/actionlint .github/workflows/*.yml
  elif environment check-jsonschema; then
    say "read with a schema alone: .github/workflows"
    build/env/check-jsonschema/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
  else
    say "not read: .github/workflows"
  fi
}
lint() {
  local failed=0
  install_packages build lint
  sources | xargs "$(llvm_tool clang-format)" --dry-run -Werror || die "run ./dev format"
  environment tidy || exit 1
  tidy_tree || failed=1
  tidy examples/*.c -- -std=c99 -Iinclude || failed=1
  tidy examples/*.cc -- -std=c++20 -Iinclude || failed=1
  if environment ggml; then
    tidy bindings/ggml/src/*.cc -- -std=c++20 -Iinclude -DMARLIN_GGML_MAJOR=0 -DMARLIN_GGML_MINOR=20 \
      -isystem build/env/ggml/lib/python3*/site-packages/libggml/include || failed=1
  else
    say "not read: bindings/ggml"
  fi
  [ "$failed" = 0 ] || die "clang-tidy has complaints"
  lint_workflows || die "the workflows have mistakes"
  say "lint: clean, $SECONDS s"
}
