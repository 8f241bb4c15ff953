#!/usr/bin/env bash
# scripts/arm64.sh [VERB [ARGUMENT…]]: `make VERB` of this tree on arm64, emulated.
#
# Makes a Debian root of that architecture in build/arm64, once, copies the tree into it
# and runs make there under qemu-user, in an empty environment; VERB is quick if none is
# named. What it mounts is in a name space of its own, and gone when it ends, be it by force.
# Needs root, debootstrap, and qemu-user-static with its entry in binfmt_misc.
# SUITE=… and MIRROR=… choose another Debian.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/build/arm64
entry=/proc/sys/fs/binfmt_misc/qemu-aarch64

die() { echo "arm64: $*" >&2; exit 1; }

if [ "${1:-}" != --inside ]; then
    [ "$(id -u)" -eq 0 ] || die "needs root, for a chroot and its mounts"
    command -v debootstrap >/dev/null || die "please install what Debian calls debootstrap"
    # F in its flags: the kernel holds the interpreter open, so the root needs no copy
    if [ "$(uname -m)" != aarch64 ] && ! grep -qs '^flags:.*F' "$entry"; then
        die "please install qemu-user-static, or: update-binfmts --enable qemu-aarch64"
    fi
    exec unshare --mount "$PWD/scripts/arm64.sh" --inside "$@"
fi
shift

if [ ! -e "$root/made" ]; then
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    debootstrap --arch=arm64 --variant=minbase --include=make,ca-certificates \
        "${SUITE:-bookworm}" "$root" ${MIRROR:+"$MIRROR"} >&2
    touch "$root/made"
fi

# How this machine reaches the network, and whom it trusts, goes for the root too.
for file in etc/resolv.conf etc/hosts etc/pip.conf etc/ssl/certs/ca-certificates.crt; do
    if [ -s "/$file" ]; then
        mkdir -p "$(dirname "$root/$file")"
        cp "/$file" "$root/$file"
    fi
done

mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"

# The tree with its time stamps, so that a second run compiles only what changed; what was
# deleted here goes there too. What was built stays.
mkdir -p "$root/src"
find "$root/src" \( -path "$root/src/.venv" -o -path "$root/src/build" \) -prune -o \
    -type f ! -name '*.so' -exec rm -f {} +
tar --exclude=./.git --exclude=./.venv --exclude=./build --exclude=./dist \
    --exclude='*.so' --exclude=__pycache__ -cf - . | tar --no-same-owner -C "$root/src" -xf -

mkdir -p "$root/tmp/home"
exec chroot "$root" /usr/bin/env -i HOME=/tmp/home LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    make -C /src "${@:-quick}"
