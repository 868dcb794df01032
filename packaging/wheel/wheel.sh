# ./dev wheel, sourced by ./dev: wheels of the Python package that run on other machines. bash 3.2 of macOS will do.
# The oldest glibc that such a wheel runs on; 2.17 is that of manylinux2014.
wheel_glibc=2.17
wheel_folder=build/wheels

wheel_usage() {
  cat <<'END'
usage: ./dev wheel [PROCESSOR...] [--cuda]    wheels of the Python package in build/wheels
       ./dev wheel windows                    the wheel for Windows on x86-64, from Linux

On Linux, PROCESSOR is x86_64 or aarch64; without one, both wheels are made. They run on every Linux with glibc 2.17 or newer,
because the clang of the Python package ziglang compiles the library against that version, and puts the C++ runtime inside.
auditwheel checks the result and names it. On macOS, the wheel is for this processor and for macOS 14 or newer.

  --cuda    puts the kernels for NVIDIA GPUs inside, too (Linux). nvcc comes from PyPI; the kernels take many minutes
END
}

# zig_compilers PROCESSOR ZIG: compilers in build/wheel/PROCESSOR/bin, and the headers that the library needs without those of this
# system's C library. ccache tells the compilers apart by the version of ziglang.
zig_compilers() {
  local bin=build/wheel/$1/bin zig=$2 name mode
  mkdir -p "$bin" build/wheel/include
  ln -sfn /usr/include/nlohmann build/wheel/include/nlohmann
  for name in cc c++ ar ranlib; do
    mode=$name
    case $name in cc | c++) mode="$name -target $1-linux-gnu.$wheel_glibc -g0" ;; esac
    printf '#!/bin/sh\n# Made by packaging/wheel/wheel.sh.\nexec "%s" %s "$@"\n' "$zig" "$mode" >"$bin/$name"
    chmod +x "$bin/$name"
  done
  export CCACHE_COMPILERTYPE=clang CCACHE_COMPILERCHECK="string:$(cat packaging/requirements/zig.txt) $1 $wheel_glibc"
  export ZIG_GLOBAL_CACHE_DIR=$PWD/build/wheel/zig-cache ZIG_LOCAL_CACHE_DIR=$PWD/build/wheel/zig-objects
}

# wheel_library PROCESSOR [CMAKE OPTION...]: build/wheel-PROCESSOR/libmetal-marlin.so.
wheel_library() {
  local processor=$1 zig bin=$PWD/build/wheel/$1/bin
  shift
  zig=$(ls -d "$PWD"/build/env/zig/lib/python3*/site-packages/ziglang)/zig || return 1
  zig_compilers "$processor" "$zig"
  cmake --preset release -B "build/wheel-$processor" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$processor" -DMETAL_MARLIN_TOOLS=OFF \
    -DCMAKE_C_COMPILER="$bin/cc" -DCMAKE_CXX_COMPILER="$bin/c++" -DCMAKE_AR="$bin/ar" -DCMAKE_RANLIB="$bin/ranlib" \
    -DCMAKE_SHARED_LINKER_FLAGS=-s -DCMAKE_PROJECT_INCLUDE="$PWD/packaging/json.cmake" \
    -DMARLIN_JSON_INCLUDE="$PWD/build/wheel/include" "$@" >/dev/null &&
    cmake --build "build/wheel-$processor" -j "$jobs" --target metal_marlin || return 1
  rm -rf "$ZIG_LOCAL_CACHE_DIR"  # which keeps each object that it ever made
}

# linux_wheel PROCESSOR WORDS [CMAKE OPTION...]: says the wheel's name, its size and these words.
linux_wheel() {
  local processor=$1 words=$2 raw=$PWD/build/wheel/$1/raw wheel
  shift 2
  wheel_library "$processor" "$@" || return 1
  rm -rf "$raw" $wheel_folder/*_"$processor".whl
  mkdir -p $wheel_folder
  # The name of a package for another processor: what Python would say on that one.
  _PYTHON_HOST_PLATFORM=linux-$processor METAL_MARLIN_LIBRARY=$PWD/build/wheel-$processor/libmetal-marlin.so \
    build/env/wheel/bin/pip wheel -q --no-deps --no-build-isolation -w "$raw" . \
    --config-settings "build-dir=build/wheel/$processor/pack" || return 1
  # auditwheel gives the name of the oldest systems that the wheel runs on. By --plat it takes none of another processor.
  PATH=$PWD/build/env/wheel/bin:$PATH build/env/wheel/bin/auditwheel repair --plat auto -w $wheel_folder "$raw"/*.whl || return 1
  wheel=$(ls $wheel_folder/*manylinux_"${wheel_glibc/./_}_$processor".whl) ||
    die "wheel: expected a wheel for glibc $wheel_glibc, found $(ls $wheel_folder/*_"$processor".whl)"
  say "$wheel: $(($(wc -c <"$wheel") / 1000)) kB, glibc $wheel_glibc or newer, $words"
}

# windows_wheel LIBRARY: the wheel with this DLL. It needs no check of auditwheel's: the DLL needs nothing but Windows (tests/windows).
windows_wheel() {
  rm -rf $wheel_folder/*_win_amd64.whl build/wheel/windows
  mkdir -p $wheel_folder
  _PYTHON_HOST_PLATFORM=win-amd64 METAL_MARLIN_LIBRARY=$1 build/env/wheel/bin/pip wheel -q --no-deps --no-build-isolation \
    -w $wheel_folder . --config-settings build-dir=build/wheel/windows/pack || return 1
  say "$(ls $wheel_folder/*-py3-none-win_amd64.whl): Windows 10 or newer"
}

# The deployment target is the one that CMakeLists.txt chooses for the library.
macos_wheel() {
  rm -rf $wheel_folder/*.whl
  MACOSX_DEPLOYMENT_TARGET=14.0 METAL_MARLIN_LIBRARY=COMPILE build/env/python/bin/pip wheel -q --no-deps -w $wheel_folder . ||
    return 1
  say "$(ls $wheel_folder/*.whl): macOS 14 or newer"
}

wheel() {
  local argument processors="" words="without CUDA kernels" cuda="" windows=""
  for argument; do
    case $argument in
      --help | -h) wheel_usage; return ;;
      --cuda) words="with CUDA kernels" ;;
      x86_64 | aarch64) processors="$processors $argument" ;;
      windows) windows=1 ;;
      *) die "wheel: expected x86_64, aarch64, windows or --cuda, found '$argument'" ;;
    esac
  done
  install_packages build
  if [ "$(uname -s)" = Darwin ]; then
    [ -z "$processors" ] && [ "$words" = "without CUDA kernels" ] || die "wheel: on macOS the wheel is for this machine, without CUDA"
    environment python || exit 1
    macos_wheel
    return
  fi
  install_packages wheel
  environment zig || exit 1
  environment wheel || exit 1
  if [ -n "$windows" ]; then
    build windows metal_marlin && windows_wheel "$PWD/build/windows/bin/metal-marlin.dll" || die "wheel failed"
    [ -n "$processors" ] || return 0
  fi
  if [ "$words" = "with CUDA kernels" ]; then
    environment nvcc || exit 1
    cuda="-DMETAL_MARLIN_NVCC=$PWD/tests/cuda/nvcc.sh"
  fi
  for argument in ${processors:-x86_64 aarch64}; do
    linux_wheel "$argument" "$words" -DMETAL_MARLIN_CUDA=$([ -n "$cuda" ] && echo ON || echo OFF) ${cuda:+"$cuda"} || die "wheel failed"
  done
}
