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
# expect_folder FOLDER VARIABLE EXPECTED: what the package file in FOLDER says of a folder
expect_folder() {
  found=$(PKG_CONFIG_PATH=$1/pkgconfig pkg-config --variable="$2" metal-marlin)
  [ "$(realpath -m "$found")" = "$3" ] || fail "$1: $2 is $found, expected $3"
}
# clean_package_file FOLDER LIBDIR INCLUDEDIR: the package file in FOLDER names these two, literally.
clean_package_file() {
  for variable in "libdir=$2" "includedir=$3"; do
    found=$(PKG_CONFIG_PATH=$1/pkgconfig pkg-config --variable="${variable%%=*}" metal-marlin)
    [ "$found" = "${variable#*=}" ] || fail "$1: ${variable%%=*} is $found, expected ${variable#*=}"
  done
}
# use_prefix PREFIX: C and C++ link and run by pkg-config and by CMake, and the command runs.
use_prefix() {
  "$CC" $strict "$here/consumer/consumer.c" $(pc "$1" --cflags) $(pc "$1" --libs) -o consumer
  "$CXX" -std=c++20 -Wall -Wextra -Werror "$here/consumer/consumer.cc" $(pc "$1" --cflags) $(pc "$1" --libs) -o consumer_cc
  with_library "$1" ./consumer
  with_library "$1" ./consumer_cc
  configure_consumer -DCMAKE_PREFIX_PATH="$1" >configure.log && "$CMAKE" --build build >build.log
  ./build/consumer_c && ./build/consumer_cc && ./build/consumer_static
  with_library "$1" "$1/bin/metal-marlin" --version
}

