# `./dev bench --backend cuda`, sourced by ./dev.
bench_cuda() {
  [ -e /dev/nvidiactl ] || die "bench --backend cuda: expected an NVIDIA GPU, found no /dev/nvidiactl on this machine"
  python3 -c 'import numpy, torch' || die "bench --backend cuda: expected a python3 that has torch and numpy"
  install_packages build test
  environment nvcc >&2 || exit 1
  build cuda metal_marlin metal_marlin_read_floor >&2 || exit 1
  exec python3 -B tests/cuda/timing.py "$@"
}
