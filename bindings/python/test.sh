#!/bin/sh
# test.sh PREFIX: tests the Python package with the library that is installed in PREFIX. The suite has made ready
# build/env/python, and build/python/wheels for what pip has to find without a network.
cd "$(dirname "$0")" || exit 1
. ../checks.sh
python=$top/build/env/python/bin/python
pip() { "$python" -m pip "$@"; }
# Two pools of threads, numpy's and ours, would wait for each other.
export OPENBLAS_NUM_THREADS=1
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 PIP_FIND_LINKS="$build/wheels" PIP_QUIET=1 PYTHONDONTWRITEBYTECODE=1

# made FOLDER: a wheel, by pip, with what is inside of it in FOLDER/inside.
made() {
  pip wheel -q --no-deps --no-build-isolation -w "$1" "$top" --config-settings "build-dir=$build/wheel" &&
    ls "$1"/*-py3-none-*.whl && "$python" -m zipfile -e "$1"/*.whl "$1/inside"
}
# Around an installed library, which pkg-config names, and around the file that METAL_MARLIN_LIBRARY names. The second has other bytes.
wheel() {
  { cat "$libraries/libmetal-marlin.so" && echo; } >"$scratch/named.so" || return 1
  METAL_MARLIN_LIBRARY="$scratch/named.so" made "$scratch/named" && cmp "$scratch/named.so" "$scratch/named/inside/metal_marlin/libmetal-marlin.so" &&
    made "$scratch/wheels" && cmp "$libraries/libmetal-marlin.so" "$scratch/wheels/inside/metal_marlin/libmetal-marlin.so" &&
    pip install -q --no-deps --force-reinstall "$scratch"/wheels/*.whl
}
python_tests() {
  (cd "$top" && "$python" -m pytest -q -rs --junit-xml "$scratch/tests.xml" bindings/python/tests) >"$scratch/tests"
  outcome=$?
  cat "$scratch/tests"
  sed -n 's/^SKIPPED \[\([0-9]*\)\] [^:]*:\([0-9]*: \)\{0,1\}\(.*\)/skipped: \3 (\1)/p' "$scratch/tests"
  sed -n 's/.* errors="\([0-9]*\)" failures="\([0-9]*\)" skipped="\([0-9]*\)" tests="\([0-9]*\)".*/\1 \2 \3 \4/p' "$scratch/tests.xml" |
    { read -r e f s all; echo "test result: all. $((all - e - f - s)) passed; $((e + f)) failed; $s ignored"; }
  return "$outcome"
}
# takes FILE|none: what library pip takes, and how it says so; "none": it would compile one.
takes() {
  rm -rf "$scratch/configured" && cmake -S . -B "$scratch/configured" >"$scratch/configure.log" 2>&1
  if [ "$1" = none ]; then grep "compiling the library, which takes some minutes" "$scratch/configure.log"
  else grep "taking $(readlink -f "$1");" "$scratch/configure.log"; fi
}
reuse() {
  # Where compiling would begin, a project without languages is enough.
  takes "$libraries/libmetal-marlin.so" && METAL_MARLIN_LIBRARY=COMPILE takes none && PKG_CONFIG_PATH=/nonexistent takes none &&
    cp "$libraries/libmetal-marlin.so" "$scratch/other.so" && METAL_MARLIN_LIBRARY=$scratch/other.so takes "$scratch/other.so" &&
    ! METAL_MARLIN_LIBRARY=$scratch/none.so takes none && grep "METAL_MARLIN_LIBRARY: expected a shared library, found no file" "$scratch/configure.log"
}
# Whoever waits at a terminal reads that a compiler runs, though pip hides the output of builds. PIP_QUIET keeps the terminal clean.
told() {
  command -v script >/dev/null || { echo "there is no program script(1)"; return 0; }
  export METAL_MARLIN_LIBRARY=COMPILE
  script -qec "cmake -S . -B '$scratch/told' >'$scratch/told.log' 2>&1" /dev/null </dev/null >"$scratch/quiet" &&
    ! grep . "$scratch/quiet" && unset PIP_QUIET &&
    script -qec "cmake -S . -B '$scratch/told' >'$scratch/told.log' 2>&1" /dev/null </dev/null >"$scratch/terminal" &&
    grep "compiling the library, which takes some minutes" "$scratch/terminal"
}
# What a package of sources holds, installed as the README tells: this builds the library.
readme_in_a_clean_copy() {
  (cd "$top" && "$python" -c "from scikit_build_core.build import build_sdist; build_sdist('$scratch')") &&
    mkdir "$scratch/copy" && tar -xf "$scratch"/*.tar.gz -C "$scratch/copy" --strip-components 1 || return 1
  ln -s "$top/tests" "$top/docs" "$scratch/copy"
  # Unoptimized: it is the build that is tested here, and not the installed library.
  export SKBUILD_CMAKE_BUILD_TYPE=None METAL_MARLIN_LIBRARY=COMPILE CMAKE_ARGS=-DCMAKE_UNITY_BUILD=ON
  all_blocks README.md sh=1 python=6 && top=$scratch/copy && readme_commands README.md
}

check "the wheel" wheel
tests "pytest" python_tests
check "a library that is there already" reuse
check "words at a terminal" told
check "mypy" sh -c "cd '$top' && '$python' -m mypy --cache-dir '$build/mypy' --python-executable '$python'"
check "README, hello" readme_in_a_clean_copy
exit $status
