# about: installed, found by pkg-config and CMake, loaded by dlopen; the sources for arm64 compile
# inputs: .
# seconds: 20
# when: core
# data: include cmake pkgconfig src/api tests/install README.md examples
# shellcheck disable=SC2086
built tests $release_targets
programs build/release install -R '\.(prefix|pkg_config|find_package|dlopen)$'
python3 -B tests/libcxx/sources_test.py src/backends/cpu/arm64
