#!/usr/bin/env bash
# scripts/wheel.sh TOOLS: a wheel in dist/ for the Python of .venv that needs nothing of its host but glibc.
#
# TOOLS: a directory with auditwheel and patchelf. gcc is this machine's; the C library that it compiles
# against is that of Debian's SUITE (bullseye: glibc 2.31), unpacked into build/wheel/root. auditwheel reads
# in the symbols which glibc the wheel needs, and names the wheel after it. libssl and libcrypto are AWS-LC's
# (AWS_LC=its source, else as cargo loads it: scripts/aws-lc.sh), linked into the module that uses them: none
# of their symbols is seen, because Python's ssl has the host's OpenSSL in the same process. libnghttp2 is
# built from the source of Debian's SOURCES, with its security fixes, under a name of its own.
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

# CC is split at spaces, by distutils and by us
[[ $PWD != *[[:space:]]* ]] || die "the path of this tree has a space, which CC cannot name: build elsewhere"
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

# --- AWS-LC and nghttp2

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

build_aws_lc() { # SOURCE
    # The compiler of C++ would look for its own headers in the root
    local headers=() directory words
    while read -r directory; do headers+=(-isystem "$directory"); done < <(
        "${gcc%gcc}g++" -E -v -x c++ - </dev/null 2>&1 | sed -n 's,^ \(/.*/c++/.*\),\1,p')
    words=${CC#"$gcc "}
    cmake -S "$1" -B "$work/aws-lc" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux \
        -DCMAKE_SYSTEM_PROCESSOR="$machine" -DCMAKE_C_COMPILER="$gcc" -DCMAKE_C_FLAGS="$words $harden" \
        -DCMAKE_CXX_COMPILER="${gcc%gcc}g++" -DCMAKE_CXX_FLAGS="-nostdinc++ ${headers[*]} $words $harden" \
        -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF -DBUILD_TOOL=OFF -DDISABLE_GO=ON -DDISABLE_PERL=ON \
        -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_PREFIX="$prefix" &&
        cmake --build "$work/aws-lc" --parallel "$(nproc)" &&
        rm -rf "$prefix/include/openssl" "$prefix"/lib/lib{ssl,crypto}* &&
        cmake --install "$work/aws-lc"
}

build_nghttp2() { # SOURCE, VERSION of upstream
    local major minor patch
    IFS=. read -r major minor patch <<<"$2"
    mkdir -p "$prefix/include/nghttp2" "$prefix/lib"
    sed -e "s/@PACKAGE_VERSION@/$2/" -e "s/@PACKAGE_VERSION_NUM@/$(
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
make_library() { # NAME VERSION SOURCE, built by build_NAME in SOURCE, and the file with its licence
    is_built "$1" "$2" || {
        say "$1 $2"
        rm -rf "${work:?}/${1//_/-}"
        (cd "$3" && "build_$1" "$3" "${2%%-*}") >"$work/$1.log" 2>&1 || {
            tail -n 30 "$work/$1.log" >&2
            die "$1 was not built"
        }
        echo "$2" >"$prefix/$1.built"
    }
    cp "$3/$4" "$work/licences/${1//_/-}-$2.txt"
}

version=$(scripts/aws-lc.sh --unpack "$work/source/aws-lc" "${AWS_LC:-}")
make_library aws_lc "$version" "$work/source/aws-lc" LICENSE
directory=$(load nghttp2)
make_library nghttp2 "${directory##*/nghttp2-}" "$directory" debian/copyright

# --- the wheel

say "cutthrough, for $("$python" -V)"
# All of it: what was deleted in the tree would stay in the wheel
rm -rf "$work/plain" "$work/repaired" build/release
env "${settings[@]}" LDFLAGS=-Wl,--exclude-libs,libssl.a:libcrypto.a,--gc-sections \
    CUTTHROUGH_BUILD=release "$python" -m pip wheel --no-deps --no-build-isolation --wheel-dir "$work/plain" .
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
