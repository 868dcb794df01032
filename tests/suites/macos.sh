# about: for macOS and iOS: the library, tools and examples cross-compiled; what was linked, read back
# inputs: src/base src/backends/metal src/backends/cpu include tests/macos cmake/apple.cmake examples tools
# seconds: 230
# when: changed
# packages: macos
. ./tests/macos/apple.sh
[ "$(uname -s)" = Linux ] || { left_out "the other suites are of this system"; exit 0; }
[ -z "$(missing_packages macos)" ] || { left_out "the packages of group macos cannot be installed"; exit 0; }
apple_compilers_ready || { left_out "$(why_not zig)"; exit 0; }
use_ccache
# Nothing of it runs: it compiles and links. Only the long form compiles the C++ tests.
configure_apple macos -DMETAL_MARLIN_TESTS="$([ -n "${METAL_MARLIN_WHOLE:-}" ] && echo ON || echo OFF)"
configure_apple ios -DCMAKE_SYSTEM_NAME=iOS -DMETAL_MARLIN_TOOLS=OFF -DCMAKE_PROJECT_INCLUDE="$PWD/tests/macos/precompile.cmake"
one_at_a_time build_tree ios metal_marlin
one_at_a_time build_tree macos all metal-marlin-chat
rm -rf "$ZIG_LOCAL_CACHE_DIR"  # which keeps each object that it ever made
script python3 -B tests/macos/macos_test.py build/apple build/macos build/ios
