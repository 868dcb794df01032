# The campaigns that go on for as long as one likes, sourced by ./dev, and the table of all of them.

mutate() {
  install_packages build test
  (install_packages testbed framework) || true  # without them the tests of shaders and of Metal are left out
  environment mutation || exit 1
  exec build/env/mutation/bin/python -B tests/mutation/mutate.py "$@"
}

# fuzz [TARGET] [SECONDS]
fuzz() {
  install_packages build fuzz
  build fuzz fuzz_targets >&2 || exit 1
  python3 -B tests/fuzz/fuzz.py build/fuzz "$@"
}

# soak [SECONDS]: divides the time among its tests, which print their seeds and count their cases.
soak() {
  local seconds=${1:-240} test filter log=build/soak.log status=0
  case $seconds in '' | *[!0-9]*) die "soak: expected a number of seconds, found $seconds" ;; esac
  install_packages build test
  build tests kernels_covering_test abi_threads_test abi_plugin_test >&2 || exit 1
  export METAL_MARLIN_SOAK_SECONDS=$(((seconds + 3) / 4))
  while read -r test filter; do
    if "build/release/tests/$test" --gtest_filter="$filter" --gtest_output="json:build/soak.json" </dev/null >"$log" 2>&1; then
      say "passed $filter: $(sed -n 's/.*"cases": "\{0,1\}\([0-9]*\).*/\1/p' build/soak.json) cases, $(grep -o -m 1 'SEED=[0-9]*' "$log" || echo "no seed")"
    else
      say "FAILED $filter, $(grep -o -m 1 'METAL_MARLIN_SOAK_SEED=[0-9]*' "$log" || echo "no seed")" && tail -n 30 "$log"
      status=1
    fi
  done <<'END'
kernels/kernels_covering_test RandomProducts.StayWithinTheirBounds
abi/abi_threads_test ThreadsTest.AnyNumberOfThreadsShareAContext
abi/abi_plugin_test PluginTest.LoadCallUnloadLeavesNothing
abi/abi_plugin_test Fork.TheChildComputesAndTakesItsCopyDown
END
  return $status
}

# reliability [ROW...]
reliability() {
  install_packages build test package reliability
  environment differential >&2 || true
  (install_packages testbed) || true
  local lines words
  lines=$(python3 -B tests/reliability/reliability.py --targets "$@") || exit 1
  # shellcheck disable=SC2086  # a preset and its targets
  while read -r words; do [ -z "$words" ] || build $words </dev/null >&2 || exit 1; done <<<"$lines"
  python3 -B tests/reliability/reliability.py "$@"
}
