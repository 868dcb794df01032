# about: files that the command writes, read by the Python packages of others; the tool that plants mistakes; the parts of the race
# inputs: src/layouts src/checkpoints tools tests/roundtrip tests/mutation tests/races
# seconds: 20
# when: changed
built release metal-marlin metal_marlin
environment roundtrip || { left_out "roundtrip: $(why_not roundtrip)"; exit 0; }
# Without the packages that it wants (torch): only its compiled code for the CPU runs; its checks skip themselves without it.
pip_in roundtrip install --no-deps bitsandbytes==0.50.2 >>build/env/roundtrip.log 2>&1 || true
script build/env/roundtrip/bin/python tests/roundtrip/round_trip.py "$marlin"
environment mutation || { left_out "mutation: $(why_not mutation)"; exit 0; }
script build/env/mutation/bin/python -B tests/mutation/mutation_test.py
