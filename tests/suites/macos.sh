# about: for macOS and iOS: the library, tools and examples cross-compiled; what was linked, read back
# inputs: src/base src/backends/metal src/backends/cpu include tests/macos cmake/apple.cmake examples tools
# seconds: 230
# when: changed
# packages: macos
[ "$(uname -s)" = Linux ] || left_out "the other suites are of this system"
needs packages macos
needs environment zig
# Nothing of it runs: it compiles and links. ccache takes the version and the script of the compilers for the compiler.
export CCACHE_COMPILERTYPE=clang ZIG_GLOBAL_CACHE_DIR=$PWD/build/zig-cache ZIG_LOCAL_CACHE_DIR=$PWD/build/zig-cache
python3 -B tests/macos/sdk.py build/apple "$(ls -d "$PWD"/build/env/zig/lib/python3*/site-packages/ziglang)"
CCACHE_COMPILERCHECK="string:$(cat packaging/requirements/zig.txt) $(cksum <build/apple/macos/bin/clang++)"
export CCACHE_COMPILERCHECK PATH=$PWD/tests/macos/stand_in:$PATH  # has a stand-in for xcrun
built ios metal_marlin
built macos all metal-marlin-chat
rm -rf "$ZIG_LOCAL_CACHE_DIR"  # which keeps each object that it ever made
python3 -B tests/macos/macos_test.py build/apple build/macos build/ios
