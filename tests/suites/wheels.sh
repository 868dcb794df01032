# about: wheels for Linux on x86-64 and arm64: what they need, and products in a fresh environment and under QEMU
# inputs: .
# seconds: 900
# when: whole
# packages: wheel arm64
. ./packaging/wheel/wheel.sh
[ "$(uname -s)" = Linux ] || left_out "the workflow installs the wheel of this system"
one_at_a_time wheel x86_64 aarch64
build/env/wheel/bin/python -B packaging/wheel/wheel_test.py $wheel_folder/*.whl
