#!/usr/bin/env bash
# fetch_wheel.sh FOLDER: leaves the pinned mlx-metal wheel's library and headers in FOLDER/mlx. Test data: never installed.
# Prints why when it cannot, and fails.
set -euo pipefail
package=mlx-metal==0.32.4
platform=macosx_14_0_arm64
folder=${1:?folder}
[ ! -e "$folder/mlx/lib/mlx.metallib" ] || exit 0
command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 || { echo "pip, which fetches $package, is not installed"; exit 1; }
# Several tests may come here at once: each fetches into a folder of its own, and the first to be ready gives it its name.
mkdir -p "$folder" && part=$(mktemp -d "$folder/part.XXXXXX") && trap 'rm -rf "$part"' EXIT
python3 -m pip download -q --no-deps --only-binary :all: --platform "$platform" -d "$part" "$package" >"$part/fetch.log" 2>&1 ||
  { echo "$package cannot be fetched: $(tail -n 1 "$part/fetch.log")"; exit 1; }
python3 -m zipfile -e "$part"/mlx_metal-*.whl "$part" || { echo "the wheel of $package cannot be unpacked"; exit 1; }
mkdir -p "$part/ready/mlx" && mv "$part/mlx/lib" "$part/mlx/include" "$part/ready/mlx/"
mv "$part/ready/mlx" "$folder/" 2>/dev/null || [ -e "$folder/mlx/lib/mlx.metallib" ]
