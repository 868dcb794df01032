#!/bin/sh
# xcframework.sh [FOLDER]: builds the library for macOS and iOS, and FOLDER/MetalMarlin.xcframework of it (default: build/xcframework).
# It needs a Mac with Xcode, CMake, Ninja, pkg-config and the header of nlohmann-json. Every slice is a static library with the C
# header and a module map, so that Swift, too, imports it as CMetalMarlin. A program links Metal and Foundation by itself.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/xcframework}
[ "$(uname -s)" = Darwin ] || { echo "xcframework.sh: expected macOS, found $(uname -s)" >&2; exit 1; }
json=$(pkg-config --variable=includedir nlohmann_json) || { echo "xcframework.sh: nlohmann-json is not installed" >&2; exit 1; }
mkdir -p "$out"

# slice NAME [CMAKE OPTION...]: a static library for one system.
slice() {
  name=$1
  shift
  cmake -G Ninja -S . -B "$out/$name" -DCMAKE_BUILD_TYPE=Release -DCMAKE_OSX_ARCHITECTURES=arm64 -DMETAL_MARLIN_TOOLS=OFF \
    -DMETAL_MARLIN_INSTALL=OFF -DCMAKE_PROJECT_INCLUDE="$PWD/packaging/json.cmake" -DMARLIN_JSON_INCLUDE="$json" "$@"
  cmake --build "$out/$name" --target metal_marlin_static
}
slice macos
slice ios -DCMAKE_SYSTEM_NAME=iOS -DCMAKE_OSX_SYSROOT=iphoneos
slice ios-simulator -DCMAKE_SYSTEM_NAME=iOS -DCMAKE_OSX_SYSROOT=iphonesimulator

headers=$out/headers
rm -rf "$headers" "$out/MetalMarlin.xcframework"
mkdir -p "$headers/metal_marlin"
cp include/metal_marlin/metal_marlin.h include/metal_marlin/metal_marlin.hpp "$headers/metal_marlin/"
# In the folder of the headers: Xcode copies the headers of all frameworks into one, where a second module.modulemap is an error.
cat >"$headers/metal_marlin/module.modulemap" <<'END'
module CMetalMarlin {
  header "metal_marlin.h"
  link "c++"
  link framework "Foundation"
  link framework "Metal"
  export *
}
END
set --
for name in macos ios ios-simulator; do
  set -- "$@" -library "$out/$name/libmetal-marlin.a" -headers "$headers"
done
xcodebuild -create-xcframework "$@" -output "$out/MetalMarlin.xcframework"
cp LICENSE NOTICE "$out"
