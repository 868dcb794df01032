# `./dev bench --backend cuda`, and how the kernels of CUDA are compiled; sourced by ./dev, the suite cuda and `./dev wheel`.
# The tree of the CUDA kernels is build/cuda, where a spill is an error. Its compiler is fetched as Python packages (build/env/nvcc).
cuda_targets="sm_80;sm_90a;compute_100"
configure_cuda() {
  configure_tree cuda . -DMETAL_MARLIN_TESTS=ON -DMETAL_MARLIN_CUDA=ON -DMETAL_MARLIN_NVCC="$PWD/tests/cuda/nvcc.sh" \
    -DMETAL_MARLIN_NVCC_FLAGS="-Xptxas -Werror,-warn-spills" -DMETAL_MARLIN_CUDA_TARGETS="$1"
}
has_nvidia_gpu() { [ -e /dev/nvidiactl ]; }

# With an option that names one table, or how to print it, that table; else all of them with these options.
bench_cuda() {
  local folder=build/cuda/tests/cuda argument table option status=0
  has_nvidia_gpu || die "bench --backend cuda: expected an NVIDIA GPU, found no /dev/nvidiactl on this machine"
  install_packages build test
  use_ccache
  environment nvcc || die "$(why_not nvcc)"
  { configure_cuda "$cuda_targets" && build_tree cuda metal_marlin_cuda_timing; } >&2 || exit 1
  for argument; do
    case $argument in
      --decoder | --experts | --shapes* | --json* | --help | -h)
        exec "$folder/metal_marlin_cuda_timing" "$folder/read_floor.fatbin" "$@" ;;
    esac
  done
  for table in products decoder; do
    case $table in products) option= ;; *) option=--$table ;; esac
    "$folder/metal_marlin_cuda_timing" "$folder/read_floor.fatbin" "$@" ${option:+"$option"} --json "build/cuda-$table.jsonl" || status=1
    say ""
  done
  say "records: build/cuda-products.jsonl, build/cuda-decoder.jsonl"
  return $status
}
