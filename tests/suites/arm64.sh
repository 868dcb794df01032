# about: the kernels for arm64, cross-compiled, on processors that QEMU shows
# inputs: src/backends/cpu/arm64 src/backends/cpu/generic tests/unit/kernels_test.cc tests/unit/kernels_problem.h tests/problem tests/arm64
# seconds: 430
# when: changed
# packages: arm64
[ "$(uname -m)" != aarch64 ] || left_out "this is arm64: the other suites are of it"
needs packages arm64
built arm64 metal_marlin kernels_test cpu_features_test
export METAL_MARLIN_EMULATED=1  # the short form takes a third of the kernels' cases, by chance
python3 -B tests/arm64/hot_loops.py build/arm64/CMakeFiles/metal_marlin_objects.dir/src/backends/cpu/arm64/*.o
only='^(kernels_test|cpu_features_test)$'
QEMU_CPU=cortex-a53 programs build/arm64 unit -R "$only"
QEMU_CPU=max GTEST_FILTER='-*cpu_generic_*:*cpu_neon_*' programs build/arm64 unit -R "$only"
[ -n "${METAL_MARLIN_WHOLE:-}" ] || exit 0
QEMU_CPU=neoverse-n1 GTEST_FILTER='-*cpu_generic_*:*cpu_neon_*' programs build/arm64 unit -R "$only"
