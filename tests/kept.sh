# What the suites need not make anew. Sourced by tests/suites.sh.

# with_kernels: from here on, the suite's trees take the kernels of the CPU from the release tree, if they are there.
with_kernels() {
  export CMAKE_CXX_COMPILER_LAUNCHER="sh;$PWD/tests/with_kernels.sh;$PWD/build/release${CMAKE_CXX_COMPILER_LAUNCHER:+;$CMAKE_CXX_COMPILER_LAUNCHER}"
}

# keep_images: where there is ccache, images of shaders outlive this folder as objects do. Those that nothing has read for two weeks
# go, and so do images of CUDA (tests/cuda/nvcc.sh).
keep_images() {
  local kept=${XDG_CACHE_HOME:-$HOME/.cache}/metal-marlin
  command -v ccache >/dev/null && mkdir -p "$kept/images" build/release || return 0
  find "$kept" -type f -atime +14 -delete
  [ -e build/release/images ] || ln -s "$kept/images" build/release/images
}
