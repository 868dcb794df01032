#!/bin/sh
# test.sh PREFIX: tests the Swift package with the library that is installed in PREFIX.
cd "$(dirname "$0")" || exit 1
. ../checks.sh
export "$with_libraries"

# swift_tests PACKAGE SCRATCH: Swift Testing counts its tests in words, and those that fail one by one.
# Of the package in the top folder, SwiftPM 6.3 cannot read its plan of an earlier run ("unknown build description").
swift_tests() {
  rm -f "$2"/*/debug/description.json
  swift test --package-path "$1" --scratch-path "$2" >"$scratch/tests" 2>&1
  outcome=$?
  cat "$scratch/tests"
  all=$(sed -n 's/.*Test run with \([0-9]*\) tests.*/\1/p' "$scratch/tests")
  failed=$(grep -c 'Test [A-Za-z0-9_]*(.*) .*failed after' "$scratch/tests")
  [ "$outcome" = 0 ] || [ "$failed" != 0 ] || failed=1
  echo "test result: all. $((${all:-$failed} - failed)) passed; $failed failed; 0 ignored"
  return "$outcome"
}
# program NAME PAGE NUMBER [CHECK]: a block of a page as a file of the project, with what must be true at its end.
program() {
  { echo 'import MetalMarlin'; echo "func $1() async throws {"; blocks swift "$2" "$3" | grep -v '^import '; echo "${4:-}"; echo '}'; } \
    >"$app/Sources/app/$1.swift"
}
# A mixture of experts; and what the program prints of a file that is not there.
moe() {
  "$build/build/debug/moe" "$top/tests/data/qwen3moe-gptq-experts" >"$scratch/output" && mixture "$scratch/output" &&
    ! "$build/build/debug/moe" /nonexistent >"$scratch/output" && grep '^MARLIN_E_FILE: /nonexistent: ' "$scratch/output"
}
# A project of its own, with the manifest that the README tells; its programs are those of the README and of docs/hello.md.
# SwiftPM takes the name of its folder for its identity, and takes no dependency of the same identity.
readme_project() {
  app=$scratch/swift
  mkdir -p "$app/Sources/app" && ln -s "$top" "$app/metal-marlin" && blocks swift README.md 2 >"$app/Package.swift" || return 1
  program package README.md 1 'precondition(y.contains { $0 != 0 })'
  program top "$top/docs/hello.md" 1 'precondition(y.contains { $0 != 0 })'
  program stream README.md 3
  echo 'try await package(); try await top(); try await stream()' >"$app/Sources/app/main.swift"
  swift build --scratch-path "$build/app" --package-path "$app" && (cd "$top" && "$build/app/debug/app") >"$scratch/output" &&
    [ "$(cat "$scratch/output")" = 32.0 ]
}
# That the compiler has no warnings, all links of the documentation lead somewhere, and all parameters are told.
documentation() {
  symbols=$build/documentation/symbols # beside the build, which makes them anew only when something has changed
  mkdir -p "$symbols" && swift build --scratch-path "$build/documentation" --target MetalMarlin -Xswiftc -warnings-as-errors \
    -Xswiftc -emit-symbol-graph -Xswiftc -emit-symbol-graph-dir -Xswiftc "$symbols" &&
    docc convert Sources/MetalMarlin/MetalMarlin.docc --additional-symbol-graph-dir "$symbols" \
      --output-path "$scratch/documentation" --warnings-as-errors
}
# SwiftPM reads all that lies in a target's folder, and follows links. In build there are links to the top folder.
no_target_reads_builds() { ! grep -n 'path: "\."' "$top/Package.swift"; }
# That the manifest of the top folder names the folders of all sources that Linux needs. Other suites compile these sources.
manifest_has_all_sources() {
  (cd "$top/src" && find . -name '*.cc' ! -path './backends/metal/*' ! -name '*_windows.cc' && echo ./backends/metal/absent.cc) | sed 's|^\./||' | sort >"$scratch/there"
  swift package --package-path "$top" --scratch-path "$build/source" describe --type json >"$scratch/described.json" &&
    python3 -c 'import json, sys
targets = {target["name"]: target["sources"] for target in json.load(open(sys.argv[1]))["targets"]}
print(*targets["CMetalMarlin"], sep="\n")' "$scratch/described.json" | sort | diff "$scratch/there" -
}
# What SwiftPM makes of the top folder's manifest on Apple's systems: the Metal host is in it, and what it takes from nlohmann-json has
# the names that this package has (Package.swift of its release 3.12.0). Nothing is compiled.
apple_manifest() {
  apple=$scratch/apple json=$scratch/nlohmann/json
  mkdir -p "$apple/bindings" "$json/single_include/nlohmann" && : >"$json/single_include/nlohmann/json.hpp" || return 1
  cat >"$json/Package.swift" <<'END'
// swift-tools-version: 5.9
import PackageDescription
let package = Package(
  name: "nlohmann-json", products: [.library(name: "json", targets: ["json"])],
  targets: [.target(name: "json", path: "single_include/nlohmann", publicHeadersPath: ".")])
END
  (cd "$json" && git init -q && git add . && git -c user.name=test -c user.email=test@localhost commit -q -m test && git tag 3.12.0) &&
    sed 's/#if os(Linux)/#if os(Windows)/' "$top/Package.swift" >"$apple/Package.swift" &&
    ln -s "$top/src" "$apple/src" && ln -s "$top/bindings/swift" "$apple/bindings/swift" || return 1
  on_apple() { swift package --package-path "$apple" --scratch-path "$scratch/apple-build" --cache-path "$scratch/cache" \
    --security-path "$scratch/security" "$@"; }
  on_apple config set-mirror --original https://github.com/nlohmann/json --mirror "file://$json" &&
    on_apple show-dependencies >"$scratch/output" 2>&1 && on_apple describe >"$scratch/described" || { cat "$scratch/output"; return 1; }
  grep -q backends/metal/stream.mm "$scratch/described" && ! grep absent.cc "$scratch/described"
}
# other_version TABLE WORDS: what a program says that finds a library with this marlin_get_api.
other_version() {
  mkdir -p "$scratch/other"
  echo "#include <stdint.h>
    const uint32_t table[4] = {16, 0, 0, 0};
    const void* marlin_get_api(uint32_t major) { (void)major; return $1; }" >"$scratch/other.c"
  echo 'marlin_0 { global: marlin_get_api; };' >"$scratch/other.map"
  cc -shared -fPIC -Wl,-soname,libmetal-marlin.so.0,--version-script,"$scratch/other.map" "$scratch/other.c" -o "$scratch/other/libmetal-marlin.so.0" || return 1
  LD_LIBRARY_PATH=$scratch/other "$build/build/debug/hello" $arguments >"$scratch/output" 2>&1
  [ $? = 1 ] && grep "^MARLIN_E_UNSUPPORTED: libmetal-marlin: expected ABI .*$2" "$scratch/output"
}

tests "swift test" swift_tests . "$build/build"
check "a mixture of experts" moe
check "no target reads folders of builds" no_target_reads_builds
# SwiftPM compiles the whole library for this, each file alone.
if [ -n "${METAL_MARLIN_WHOLE:-}" ] || [ "$(uname -s)" != Linux ]; then
  tests "swift test, from source" swift_tests "$top" "$build/source"
else
  check "sources of the top folder's manifest" manifest_has_all_sources
fi
check "the manifest of Apple's systems" apple_manifest
check "another ABI" other_version 0 "does not serve"
check "an older library" other_version table "found 0.0"
check "README, no other blocks" all_blocks README.md sh=1 swift=3
check "README, hello" readme_commands README.md
check "README, a project" readme_project
if command -v docc >/dev/null; then check "documentation" documentation; else without docc; fi
if swift format --version >/dev/null 2>&1; then
  check "swift format" swift format lint --strict --recursive Package.swift "$top/Package.swift" Sources Tests
else
  without "swift format"
fi
exit $status
