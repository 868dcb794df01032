# about: all tests but the slow ones by g++ under its AddressSanitizer and UBSan, kernels and command among them
# inputs: .
# seconds: 900
# when: whole
built asan-gcc all
unset METAL_MARLIN_WHOLE  # the suite sanitizers runs the long forms, and for g++'s the numbers are alike
export GTEST_FILTER=-Load.ManyLayersByName  # which measures time
ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
  programs build/asan-gcc "unit|abi|container|gpu|cuda|fuzz|kernels|tools|llm" -E '^abi\.(headers|bindings|table)'
