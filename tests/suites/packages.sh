# about: packaged, moved, embedded and uninstalled; the recipes of others; README.md and the examples, block by block
# inputs: cmake pkgconfig packaging include src/api tests/install README.md examples CMakeLists.txt tools
# seconds: 240
# when: changed
# packages: package
# data: include cmake pkgconfig packaging src/api tests/install README.md examples
built tests all
environment conan || true  # the test of the recipe skips itself
with_kernels
programs build/release install
