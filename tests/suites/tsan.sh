# about: the tests with threads under ThreadSanitizer
# inputs: src/base src/core src/api src/backends/cpu/thread_pool.cc src/backends/cpu/thread_pool.h src/backends/cpu/jobs.cc src/backends/cpu/jobs.h src/backends/gpu tests/abi/threads_test.cc
# seconds: 130
# when: changed
# ThreadSanitizer needs its part of the address space free: where the kernel spreads mappings too widely for it, programs and
# all their children run without that (setarch -R), and where that is forbidden, not at all.
probe=build/tsan_probe
echo 'int main(void) { return 0; }' | clang-19 -fsanitize=thread -x c - -o $probe || left_out "this compiler has no ThreadSanitizer"
launcher=""
if ! $probe; then
  launcher="setarch -R"
  $launcher $probe || left_out "ThreadSanitizer cannot run here"
fi
with_kernels
built tsan marlin_tests_threads
[ -n "${METAL_MARLIN_WHOLE:-}" ] || export GTEST_FILTER='-*RowInvariance*'
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1 programs build/tsan threads
