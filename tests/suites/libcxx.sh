# about: every source, and every header alone, read by clang with libc++, for x86-64 and arm64
# inputs: src include tools examples shaders/common tests/libcxx
# seconds: 200
# when: changed
# packages: arm64
python3 -B tests/libcxx/sources_test.py
