#!/usr/bin/env bash
# scripts/wheel.sh TOOLS: a wheel in dist/ for the Python of .venv that needs nothing of its host but glibc.
#
# TOOLS: a directory with auditwheel and patchelf. gcc is this machine's; the C library that it compiles
# against is that of Debian's SUITE (bullseye: glibc 2.31), unpacked into build/wheel/root. auditwheel reads
# in the symbols which glibc the wheel needs, and names the wheel after it. libssl, libcrypto and libnghttp2
# are built from the sources of Debian's SOURCES (trixie: OpenSSL 3.5), with its security fixes, and lie in
# the wheel. Their names, and the versions of OpenSSL's symbols, are not those of the host's: Python's ssl has
# the host's OpenSSL in the same process.
#
# Needs Debian or Ubuntu, and a mirror of Debian: MIRROR=… names one, SECURITY_MIRROR=… that of its security
# fixes. What was unpacked and built is used again until SUITE or the sources' versions change.
#
# ARCHITECTURE=arm64 (or amd64) makes the wheel of another architecture, by Debian's compiler for it. Only on
# Debian: what sysconfig says of that architecture is in its package of the same Python.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${SUITE:-bullseye} sources=${SOURCES:-trixie}
tools=${1:?usage: $0 TOOLS}
python=$PWD/.venv/bin/python

say() { echo "wheel: $*" >&2; }
die() { say "$*"; exit 1; }

scripts/bootstrap.sh wheel
here=$(dpkg --print-architecture)
architecture=${ARCHITECTURE:-$here}
# It warns that this machine's compiler is not for that architecture
triplet=$(dpkg-architecture "-a$architecture" -qDEB_HOST_MULTIARCH 2>/dev/null)
machine=${triplet%%-*}
work=$PWD/build/wheel gcc=gcc tool=
if [ "$architecture" != "$here" ]; then
    work+=-$architecture gcc=$triplet-gcc tool=$triplet-
fi
root=$work/root

mirror_of() { # LABEL: the mirror in the system's own lists
    apt-get indextargets --format "\$(REPO_URI)" "Label: $1" 2>/dev/null | sed -n 1p
}
mirror=${MIRROR:-$(mirror_of Debian)}
security=${SECURITY_MIRROR:-$(mirror_of Debian-Security)}
[ -n "$mirror" ] || die "name a mirror of Debian: MIRROR=… make wheel"

# apt with lists of its own; how it reaches the network is the system's
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
: >"$work/status"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
{
    echo "deb [signed-by=$keys] $mirror $suite main"
    echo "deb-src [signed-by=$keys] $mirror $sources main"
    [ -z "$security" ] || echo "deb-src [signed-by=$keys] $security $sources-security main"
    if [ "$architecture" != "$here" ]; then
        # shellcheck source=/dev/null
        echo "deb [signed-by=$keys] $mirror $(. /etc/os-release && echo "$VERSION_CODENAME") main"
    fi
} >"$work/sources.list"
apt() {
    "apt-$1" -qq -o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" \
        -o Dir::Cache="$work/cache" -o Dir::Etc::SourceList="$work/sources.list" \
        -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root \
        -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" "${@:2}"
}
say "the lists of $suite and $sources"
apt get update || die "no lists of $suite and $sources at the mirror"

# --- the C library, and the headers of Python and of SQLite

