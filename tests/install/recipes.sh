#!/bin/sh
# recipes.sh KIND SOURCE BUILD: the recipes of packaging/ for homebrew, vcpkg or conan, in the current folder.
# CONAN is the program, if there is one; CMAKE, CC and GENERATOR are those of the suite.
set -eu
kind=$1 source=$2 build=$3
here=$(cd "$(dirname "$0")" && pwd)
fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
version=$(sed -n 's/^#define MARLIN_VERSION_[MP][A-Z]* \([0-9]*\)$/\1/p' "$source/include/metal_marlin/metal_marlin.h" | paste -sd .)

case $kind in
  homebrew)
    command -v ruby >/dev/null || skip "ruby is not here to read the formula"
    ruby -wc "$source/packaging/metal-marlin.rb"
    # What Homebrew itself defines, as far as the formula asks at load time.
    ruby -e '
      class Formula
        @@calls = []
        def self.method_missing(name, *arguments, **named) = @@calls << [name, *arguments]
        def self.respond_to_missing?(*) = true
        def self.test(&block) = @@calls << [:test]
        def self.calls = @@calls
      end
      load ARGV[0]
      needed = %i[desc homepage license head depends_on test] - Formula.calls.map(&:first)
      abort "FAILED: the formula lacks #{needed}" unless needed.empty?
      abort "FAILED: the formula installs nothing" unless MetalMarlin.method_defined?(:install)
    ' "$source/packaging/metal-marlin.rb"
    ;;
  vcpkg)
    python3 -B "$here/vcpkg_manifest.py" "$source/packaging/vcpkg/metal-marlin" "$version"
    "$CMAKE" -D CURRENT_PORT_DIR="$source/packaging/vcpkg/metal-marlin" -D CURRENT_PACKAGES_DIR="$PWD/package" -D BUILD="$build" \
      -D GENERATOR="$GENERATOR" -P "$here/vcpkg_port.cmake"
    for file in include/metal_marlin/metal_marlin.h share/metal-marlin/copyright share/metal-marlin/usage tools/metal-marlin/metal-marlin; do
      [ -e "package/$file" ] || fail "the package of vcpkg has no $file"
    done
    [ ! -e package/bin ] || fail "the package of vcpkg has a folder bin"
    ;;
  conan)
    [ -x "${CONAN:-}" ] || skip "conan is not here to read the recipe"
    export CONAN_HOME=$PWD/home PYTHONDONTWRITEBYTECODE=1
    unset CC CXX # Conan finds the compiler of this system by itself
    "$CONAN" profile detect >profile.log 2>&1
    "$CONAN" export "$source/packaging/conan" >export.log 2>&1 || { cat export.log; fail "conan export"; }
    "$CONAN" inspect "$source/packaging/conan" >inspect.log
    grep -q "^version: $version\$" inspect.log || { cat inspect.log; fail "the recipe's version is not $version"; }
    [ -n "${METAL_MARLIN_WHOLE:-}" ] || exit 0
    # The libraries of others are those of this system, under the names that Conan knows them by.
    for package in nlohmann_json/3.11.2/nlohmann_json cli11/2.3.2/CLI11 fmt/9.1.0/fmt; do
      name=${package%%/*} rest=${package#*/}
      "$CONAN" export "$here/conan_system_package" --name "$name" --version "${rest%%/*}" >>system.log 2>&1 || { cat system.log; fail "$name"; }
    done
    for options in "" "-o &:shared=True -o &:tools=True"; do
      # shellcheck disable=SC2086
      "$CONAN" create "$source/packaging/conan" --no-remote --build=missing $options >create.log 2>&1 ||
        { tail -n 60 create.log; fail "conan create $options"; }
      grep -q "^metal-marlin $version" create.log || { tail -n 20 create.log; fail "the program of the recipe's test did not run"; }
    done
    ;;
  *) fail "no recipe for $kind" ;;
esac
