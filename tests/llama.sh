# llama.cpp for the suites ggml and metal, sourced by tests/suites.sh.

# Compiling llama.cpp takes longer than most suites: only the long form does it.
llama_ready() {
  [ -z "${METAL_MARLIN_WHOLE:-}" ] || (compare_ready) || true
  [ -e build/compare/llama/llama_cpp/__init__.py ] && "$compare_venv/bin/python" -c "import sys; sys.path.insert(0, 'build/compare/llama'); import llama_cpp" 2>/dev/null
}
llama_why_not() {
  if [ -n "${METAL_MARLIN_WHOLE:-}" ]; then
    echo "$llama_package cannot be compiled here ($compare_venv.log)"
  else
    echo "llama.cpp is not compiled here; ./dev chat --compare or ./dev test whole ggml compiles it"
  fi
}

# fetch_llama_sources: leaves the Metal of llama.cpp's source package in build/llama-sources. Test data: nothing of it enters the tree.
llama_sources=build/llama-sources
fetch_llama_sources() {
  local archive names
  [ "$(cat $llama_sources/.package 2>/dev/null)" != "$llama_package" ] || return 0
  python3 -m pip --version >/dev/null 2>&1 || install_packages chat
  rm -rf $llama_sources && mkdir -p $llama_sources
  python3 -m pip --disable-pip-version-check --timeout 20 --retries 1 download --no-deps --no-binary :all: -d $llama_sources \
    "$llama_package" >$llama_sources.log 2>&1 || return 1
  archive=$(ls $llama_sources/*.tar.gz) && names=$(tar -tzf "$archive" | grep -E '/ggml/src/(ggml-metal/.*[a-z]$|ggml-common\.h$)') ||
    { echo "expected ggml/src/ggml-metal in the source package of $llama_package, found none" >>$llama_sources.log; return 1; }
  # shellcheck disable=SC2086
  tar -xzf "$archive" -C $llama_sources $names >>$llama_sources.log 2>&1 && rm "$archive" || return 1
  printf '%s' "$llama_package" >$llama_sources/.package
}
