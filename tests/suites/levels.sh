# about: units and C ABI at the lower instruction sets, and without sanitizers what the core runs under them
# inputs: .
# seconds: 1100
# when: whole
built tests all
unset METAL_MARLIN_WHOLE  # the suites kernels, plain and sanitizers run the long forms
for METAL_MARLIN_ISA in generic avx2; do
  ! [ "$METAL_MARLIN_ISA" = avx2 ] || grep -q -w avx2 /proc/cpuinfo 2>/dev/null || continue
  export METAL_MARLIN_ISA
  programs build/release "unit|abi" -E 'checkpoints|formats|huge|kernels|guard|^abi\.'
done
unset METAL_MARLIN_ISA
programs build/release "unit|abi|container|cuda|fuzz" -E '^abi\.'
programs build/release gpu -R '^gpu_(mock|memory|forced_kernel)_test$'
