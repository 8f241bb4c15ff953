#!/usr/bin/env bash
# scripts/aws-lc.sh [SOURCE]: AWS-LC in .venv/aws-lc, with its headers, for `make aws-lc`.
# scripts/aws-lc.sh --unpack DIRECTORY [SOURCE]: its source there, for `make wheel`; prints its version.
#
# SOURCE: a directory or an archive of AWS-LC (https://github.com/aws/aws-lc). Without it cargo
# loads the crate aws-lc-sys, 10 MB, which has it, and its hash is checked. Builds for a minute or
# two; cmake and a C++ compiler are installed by apt-get if they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.47.0
sum=8bfbe32ac36b3c428696ce315464181bc4029d689fd58e3f2a4e58c252242f52
to=$PWD/.venv/aws-lc unpack=
if [ "${1:-}" = --unpack ]; then
    unpack=${2:?usage: $0 --unpack DIRECTORY [SOURCE]}
    shift 2
fi
source=${1:-}

die() {
    echo "aws-lc: $*" >&2
    exit 1
}

load() { # -> the crate's file
    command -v cargo >/dev/null || die "give its source: AWS_LC=/path; or install cargo"
    mkdir "$work/asks"
    touch "$work/asks/lib.rs"
    printf '[package]\nname = "asks"\nversion = "0.1.0"\n[lib]\npath = "lib.rs"\n%s\n' \
        "[dependencies]
aws-lc-sys = \"=$version\"" >"$work/asks/Cargo.toml"
    cargo fetch --quiet --manifest-path "$work/asks/Cargo.toml" >&2 || die "cargo could not load it"
    local file
    file=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/cache" -name "aws-lc-sys-$version.crate")
    echo "$sum  $file" | sha256sum --check --quiet >&2 || die "$file has another hash than $sum"
    echo "$file"
}

[ -n "$source$unpack" ] || [ "$(cat "$to/version" 2>/dev/null)" != "$version" ] || exit 0
scripts/bootstrap.sh aws-lc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -n "$source" ] || source=$(load)
if [ -f "$source" ]; then
    mkdir "$work/source"
    tar -xf "$source" -C "$work/source"
    source=$work/source
fi
# The directory of the library itself: the crate has others beside it
top=$(find "$source" -maxdepth 4 -path '*/ssl/ssl_lib.cc' -print -quit)
[ -n "$top" ] || die "$source is no source of AWS-LC"
top=${top%/ssl/ssl_lib.cc}

if [ -n "$unpack" ]; then
    rm -rf "$unpack"
    mkdir -p "$(dirname "$unpack")"
    cp -R "$top" "$unpack"
    sed -n 's/^#define AWSLC_VERSION_NUMBER_STRING "\(.*\)"/\1/p' "$unpack/include/openssl/base.h"
    exit
fi

rm -f "$to/version" # until it is whole
if ! { cmake -S "$top" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=ON -DBUILD_TESTING=OFF -DBUILD_TOOL=OFF -DDISABLE_GO=ON \
    -DDISABLE_PERL=ON -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_PREFIX="$to" &&
    cmake --build "$work/build" --parallel "$(nproc)" &&
    cmake --install "$work/build"; } >"$work/log" 2>&1; then
    tail -n 30 "$work/log" >&2
    die "it was not built"
fi
echo "${1:-$version}" >"$to/version"
