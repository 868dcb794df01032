# ./dev release, sourced by ./dev: what a release publishes. bash 3.2 of macOS will do.
release_parts="source debian wheels xcframework sbom"

release_usage() {
  cat <<END
usage: ./dev release [--twice] [PART...]    the files of a release, in build/releases/VERSION

All of them are made from the commit HEAD, unpacked in a folder of its own, and SHA256SUMS lists their checksums. They hold no time but
that of the commit and no name of a folder, so that everybody who builds this commit with the same tools gets the same bytes.

  PART      $release_parts (default: those that this system makes)
  --twice   makes everything again in another folder and without ccache; a file that differs is an error
END
}

# release_version: that of the header, if the newest changes are those of this version.
release_version() {
  local version newest file
  version=$(awk '/^#define MARLIN_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' include/metal_marlin/metal_marlin.h)
  newest=$(sed -n 's/^## //p' CHANGELOG.md | head -n 1)
  case $newest in
    "$version (unreleased)") say "CHANGELOG.md calls $version unreleased: these files are a trial" >&2 ;;
    "$version ("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]")") ;;
    *) die "release: expected '## $version (DATE)' as the first version of CHANGELOG.md, found '## $newest'" ;;
  esac
  for file in bindings/rust/metal-marlin*/Cargo.toml; do
    grep -q "^version = \"$version\"" "$file" || die "release: expected version $version in $file"
  done
  say "$version"
}

# release_source NAME FILES: the commit's files, which are unpacked here for all that is built.
release_source() {
  git -C "$top" archive --format=tar --prefix="$1/" "$commit" | gzip -9n >"$2/$1.tar.gz" && tar -xzf "$2/$1.tar.gz" && mkdir -p "$1/build" &&
    ln -sfn "$top/build/env" "$1/build/env"
}

# Packages of this machine's architecture. A run path that names no folder keeps the digest that the linker writes the same.
release_debian() {
  (cd "$1" && cmake --preset release -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON >/dev/null && build release $release_targets && cd build/release &&
    cpack -G DEB >cpack.log || { cat cpack.log; false; }) && cp "$1"/build/release/packages/*.deb "$2"
}

release_wheels() { (cd "$1" && ./dev wheel) && cp "$1"/build/wheels/*.whl "$2"; }

release_xcframework() {
  (cd "$1" && packaging/xcframework.sh build/xcframework && cd build/xcframework &&
    find MetalMarlin.xcframework LICENSE NOTICE -exec touch -h -t "$(date -r "$SOURCE_DATE_EPOCH" +%Y%m%d%H%M.%S)" {} + &&
    find MetalMarlin.xcframework LICENSE NOTICE | LC_ALL=C sort | TZ=UTC zip -qX -@ "$2/MetalMarlin.xcframework.zip")
}

release_sbom() { python3 -B "$1/packaging/sbom.py" "$1" "$2" >"$2.spdx.json" && mv "$2.spdx.json" "$2/$1.spdx.json"; }

# release_made FOLDER VERSION PART...: FOLDER/files.
release_made() {
  local folder=$1 name=metal-marlin-$2 part top=$PWD
  shift 2
  rm -rf "$folder" && mkdir -p "$folder/files" "$folder/tree" && folder=$(cd "$folder" && pwd) || return 1
  (
    cd "$folder/tree" && export CCACHE_BASEDIR="$folder/tree/$name" CCACHE_NOHASHDIR=1 && umask 022 || exit 1
    release_source "$name" "$folder/files" || exit 1
    for part in ${release_parts#source }; do
      case " $* " in *" $part "*) "release_$part" "$name" "$folder/files" || { say "release: $part failed" >&2; exit 1; } ;; esac
    done
  ) && (cd "$folder/files" && LC_ALL=C && $(command -v sha256sum || echo shasum -a 256) -- * >../SHA256SUMS && mv ../SHA256SUMS .)
}

release() {
  local argument parts="" twice="" version folder other commit
  for argument; do
    case $argument in
      --help | -h) release_usage; return ;;
      --twice) twice=yes ;;
      *) case " $release_parts " in
        *" $argument "*) parts="$parts $argument" ;;
        *) die "release: expected --twice, or one of $release_parts, found '$argument'" ;;
      esac ;;
    esac
  done
  # The SDK that tests/macos makes on Linux has no more of Apple's libraries than the tests need.
  if [ "$(uname -s)" = Darwin ]; then parts=${parts:-source wheels xcframework sbom}; else parts=${parts:-source debian wheels sbom}; fi
  version=$(release_version) || exit 1
  commit=$(git rev-parse HEAD) || exit 1  # once: somebody may commit meanwhile
  git diff --quiet HEAD || say "the changes since the last commit are not in these files"
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit") TZ=UTC folder=build/releases/$version
  export SOURCE_DATE_EPOCH TZ
  # shellcheck disable=SC2086
  release_made "$folder" "$version" $parts || die "release failed"
  if [ -n "$twice" ]; then
    other=$(mktemp -d)/another-folder
    # shellcheck disable=SC2086
    CCACHE_DISABLE=1 release_made "$other" "$version" $parts || die "release failed the second time"
    diff "$folder/files/SHA256SUMS" "$other/files/SHA256SUMS" || die "release: two builds of one commit differ; the second is in $other"
    rm -rf "${other%/*}"
    say "two builds are equal"
  fi
  rm -rf "$folder/tree"
  cat "$folder/files/SHA256SUMS"
}
