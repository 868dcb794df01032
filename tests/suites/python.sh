# about: the Python package: its wheel, tests, types, README; torch where there is one
# inputs: bindings/python bindings/checks.sh pyproject.toml include src/api
# seconds: 140
# when: changed
. ./tools/races/compare.sh
needs environment python
if [ ! -e build/env/python/.more ]; then
  # shellcheck disable=SC2046  # two requirements
  build/env/python/bin/pip download -q -d build/python/wheels \
    $(grep -E '^(numpy|scikit-build-core)' packaging/requirements/python.txt) || left_out "the Python packages cannot be downloaded"
  torch_if_here build/env/python
  touch build/env/python/.more
fi
with_kernels
binding python
