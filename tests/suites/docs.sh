# about: README.md, the guides of docs and the examples, block by block; the site of ./dev docs, and each of its links
# inputs: docs README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md examples include bindings packaging tests/install tests/abi/abi_table.py tests/readme.py tests/docs dev
# seconds: 30
# when: changed
# packages: docs
# data: include README.md docs examples tests/install tests/readme.py
# shellcheck disable=SC2086
built tests $release_targets
programs build/release install -R '\.(prefix|readme|examples)$'
# docs/async.md needs what no machine of tests has: CUDA's header, of which a stand-in has what the page calls, and Metal's.
mkdir -p build/docs
strict="-Wall -Wextra -Wconversion -Werror -fsyntax-only -Iinclude"
python3 -B tests/readme.py blocks docs/async.md c >build/docs/async.c
python3 -B tests/readme.py blocks docs/async.md objc >build/docs/async.m
check "docs/async.md, C" cc -std=c99 -pedantic $strict -isystem tests/docs build/docs/async.c
if command -v clang-19 >/dev/null; then
  check "docs/async.md, Objective-C" clang-19 -x objective-c -std=c11 -target "$(uname -m)-apple-macos14" $strict -fobjc-arc -fblocks \
    -U__nonnull -U__nullable -D_GNU_SOURCE -isystem tests/metal_on_cpu/framework/include -isystem /usr/include \
    -isystem "/usr/include/$(cc -print-multiarch)" build/docs/async.m
else
  echo "skipped docs/async.md, Objective-C: there is no clang-19"
fi
. ./docs/site/site.sh
needs environment docs
check "the site" docs
check "a dead link is found" python3 -B tests/docs/links_test.py
