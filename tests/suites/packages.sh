# about: packaged, moved, embedded and uninstalled; the recipes of others
# inputs: cmake pkgconfig packaging include src/api tests/install CMakeLists.txt tools
# seconds: 240
# when: changed
# packages: package
# data: include cmake pkgconfig packaging src/api tests/install
built tests all
environment conan || true  # the test of the recipe skips itself
with_kernels
programs build/release install -E '\.(readme|examples)$'
