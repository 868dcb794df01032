# about: every kernel of the CPU against the oracle, and at the edge of its memory
# inputs: src/backends/cpu src/formats src/core src/base include tests/problem tests/kernels tests/unit tests/reference
# seconds: 135
# when: core
# Of lower instruction sets, the core runs two programs at two.
others="(avx512.*|neon|dotprod|i8mm)\\.|(generic|avx2)\\.(determinism|experts|guard_pages|row_invariance|shared_activations)"
built tests tests/kernels/all kernels_test kernels_worked_test kernels_row_invariance_unit_test cpu_features_test
if [ -n "${METAL_MARLIN_WHOLE:-}" ]; then
  programs build/release "kernels|unit" -E "^unit_"
else
  programs build/release "kernels|unit" -E "^(unit_|$others)"
fi