packages=(libc6 libc6-dev linux-libc-dev libcrypt1 libcrypt-dev libsqlite3-dev)
if [ "$(cat "$root/made" 2>/dev/null)" != "$suite" ]; then
    say "the C library of $suite into ${root#"$PWD/"}"
    rm -rf "$root" "$work/source"
    mkdir -p "$root"
    (
        cd "$work/cache"
        rm -f ./*.deb
        apt get download "${packages[@]/%//$suite}"
        for file in ./*.deb; do dpkg-deb --extract "$file" "$root"; done
    )
    # An absolute link would lead to this machine's library
    find "$root" -type l -lname '/*' -printf '%p\t%l\n' | while IFS=$'\t' read -r link to; do
        ln -sfnr "$root$to" "$link"
    done
    echo "$suite" >"$root/made"
fi
# Debian's Python.h has a part of itself beside the headers of C, and for another architecture it is, as
# sysconfig's own values, in packages of that architecture
pythons=/usr settings=()
if [ "$architecture" != "$here" ]; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    pythons=$work/python
    rm -rf "$pythons"
    mkdir -p "$pythons/settings"
    (
        cd "$pythons"
        apt get download "libpython$version-dev" "libpython$version-minimal"
        for file in ./*.deb; do dpkg-deb --extract "$file" .; done
        cp "usr/lib/python$version/_sysconfigdata__$triplet.py" settings/
    )
    settings=("PYTHONPATH=$pythons/settings" "_PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__$triplet"
        "_PYTHON_HOST_PLATFORM=linux-$machine")
    pythons+=/usr
fi
mkdir -p "$root/usr/local/include/$triplet"
for directory in "$pythons/include/$triplet"/python3.*; do
    [ ! -d "$directory" ] || cp -R "$directory" "$root/usr/local/include/$triplet/"
done

# --- OpenSSL and nghttp2

prefix=$root/usr/local
# -B, -L: gcc looks in this machine's directories before it looks in the root. -pthread: before
# glibc 2.34 its functions are in a library of their own.
CC="$gcc --sysroot=$root -B$root/usr/lib/$triplet -L$prefix/lib -L$root/usr/lib/$triplet"
if [ "$gcc" != gcc ]; then
    # A compiler for another architecture has a directory of headers outside its --sysroot
    CC+=" -nostdinc -isystem $("$gcc" -print-file-name=include)"
    for directory in "$prefix/include" "$root/usr/include/$triplet" "$root/usr/include"; do
        CC+=" -isystem $directory"
    done
fi
export CC="$CC -pthread -Wl,--as-needed" AR=${tool}ar RANLIB=${tool}ranlib
harden="-fstack-protector-strong -D_FORTIFY_SOURCE=2"

load() { # PACKAGE -> its directory: the newest version that the mirror has
    local package=$1 version directory
    mkdir -p "$work/source"
    for version in $(apt cache showsrc "$package" | sed -n 's/^Version: //p' | sort -rV | uniq); do
        directory=$work/source/$package-$version
        if [ ! -e "$directory/debian" ]; then
            rm -rf "$work/source/loading" "$directory"
            mkdir "$work/source/loading"
            if ! (cd "$work/source/loading" && apt get source "$package=$version") >"$work/load.log" 2>&1; then
                say "$package $version is not at the mirror, an older one is taken"
                continue
            fi
            mv "$work/source/loading/$package"-*/ "$directory"
        fi
        echo "$directory"
        return
    done
    tail -n 20 "$work/load.log" >&2
    die "no source of $package"
}

is_built() { [ "$(cat "$prefix/$1.built" 2>/dev/null)" = "$2" ]; }

