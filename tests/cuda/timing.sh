# `./dev bench --backend cuda`, sourced by ./dev. With an option that names one table, or how to print it, that table; else all of
# them with these options.
bench_cuda() {
  local folder=build/cuda/tests/cuda argument table option status=0
  [ -e /dev/nvidiactl ] || die "bench --backend cuda: expected an NVIDIA GPU, found no /dev/nvidiactl on this machine"
  install_packages build test
  environment nvcc >&2 || exit 1
  build cuda metal_marlin_cuda_timing >&2 || exit 1
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
  exit $status
}
