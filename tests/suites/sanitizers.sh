# about: the library, its C ABI and the hosts of GPUs by clang with a hardened libc++, under AddressSanitizer and UBSan
# inputs: src include tests
# seconds: 465
# when: core
with_kernels
built asan all
export ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1:malloc_context_size=4 UBSAN_OPTIONS=print_stacktrace=1
GTEST_FILTER='-ExpertsOfManyTokens*:*MayFillTheirScratch:LargeProducts*:Load.ManyLayersByName' \
  programs build/asan "unit|abi|container|gpu|cuda|fuzz|kernels|llm" -E '^abi\.(headers|bindings|table|pinned)|^(generic|avx.*|neon|dotprod|i8mm)\.'
