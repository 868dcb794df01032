# `./dev bench`, and what `./dev chat --compare` needs beside it; sourced by ./dev. Each package is tried once; delete build/compare
# to try again.
compare_env=build/env/compare
compare_packages="mlx[cpu]==0.32.4 onnxruntime==1.31.1 onnx==1.23.2 $(grep -v '^#' packaging/requirements/ggml.txt)"
# llama.cpp with a newer ggml in it, which pip compiles for this machine from its source package.
llama_package='llama-cpp-python==0.3.36'

compare_ready() {
  local llama=build/compare/llama flags=""
  environment compare >&2 || exit 1
  [ "$(cat "$llama/.tried" 2>/dev/null)" != "$llama_package" ] || return 0
  say "compiling: $llama_package, for this machine" >&2
  rm -rf "$llama" && mkdir -p "$llama"
  # Without AMX, because the AMX kernels of this ggml crash where they load their tiles.
  [ "$(uname -m)" != x86_64 ] || flags="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
  CFLAGS=$flags CXXFLAGS=$flags CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF" CMAKE_BUILD_PARALLEL_LEVEL=$jobs \
    $compare_env/bin/pip install -q --no-cache-dir --no-deps --no-binary llama-cpp-python --target "$llama" "$llama_package" \
    >>$compare_env.log 2>&1 || say "it could not be built ($compare_env.log)" >&2
  printf '%s' "$llama_package" >"$llama/.tried"
}
# llama_is_here: whether the program of `./dev chat --compare` is there. Compiling it takes longer than most suites: only the long
# form of the tests does it.
llama_is_here() {
  [ -z "${METAL_MARLIN_WHOLE:-}" ] || (compare_ready) || true
  [ -e build/compare/llama/llama_cpp/__init__.py ] &&
    $compare_env/bin/python -c "import sys; sys.path.insert(0, 'build/compare/llama'); import llama_cpp" 2>/dev/null
}

# torch_if_here ENVIRONMENT: a torch is used when pip finds one on this machine, and never downloaded.
torch_if_here() {
  ! "$1/bin/pip" install -q --no-deps --no-index torch ||
    "$1/bin/pip" install -q filelock fsspec jinja2 networkx sympy typing-extensions || true
}

compare() {
  local package
  compare_ready
  if [ "$(cat $compare_env/.tried 2>/dev/null)" != "$compare_packages" ]; then
    for package in $compare_packages; do
      say "installing: $package" >&2
      $compare_env/bin/pip install -q "$package" >>$compare_env.log 2>&1 || say "not to be had: $package ($compare_env.log)" >&2
    done
    printf '%s' "$compare_packages" >$compare_env/.tried
  fi
  exec $compare_env/bin/python -B tools/races "$@"
}

bench() {
  [ "${1:-} ${2:-}" != "--backend cuda" ] || { shift 2; . ./tests/cuda/timing.sh; bench_cuda "$@"; }
  install_packages build
  # shellcheck disable=SC2086
  build release $release_targets >&2 || exit 1
  [ "${1:-}" != --compare ] || { shift; compare "$@"; }
  exec "$marlin" bench "$@"
}