case $case in
  prefix)
    rm -rf "$prefix"
    "$CMAKE" --install "$BUILD" --prefix "$prefix" >install.log
    for file in include/metal_marlin/metal_marlin.h include/metal_marlin/metal_marlin.hpp "$LIBDIR/libmetal-marlin.a" \
      "$LIBDIR/pkgconfig/metal-marlin.pc" "$LIBDIR/cmake/metal-marlin/metal-marlin-config.cmake" bin/metal-marlin \
      share/man/man1/metal-marlin.1 share/doc/metal-marlin/README.md \
      share/doc/metal-marlin/docs/hello.md share/doc/metal-marlin/examples/mlp.c; do
      [ -e "$prefix/$file" ] || fail "$file is not installed"
    done
    for license in "MIT License" "BSD 3-Clause License"; do # of what is compiled in
      grep -q "$license ---" "$prefix/share/doc/metal-marlin/NOTICE" || fail "no text of the $license is installed"
    done
    extra=$(cd "$prefix" && find . -type f | grep -v -E "^\./(include/metal_marlin/metal_marlin\.hp*|$LIBDIR/(libmetal-marlin\.|pkgconfig/metal-marlin\.pc|cmake/metal-marlin/)|bin/metal-marlin$|share/(man/man1/metal-marlin\.1|doc/metal-marlin/))" || true)
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
    # Folders relative to the prefix, absolute ones, a staged install and one elsewhere: what the file says must be where things lie.
    for libdir in lib lib/some-triplet "$work/own/lib"; do
      rm -rf build stage elsewhere
      "$CMAKE" -S "$SOURCE" -B build -G "$GENERATOR" -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" \
        -DMETAL_MARLIN_TOOLS=OFF -DCMAKE_INSTALL_PREFIX=/opt/marlin/ -DCMAKE_INSTALL_LIBDIR="$libdir" >configure.log
      touch build/libmetal-marlin.a build/libmetal-marlin.so build/libmetal-marlin.dylib # which nothing here reads
      case $libdir in
        /*) full=$libdir ;;
        *) full=/opt/marlin/$libdir ;;
      esac
      DESTDIR=$work/stage "$CMAKE" --install build --component dev >install.log
      clean_package_file "$work/stage$full" "$full" /opt/marlin/include
      [ "$full" != "$libdir" ] || continue
      "$CMAKE" --install build --component dev --prefix "$work/elsewhere" >install.log
      mkdir -p moved && rm -rf moved/here && mv elsewhere moved/here
      expect_folder "$work/moved/here/$libdir" libdir "$work/moved/here/$libdir"
      expect_folder "$work/moved/here/$libdir" includedir "$work/moved/here/include"
    done
    ;;
  uninstall)
    "$CMAKE" --build "$BUILD" --target help | grep -q uninstall || fail "there is no target uninstall"
    # What `cmake --install` and the target do, in a folder of its own: other suites install from the same build folder.
    "$CMAKE" --install "$BUILD" --prefix "$work/stage/opt" >install.log
    (cd stage && find opt ! -type d | sed 's|^|/|') >install_manifest.txt
    echo kept >stage/opt/include/metal_marlin/of_somebody_else.h
    for component in debian_library debian_dev tools; do # which cpack writes, of files that a package may have installed
      echo /opt/include/metal_marlin/of_somebody_else.h >install_manifest_$component.txt
    done
    DESTDIR=$work/stage "$CMAKE" -D BUILD="$work" -P "$SOURCE/cmake/uninstall.cmake" 2>uninstall.log || { cat uninstall.log; fail "uninstall"; }
    left=$(find stage ! -type d)
    [ "$left" = stage/opt/include/metal_marlin/of_somebody_else.h ] || fail "expected one file of somebody else, found: $left"
    [ ! -e "stage/opt/$LIBDIR/cmake/metal-marlin" ] || fail "a folder of this project is left"
    [ -d "stage/opt/$LIBDIR/cmake" ] || fail "a folder is gone that others may have made"
    ! "$CMAKE" -D BUILD="$work" -P "$SOURCE/cmake/uninstall.cmake" 2>again.log || fail "it uninstalls what is not installed"
    grep -q 'install_manifest.txt' again.log || { cat again.log; fail "another error was expected"; }
    mkdir -p _CPack_Packages && touch _CPack_Packages/staged && echo "$work/_CPack_Packages/staged" >install_manifest.txt
    ! "$CMAKE" -D BUILD="$work" -P "$SOURCE/cmake/uninstall.cmake" 2>again.log || fail "it uninstalls what cpack staged"
    ;;
  moved_prefix)
    cp -R "$prefix" first && mv first second
    use_prefix "$work/second"
    ./second/bin/metal-marlin --version
    ;;
  find_package)
    configure_consumer -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
    "$CMAKE" --build build
    ./build/consumer_c && ./build/consumer_cc && ./build/consumer_static && ./build/consumer_moe "$SOURCE/tests/data/qwen3moe-gptq-experts"
    ;;
  wrong_version)
    if configure_consumer -DCMAKE_PREFIX_PATH="$prefix" -DWANTED_VERSION=99.0 >configure.log 2>&1; then
      fail "find_package took this version for version 99"
    fi
    grep -q 'compatible with requested version' configure.log || { cat configure.log; fail "another error was expected"; }
    ;;
  static_from_c)
    # Two projects that know no C++: by CMake, and by the flags of docs/embed.md.
    printf 'cmake_minimum_required(VERSION 3.22)\nproject(x C)\nfind_package(metal-marlin 0.9 REQUIRED)\n' >CMakeLists.txt
    printf 'add_executable(x consumer.c)\ntarget_link_libraries(x metal_marlin::static)\n' >>CMakeLists.txt
    cp "$here"/consumer/consumer.c "$here"/consumer/*.h .
    "$CMAKE" -S . -B build -G "$GENERATOR" -DCMAKE_C_COMPILER="$CC" -DCMAKE_PREFIX_PATH="$prefix" >configure.log
    "$CMAKE" --build build >build.log || { cat build.log; fail "a C project does not link the static library"; }
    ./build/x
    [ "$(uname)" != Darwin ] || exit 0
    "$CC" $strict consumer.c $(pc "$prefix" --cflags) $(pc "$prefix" --static --libs | sed 's/-lmetal-marlin/-Wl,-Bstatic & -Wl,-Bdynamic/') -o by_flags
    ! readelf -d by_flags | grep -q libmetal-marlin || fail "the flags of docs/embed.md link the shared library"
    ./by_flags
    ;;
  optimized)
    # Whatever the build type of a project is, the library is optimized, unless the project's own flags say how.
    for how in CMAKE_BUILD_TYPE= CMAKE_BUILD_TYPE=Debug CMAKE_BUILD_TYPE=Release CMAKE_CXX_FLAGS=-O1 CMAKE_CXX_FLAGS_DEBUG=-g; do
      rm -rf build
      printf 'cmake_minimum_required(VERSION 3.22)\nproject(x C CXX)\nadd_subdirectory("%s" marlin)\n' "$SOURCE" >CMakeLists.txt
      "$CMAKE" -S . -B build -G "$GENERATOR" -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
        "-D$how" >configure.log || { cat configure.log; fail "it cannot be configured with $how"; }
      grep -q 'metal-marlin [0-9.]*: optimized, CPU kernels .*, with' configure.log || { cat configure.log; fail "it does not say what it is"; }
      grep '"command".*/gemm\.cc' build/compile_commands.json >commands || fail "it compiles no gemm.cc"
      ! grep -v -e ' -O[13]' commands || fail "it is not optimized with $how"
      [ "$how" != CMAKE_CXX_FLAGS=-O1 ] || ! grep -e ' -O3' commands || fail "it overrides the project's own flags"
    done
    "$CMAKE" -S "$SOURCE" -B alone -G "$GENERATOR" -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_BUILD_TYPE=Debug \
      -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >configure.log
    grep -q ': not optimized,' configure.log || fail "it says of a debug build that it is optimized"
    ! grep -q -e ' -O3' alone/compile_commands.json || fail "a debug build of the library alone is optimized"
    ;;
  subdirectory)
    # Optimized little, and a folder's files as one: it is the build that is tested here.
    configure_consumer -DMETAL_MARLIN_SOURCE="$SOURCE" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_UNITY_BUILD=ON -DCMAKE_CXX_FLAGS=-O1 &&
      "$CMAKE" --build build --target consumer_c consumer_cc consumer_moe
    [ ! -e build/CPackConfig.cmake ] || fail "a project that adds this one gets its packages"
    ./build/consumer_c && ./build/consumer_cc && ./build/consumer_moe "$SOURCE/tests/data/qwen3moe-gptq-experts"
    case $(uname -m) in
      x86_64) others=src/backends/cpu/arm64/ ;;
      *) others=src/backends/cpu/x86/ ;;
    esac
    ! grep -q "\"file\".*$others" build/compile_commands.json || fail "it compiles files of another processor: $others"
    if configure_consumer -B alone -DMETAL_MARLIN_SOURCE="$SOURCE" -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON >alone.log 2>&1; then
      fail "it was configured without nlohmann_json"
    fi
    tr -s '\n ' ' ' <alone.log | grep -q "metal-marlin needs nlohmann_json 3.10 or later" || { cat alone.log; fail "another error was expected"; }
    # Constants are casts of C, for which no program can do anything.
    printf '#include <metal_marlin/metal_marlin.hpp>\nfloat x; marlin_matrix m = metal_marlin::matrix_view(&x, 1, 1);\n' >casts.cc
    printf 'bool ok(marlin_status s) { return s == MARLIN_OK || s == MARLIN_E_SHAPE || m.dtype == MARLIN_F32; }\n' >>casts.cc
    "$CXX" -std=c++17 -Wall -Wextra -Wold-style-cast -Werror -fsyntax-only -I"$SOURCE/include" casts.cc || fail "warnings under -Wold-style-cast"
    printf '#include <metal_marlin/metal_marlin.hpp>\ndouble x; marlin_matrix m = metal_marlin::matrix_view(&x, 1, 1);\n' >double.cc
    ! "$CXX" -std=c++17 -fsyntax-only -I"$SOURCE/include" double.cc 2>double.log || fail "a matrix of double compiles"
    grep -q 'expected float, metal_marlin::f16' double.log || { cat double.log; fail "another error was expected"; }
    ;;
  dlopen)
    "$CC" $strict -I"$prefix/include" "$here/consumer/plugin_host.c" -ldl -o host
    ./host "$(ls "$prefix/$LIBDIR"/libmetal-marlin.so.0 "$prefix/$LIBDIR"/libmetal-marlin.0.dylib 2>/dev/null)"
    ;;
  packages)
    for tool in dpkg-deb dpkg-shlibdeps file gzip; do
      command -v $tool >/dev/null || skip "$tool is not here to make packages with"
    done
    umask 077 # of whoever builds them, and of no package
    (cd "$BUILD" && "$CPACK" -G DEB -B "$work") >cpack.log || { cat cpack.log; fail "cpack"; }
    umask 022
    installed_libdir=$LIBDIR
    LIBDIR=lib/$("$CC" -print-multiarch)
    places="libmetal-marlin0=same=usr/$LIBDIR/libmetal-marlin\.so\.[0-9.]*
      libmetal-marlin-dev=same=usr/(include|$LIBDIR/(pkgconfig|cmake)|share/doc/libmetal-marlin-dev)/.*|usr/$LIBDIR/libmetal-marlin\.(a|so)
      metal-marlin=foreign=usr/bin/metal-marlin|usr/share/man/.*"
    for place in $places; do
      package=${place%%=*} files=${place#*=*=} architectures=${place#*=}
      dpkg-deb -x "$package"_*.deb root
      dpkg-deb --fsys-tarfile "$package"_*.deb | tar -t | sed -n '/[^/]$/s|^\./||p' |
        grep -v -E "^usr/share/(doc/$package/(copyright|changelog.*\.gz)|lintian/overrides/$package)\$" >"$package.files"
      others=$(dpkg-deb -c "$package"_*.deb | grep -v -E '^([d-]rwxr-xr-x|-rw-r--r--|lrwxrwxrwx) root/root ' || true)
      [ -z "$others" ] || fail "not for all to read, or not root's: $others"
      others=$(grep -v -x -E "$files" "$package.files" || true)
      [ -z "$others" ] || fail "$package has, and should not: $others"
      [ "$(dpkg-deb -f "$package"_*.deb Multi-Arch)" = "${architectures%%=*}" ] || fail "$package is not Multi-Arch: ${architectures%%=*}"
      [ "$package" = libmetal-marlin0 ] ||
        dpkg-deb -f "$package"_*.deb Depends | grep -q "libmetal-marlin0 (= $(dpkg-deb -f "$package"_*.deb Version))" ||
        fail "$package does not depend on its own version of the library"
    done
    [ "$(ls -- *.deb | wc -l)" = 3 ] || fail "more than three packages: $(ls -- *.deb)"
    sort -- *.files | sed "s|^usr/||; s|\.1\.gz\$|.1|
      s|^$LIBDIR/|$installed_libdir/|; s|^share/doc/libmetal-marlin-dev/|share/doc/metal-marlin/|" | sort >packaged
    # The license is in the file copyright there, and the changelog beside it.
    (cd "$prefix" && find . ! -type d | sed 's|^\./||' | grep -v '^share/doc/metal-marlin/\(LICENSE\|CHANGELOG\.md\)$' | sort) >installed
    diff installed packaged || fail "what cmake --install installs is not what is in exactly one package"
    clean_package_file "$work/root/usr/$LIBDIR" "/usr/$LIBDIR" /usr/include
    ! readelf -d root/usr/bin/metal-marlin | grep -E 'RPATH|RUNPATH' || fail "the command of the package has a path of its own to the library"
    sh "$here/symbols.sh" "$SOURCE" "$work"
    export PKG_CONFIG_SYSROOT_DIR="$work/root" PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
    use_prefix "$work/root/usr"
    ;;
  lintian)
    command -v lintian >/dev/null || skip "lintian is not here to check packages"
    [ -e "$SCRATCH/packages/packaged" ] || skip "there are no packages to check"
    lintian --allow-root --fail-on error,warning "$SCRATCH"/packages/*.deb
    ;;
  readme)
    for page in README docs/async docs/choosing docs/command docs/embed docs/hello docs/slow docs/threads docs/wrong; do
      python3 -B "$SOURCE/tests/readme.py" run "$SOURCE/$page.md" "$prefix" "$work/page"
    done
    for language in c c++; do python3 -B "$SOURCE/tests/readme.py" hello "$SOURCE/docs/hello.md" $language; done
    ;;
  examples)
    python3 -B "$SOURCE/tests/readme.py" run "$SOURCE/examples/README.md" "$prefix" "$work/page"
    python3 -B "$here/examples_test.py" "$SOURCE"
    for file in "$SOURCE"/examples/*.c*; do
      grep -q "examples/${file##*/} " "$SOURCE/examples/README.md" || fail "examples/README.md does not run ${file##*/}"
    done
    ;;
  recipe_*) sh "$here/recipes.sh" "${case#recipe_}" "$SOURCE" "$BUILD" ;;
  *) fail "no case $case" ;;
esac
