# about: files that the command writes, read by the Python packages of others
# inputs: src/layouts src/checkpoints tools tests/roundtrip tests/told.py
# seconds: 20
# when: changed
built tests metal-marlin metal_marlin
needs environment roundtrip
# Without the packages that it wants (torch): only its compiled code for the CPU runs; its checks skip themselves without it.
build/env/roundtrip/bin/pip install -q --no-deps bitsandbytes==0.50.2 || true
build/env/roundtrip/bin/python tests/roundtrip/round_trip.py "$marlin"
