# Compilers for macOS and iOS, sourced by the suite macos.
# The trees of the suite macos are build/macos and build/ios, of compilers in build/apple, without optimization: what would run
# runs elsewhere, and without assertions, whose texts name folders. ccache takes the version and the script of the compilers for the compiler.
apple_compilers_ready() {
  local zig
  environment zig && zig=$(ls -d "$PWD"/build/env/zig/lib/python3*/site-packages/ziglang) || return 1
  export CCACHE_COMPILERTYPE=clang ZIG_GLOBAL_CACHE_DIR=$PWD/build/zig-cache ZIG_LOCAL_CACHE_DIR=$PWD/build/zig-cache
  python3 -B tests/macos/sdk.py build/apple "$zig" >build/apple.log 2>&1 || { cat build/apple.log; return 1; }
  CCACHE_COMPILERCHECK="string:$(cat packaging/requirements/zig.txt) $(cksum <build/apple/macos/bin/clang++)"
  export CCACHE_COMPILERCHECK PATH=$PWD/tests/macos/stand_in:$PATH
}
# configure_apple SYSTEM [CMAKE OPTION...]
configure_apple() {
  local system=$1
  shift
  configure_tree "$system" . -DCMAKE_TOOLCHAIN_FILE="$PWD/tests/macos/toolchain.cmake" -DMARLIN_APPLE_FOLDER="$PWD/build/apple" \
    -DMARLIN_APPLE_SYSTEM="$system" -DCMAKE_BUILD_TYPE=None "-DCMAKE_CXX_FLAGS=-O0 -DNDEBUG" "-DCMAKE_OBJCXX_FLAGS=-O0 -DNDEBUG" \
    -DCMAKE_COMPILE_WARNING_AS_ERROR=ON "$@"
}
