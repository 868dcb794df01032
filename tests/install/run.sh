#!/bin/sh
# run.sh CASE: what somebody who installs, links or embeds the library does, in folders of its own under $SCRATCH.
# Exit status 77: skipped, with the reason printed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case=$1
prefix=$SCRATCH/installed
work=$SCRATCH/$case
rm -rf "$work" && mkdir -p "$work" && cd "$work"

fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
strict="-std=c99 -pedantic -Wall -Wextra -Wconversion -Werror"
# pc PREFIX OPTION...
pc() {
  package_path=$1/$LIBDIR/pkgconfig
  shift
  PKG_CONFIG_PATH=$package_path pkg-config "$@" metal-marlin
}
# with_library PREFIX COMMAND...
with_library() {
  LD_LIBRARY_PATH=$1/$LIBDIR DYLD_LIBRARY_PATH=$1/$LIBDIR sh -c 'shift; "$@"' - "$@"
}
# configure_consumer ARGUMENT...: the CMake project in consumer/, built in ./build
configure_consumer() {
  "$CMAKE" -S "$here/consumer" -B build -G "$GENERATOR" -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" "$@"
}

case $case in
  prefix)
    rm -rf "$prefix"
    "$CMAKE" --install "$BUILD" --prefix "$prefix" >install.log
    for file in include/metal_marlin/metal_marlin.h include/metal_marlin/metal_marlin.hpp "$LIBDIR/libmetal-marlin.a" \
      "$LIBDIR/pkgconfig/metal-marlin.pc" "$LIBDIR/cmake/metal-marlin/metal-marlin-config.cmake" bin/metal-marlin \
      share/man/man1/metal-marlin.1; do
      [ -e "$prefix/$file" ] || fail "$file is not installed"
    done
    extra=$(cd "$prefix" && find . -type f | grep -v -E "^\./(include/metal_marlin/metal_marlin\.hp*|$LIBDIR/(libmetal-marlin\.|pkgconfig/metal-marlin\.pc|cmake/metal-marlin/)|bin/metal-marlin$|share/man/man1/metal-marlin\.1)" || true)
    [ -z "$extra" ] || fail "installed without a reason: $extra"
    ;;
  library) sh "$here/library.sh" "$prefix/$LIBDIR" ;;
  command)
    "$prefix/bin/metal-marlin" --version | grep -q "$(sed -n 's/^Version: //p' "$prefix/$LIBDIR/pkgconfig/metal-marlin.pc")" ||
      fail "the installed command does not say the installed version"
    command -v mandoc >/dev/null || skip "mandoc is not here to check the man page"
    mandoc -T lint -W warning "$prefix/share/man/man1/metal-marlin.1"
    ;;
  pkg_config)
    "$CC" $strict "$here/consumer/consumer.c" $(pc "$prefix" --cflags) $(pc "$prefix" --libs) -o consumer
    with_library "$prefix" ./consumer
    ;;
  pkg_config_static)
    echo 'int main(void) { return 0; }' >probe.c
    "$CC" -static probe.c -o probe 2>probe.log || skip "this system has no static C library"
    "$CC" $strict -static "$here/consumer/consumer.c" $(pc "$prefix" --cflags) $(pc "$prefix" --static --libs) -o consumer
    ./consumer
    ;;
  pkg_config_folders)
    # Folders relative to the prefix, absolute ones, and a staged install: what the file says must be where things lie.
    for libdir in lib lib/some-triplet "$work/elsewhere/lib"; do
      rm -rf build
      "$CMAKE" -S "$SOURCE" -B build -G "$GENERATOR" -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" \
        -DMETAL_MARLIN_TOOLS=OFF -DCMAKE_INSTALL_PREFIX=/opt/marlin -DCMAKE_INSTALL_LIBDIR="$libdir" >configure.log
      case $libdir in
        /*) place=$libdir expected=$libdir include=/opt/marlin/include ;;
        *) place=$work/stage/opt/marlin/$libdir expected=$place include=$work/stage/opt/marlin/include ;;
      esac
      mkdir -p "$place/pkgconfig" && cp build/metal-marlin.pc "$place/pkgconfig/"
      export PKG_CONFIG_PATH="$place/pkgconfig"
      found=$(realpath -m "$(pkg-config --variable=libdir metal-marlin)")
      [ "$found" = "$expected" ] || fail "LIBDIR $libdir: libdir is $found, expected $expected"
      found=$(realpath -m "$(pkg-config --variable=includedir metal-marlin)")
      [ "$found" = "$include" ] || fail "LIBDIR $libdir: includedir is $found, expected $include"
    done
    ;;
  moved_prefix)
    cp -R "$prefix" first && mv first second
    "$CC" $strict "$here/consumer/consumer.c" $(pc "$work/second" --cflags) $(pc "$work/second" --libs) -o consumer
    with_library "$work/second" ./consumer
    configure_consumer -DCMAKE_PREFIX_PATH="$work/second" >configure.log && "$CMAKE" --build build >build.log
    ./build/consumer_c
    ./second/bin/metal-marlin --version
    ;;
  find_package)
    configure_consumer -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
    "$CMAKE" --build build
    ./build/consumer_c && ./build/consumer_cc && ./build/consumer_static
    ;;
  wrong_version)
    if configure_consumer -DCMAKE_PREFIX_PATH="$prefix" -DWANTED_VERSION=99.0 >configure.log 2>&1; then
      fail "find_package took this version for version 99"
    fi
    grep -q 'compatible with requested version' configure.log || { cat configure.log; fail "another error was expected"; }
    ;;
  subdirectory)
    # Unoptimised: it is the build that is tested here.
    configure_consumer -DMETAL_MARLIN_SOURCE="$SOURCE" && "$CMAKE" --build build --target consumer_c consumer_cc
    ./build/consumer_c && ./build/consumer_cc
    ;;
  dlopen)
    "$CC" $strict -I"$prefix/include" "$here/consumer/plugin_host.c" -ldl -o host
    ./host "$(ls "$prefix/$LIBDIR"/libmetal-marlin.so.0 "$prefix/$LIBDIR"/libmetal-marlin.0.dylib 2>/dev/null)"
    ;;
  readme)
    python3 -B "$SOURCE/tests/readme.py" run "$SOURCE/README.md" "$prefix" "$work/page"
    ;;
  examples)
    python3 -B "$SOURCE/tests/readme.py" run "$SOURCE/examples/README.md" "$prefix" "$work/page"
    python3 -B "$here/examples_test.py" "$SOURCE"
    for file in "$SOURCE"/examples/*.c*; do
      grep -q "examples/${file##*/} " "$SOURCE/examples/README.md" || fail "examples/README.md does not run ${file##*/}"
    done
    ;;
  *) fail "no case $case" ;;
esac
