# What each suite tests, sourced by tests/suites.sh.
about_suite() {
  case $1 in
    quick) echo "structure, unit, abi, tools and each kernel once; without other processors, GPUs, packages, bindings, sanitizers" ;;
    structure) echo "the sources: include arrows, sizes, words; no library code runs" ;;
    libcxx) echo "every source, and every header alone, read by clang with libc++, for x86-64 and arm64" ;;
    unit) echo "each part of the library alone, with bad input" ;;
    kernels) echo "every kernel against the oracle" ;;
    abi) echo "the public header: every function, descriptor and rule" ;;
    container) echo "packed containers (.marlin): the same weights in place, every cut and every flipped bit an error (10 s)" ;;
    gpu) echo "the GPU backend over a mock device, and over one that runs the real shaders on the CPU" ;;
    cuda) echo "the CUDA kernels compiled without spills, the host over a driver of the tests; products, where there is an NVIDIA GPU" ;;
    tools) echo "the metal-marlin command" ;;
    roundtrip) echo "files that the command writes, read by the packages of others; the tool that plants mistakes" ;;
    install) echo "installed, packaged, moved, linked, embedded and dlopened by small programs; README.md and the examples, block by block" ;;
    rust) echo "the crates: linked and loaded, their documentation and README, clippy, rustfmt" ;;
    swift) echo "the Swift package: its tests, documentation, README, what it says of other versions, swift-format" ;;
    python) echo "the Python package: its wheel, tests, types, README; torch where there is one" ;;
    wheels) echo "wheels for Linux on x86-64 and arm64: what they need, and products in a fresh environment and under QEMU (15 minutes)" ;;
    ggml) echo "the plugin for ggml, in the ggml of a Python wheel, against that one's CPU backend; in llama.cpp, if it is compiled here" ;;
    llm) echo "the chat of examples/llm: its parts, and a real model against the Python packages of others" ;;
    distributed) echo "the chat on several ranks over MPI: one process's answers, ranks that die, hang or have another model (2 minutes)" ;;
    metal) echo "the shader test-bed: Metal shaders run and checked on the CPU; its page, and an installed copy of it; the kernels of llama.cpp" ;;
    metal-asan) echo "the shader test-bed, its own code under AddressSanitizer and UBSan" ;;
    shaders) echo "the library's Metal shaders on that test-bed: every kernel against the oracle, counted, mutated" ;;
    framework) echo "hosts of Metal in Objective-C++, on a Metal and Foundation for Linux" ;;
    metal-host) echo "the host of the Metal backend, on a Metal for Linux with the shader test-bed; on it the model of the chat" ;;
    air) echo "shaders that Apple's compiler compiled, made native for the runtime of tests/metal_on_cpu" ;;
    portable) echo "units and ABI with METAL_MARLIN_ISA=generic" ;;
    avx2) echo "units and ABI with METAL_MARLIN_ISA=avx2" ;;
    arm64) echo "the kernels for arm64, cross-compiled, on processors that QEMU shows" ;;
    macos) echo "for macOS and iOS: the library, tools and examples cross-compiled; what was linked, read back" ;;
    asan) echo "everything above under AddressSanitizer and UBSan" ;;
    tsan) echo "the tests with threads under ThreadSanitizer" ;;
  esac
}
