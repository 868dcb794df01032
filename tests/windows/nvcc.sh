#!/bin/sh
# In the place of nvcc for the suite windows: an image is the name of its file, so that the library that embeds it compiles in no time. No GPU
# of a Windows under Wine runs it.
while [ $# != 0 ]; do
  case $1 in
    --version) echo "release 12.8" ;;
    -o) shift && printf '%s' "${1##*/}" >"$1" ;;
  esac
  shift
done