build_openssl() { # no applications, modules and engines: nothing is loaded from a host's directories
    local variant=$work/variant.conf
    printf "my %%targets = ('cutthrough' => {inherit_from => ['linux-%s'], %s});\n" \
        "$machine" "shlib_variant => '-cutthrough'" >"$variant"
    # shellcheck disable=SC2086
    perl ./Configure --config="$variant" cutthrough shared --prefix=/usr/local --libdir=lib \
        --openssldir=/etc/ssl no-apps no-docs no-dtls no-engine no-legacy no-module no-quic no-tests \
        $harden -Wl,-z,relro,-z,now &&
        make -j"$(nproc)" build_generated &&
        make -j"$(nproc)" libcrypto.so libssl.so && # build_libs compiles all again, for static ones
        mkdir -p "$prefix/include/openssl" "$prefix/lib" &&
        cp include/openssl/*.h "$prefix/include/openssl/" &&
        cp -P lib{crypto,ssl}*.so* "$prefix/lib/"
}

build_nghttp2() { # VERSION of upstream
    local major minor patch
    IFS=. read -r major minor patch <<<"$1"
    mkdir -p "$prefix/include/nghttp2" "$prefix/lib"
    sed -e "s/@PACKAGE_VERSION@/$1/" -e "s/@PACKAGE_VERSION_NUM@/$(
        printf '0x%02x%02x%02x' "$major" "$minor" "$patch")/" \
        lib/includes/nghttp2/nghttp2ver.h.in >"$prefix/include/nghttp2/nghttp2ver.h"
    cp lib/includes/nghttp2/nghttp2.h "$prefix/include/nghttp2/"
    echo 'NGHTTP2_CUTTHROUGH { global: nghttp2_*; local: *; };' >"$work/nghttp2.map"
    # shellcheck disable=SC2086
    $CC -O3 -fPIC $harden -DHAVE_ARPA_INET_H -DHAVE_NETINET_IN_H -DHAVE_CLOCK_GETTIME \
        -DHAVE_DECL_CLOCK_MONOTONIC=1 -I"$prefix/include" -Ilib/includes -shared \
        -Wl,-z,relro,-z,now -Wl,-soname,libnghttp2-cutthrough.so.14 \
        -Wl,--version-script="$work/nghttp2.map" \
        -o "$prefix/lib/libnghttp2-cutthrough.so.14" lib/*.c &&
        ln -sf libnghttp2-cutthrough.so.14 "$prefix/lib/libnghttp2.so"
}

rm -rf "$work/licences"
mkdir -p "$work/licences"
for package in openssl nghttp2; do
    directory=$(load $package)
    version=${directory##*/"$package"-}
    is_built $package "$version" || {
        say "$package $version"
        (cd "$directory" && build_$package "${version%%-*}") >"$work/$package.log" 2>&1 || {
            tail -n 30 "$work/$package.log" >&2
            die "$package was not built"
        }
        echo "$version" >"$prefix/$package.built"
    }
    cp "$directory/debian/copyright" "$work/licences/$package-$version.txt"
done

# --- the wheel

say "cutthrough, for $("$python" -V)"
# All of it: what was deleted in the tree would stay in the wheel
rm -rf "$work/plain" "$work/repaired" build/release
env "${settings[@]}" CUTTHROUGH_BUILD=release "$python" -m pip wheel --no-deps --no-build-isolation \
    --wheel-dir "$work/plain" .
plain=$(echo "$work"/plain/*.whl)
# auditwheel lists them in RECORD with what it adds itself
"$python" - "$plain" "$work/licences" <<'LICENCES'
import sys, zipfile
from pathlib import Path
with zipfile.ZipFile(sys.argv[1], "a") as wheel:
    [about] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    for file in sorted(Path(sys.argv[2]).iterdir()):
        wheel.write(file, f"{about.removesuffix('METADATA')}licenses/{file.name}")
LICENCES
# auditwheel calls `strip`
mkdir -p "$work/bin"
ln -sfn "$(command -v "${tool}strip")" "$work/bin/strip"
LD_LIBRARY_PATH=$prefix/lib PATH=$work/bin:$PWD/$tools:$PATH "$tools/auditwheel" repair --strip \
    --wheel-dir "$work/repaired" "$plain"
repaired=$(echo "$work"/repaired/*.whl)
[[ $repaired == *manylinux* ]] || die "$repaired is for this machine alone"
mkdir -p dist
tag=${plain##*/}
rm -f "dist/${tag%-*}-"*"_$machine.whl"
mv "$repaired" dist/
say "dist/${repaired##*/}: $(stat -c %s "dist/${repaired##*/}") bytes; glibc of $suite; $(cd "$work/licences" &&
    printf '%s ' *.txt | sed 's/\.txt//g')"
