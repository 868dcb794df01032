# about: a release: what is made without a compiler twice, the same bytes; its wheels in a fresh environment and under QEMU
# inputs: .
# seconds: 400
# when: whole
# packages: package wheel arm64
[ "$(uname -s)" = Linux ] || left_out "the workflow installs the wheel of this system"
# A header of a version that the changelog does not begin with.
another_version() {
  local header=include/metal_marlin/metal_marlin.h folder=build/results/another_version
  mkdir -p $folder/${header%/*} && sed 's/\(VERSION_PATCH\) .*/\1 77/' $header >$folder/$header && cp CHANGELOG.md $folder &&
    ! (. ./packaging/release.sh && cd $folder && release_version) >$folder/said 2>&1 && grep "expected '## [0-9.]*\.77 (DATE)'" $folder/said
}
check "a version without changes" another_version
# (./dev release --twice, which compiles all of it twice, is for who makes the release.)
check "two archives are equal" one_at_a_time ./dev release --twice source sbom
check "wheels" one_at_a_time ./dev release wheels
build/env/wheel/bin/python -B packaging/wheel/wheel_test.py build/releases/*/files/*.whl
