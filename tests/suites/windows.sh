# about: for Windows on x86-64: the library, the command, examples, tests of kernels and files, cross-compiled and run under Wine; the wheel
# inputs: src include tools examples cmake pyproject.toml packaging/wheel bindings/python/metal_marlin tests/windows tests/unit tests/kernels tests/data
# seconds: 550
# when: changed
# packages: windows
[ "$(uname -sm)" = "Linux x86_64" ] || left_out "Wine runs programs for x86-64 on Linux for x86-64"
needs packages windows
needs environment zig
needs environment wheel
# ccache takes the version and the target for the compiler, which is a script.
export CCACHE_COMPILERTYPE=clang ZIG_GLOBAL_CACHE_DIR=$PWD/build/zig-cache ZIG_LOCAL_CACHE_DIR=$PWD/build/zig-objects
CCACHE_COMPILERCHECK="string:$(cat packaging/requirements/zig.txt) x86_64-windows-gnu"
export CCACHE_COMPILERCHECK
# A tree of its own: the images of CUDA's kernels in it are names of files, so that what embeds them is tested without nvcc.
tree=build/windows-test
cmake --preset windows -B $tree -DMETAL_MARLIN_TESTS=ON -DMETAL_MARLIN_CUDA=ON -DMETAL_MARLIN_NVCC="$PWD/tests/windows/nvcc.sh" >/dev/null
one_at_a_time cmake --build $tree -j "$jobs" --target metal_marlin metal-marlin base_system_test kernels_test kernels_worked_test \
  windows_checkpoints_test
rm -rf "$ZIG_LOCAL_CACHE_DIR"  # which keeps each object that it ever made
. ./packaging/wheel/wheel.sh
windows_wheel "$PWD/$tree/bin/metal-marlin.dll"
# Wine keeps its drive C in a folder of its own, and says little.
export WINEPREFIX=$PWD/build/wine WINEDEBUG=-all METAL_MARLIN_EMULATED=1
/usr/lib/wine/wine64 wineboot --init >build/wine.log 2>&1
programs $tree unit -R '^(base_system_test|kernels_test|kernels_worked_test|windows_checkpoints_test)$'
python3 -B tests/windows/windows_test.py $tree "$(ls build/wheels/*-win_amd64.whl)"
