# ./dev format and ./dev lint, sourced by ./dev.
# Without the shaders that plant mistakes: their comments belong to the lines where they stand.
sources() {
  find include src shaders tools examples bindings/ggml tests \
    -path tests/metal_on_cpu/shaders/tests/shaders -prune -o -type f -print |
    grep -E '\.(cc|h|hpp|c|inc|mm|metal|cu|cuh)$' | sort
}
llvm_tool() {
  command -v "$1-19" || { command -v brew >/dev/null && ls "$(brew --prefix llvm@19)/bin/$1"; } || die "$1 19 is not installed"
}

format() {
  install_packages lint
  sources | xargs "$(llvm_tool clang-format)" -i
}

# tidy OPTION...: clang-tidy over the files of stdin, but those that were clean and have not changed since (build/tidy).
tidy() {
  nice xargs python3 -B tests/tidy.py --tidy build/env/tidy/bin/clang-tidy --cache build/tidy --jobs "$jobs" "$@"
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
  local failed=0 ggml=build/env/ggml flags file
  install_packages build lint
  sources | xargs "$(llvm_tool clang-format)" --dry-run -Werror || die "run ./dev format"
  cmake --preset release -B build/lint -DCMAKE_UNITY_BUILD=OFF >/dev/null || exit 1
  environment tidy || exit 1
  sources | grep -E '^(src|tools|examples)/.*\.cc$' | tidy -p build/lint || failed=1
  ls examples/*.c | tidy --flags="-std=c99 -Iinclude" || failed=1
  ls examples/*.cc | tidy --flags="-std=c++20 -Iinclude" || failed=1
  if environment ggml; then
    flags="-isystem $(ls -d "$ggml"/lib/python3*/site-packages/libggml/include)"
    flags="$flags -DMARLIN_GGML_MAJOR=0 -DMARLIN_GGML_MINOR=20"
    ls bindings/ggml/src/*.cc | tidy --flags="-std=c++20 -Iinclude $flags" || failed=1
  else
    say "not read: bindings/ggml"
  fi
  [ "$failed" = 0 ] || die "clang-tidy has complaints"
  lint_workflows || die "the workflows have mistakes"
  say "lint: clean, $SECONDS s"
}
