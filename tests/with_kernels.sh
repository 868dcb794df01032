#!/bin/sh
# with_kernels.sh COMPILER ARGUMENT...: compiles, as the launcher of a build. The kernels of the CPU take a third of the time that
# compiling the library takes, and every tree would make machine code of the same sources. This script takes the object of a kernel
# from build/release, if it is newer than all sources of the library. It still preprocesses the source, so that
# a header that is missing stays an error. A kernel that shall have sanitizers is compiled.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
before="" object="" source="" sanitized=no
for word; do
  case $before in -o) object=$word ;; -c) source=$word ;; esac
  case $word in -fsanitize=*) sanitized=yes ;; -fno-sanitize=all) sanitized=no ;; esac
  before=$word
done
name=src/${source##*/src/}
made=$top/build/release/CMakeFiles/metal_marlin_objects.dir/$name.o
case $name in
  src/backends/cpu/*.cc) ;;
  *) exec "$@" ;;
esac
[ "$sanitized" = no ] && [ -f "$made" ] && cmp -s "$top/$name" "$source" &&
  [ -z "$(find "$top/include" "$top/src" "$top/shaders/common" -type f -newer "$made" -print -quit)" ] || exec "$@"
before=""
for word; do
  shift
  [ "$word" != -c ] || word=-E
  [ "$before" != -o ] || word=/dev/null
  set -- "$@" "$word"
  before=$word
done
"$@"
cp "$made" "$object"
