#!/bin/sh
# nvcc.sh ARGUMENT...: the nvcc of build/env/nvcc. ccache keeps no images of CUDA, and compiling them takes minutes. Where there is
# ccache, this script keeps them: it takes an image again for the same arguments, the same nvcc and the same sources of kernels.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
packages=$(ls -d "$top"/build/env/nvcc/lib/python3*/site-packages)
nvcc=$packages/nvidia/cu13/bin/nvcc
image="" before=""
for word; do
  [ "$before" != -o ] || image=$word
  before=$word
done
case " $* " in *" -fatbin "*) ;; *) image="" ;; esac
[ -n "$image" ] && command -v ccache >/dev/null || exec "$nvcc" "$@"
folder=${XDG_CACHE_HOME:-$HOME/.cache}/metal-marlin/cuda
key=$({ printf '%s\n' "$@" | sed "s|$top/||g"; cat "$top/packaging/requirements/nvcc.txt" "$top"/shaders/cuda/* "$top"/shaders/common/* "$top"/tests/cuda/*.cu; } | sha256sum | cut -c 1-40)
kept=$folder/$key.fatbin
if [ ! -e "$kept" ]; then
  "$nvcc" "$@"
  mkdir -p "$folder"
  cp "$image" "$kept.$$" && mv "$kept.$$" "$kept"
else
  cp "$kept" "$image"
fi
