#!/usr/bin/env bash
# scripts/debian.sh SUITE ARCHITECTURE [VERB [ARGUMENT…]]: `make VERB` of this tree in another Debian.
#
# Makes a root of that Debian in build/SUITE-ARCHITECTURE, once, copies the tree into it and runs
# make there, in an empty environment; VERB is quick if none is named. Another architecture is
# emulated by qemu-user. The script's mounts are in a name space of their own, and gone when it
# ends, be it by force. Needs root and debootstrap; for another architecture qemu-user-static with
# its entry in binfmt_misc. MIRROR=… chooses a mirror.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "debian: $*" >&2; exit 1; }
[ $# -ge 2 ] || die "usage: $0 SUITE ARCHITECTURE [VERB [ARGUMENT…]]"

if [ "$1" != --inside ]; then
    [ "$(id -u)" -eq 0 ] || die "needs root, for a chroot and its mounts"
    [[ $PWD != *" "* ]] || die "debootstrap takes no path with a space, as that of this tree"
    command -v debootstrap >/dev/null || die "please install what Debian calls debootstrap"
    case $2:$(uname -m) in
        amd64:x86_64 | arm64:aarch64) ;;
        *)
            machine=${2/amd64/x86_64}
            machine=${machine/arm64/aarch64}
            # F in its flags: the kernel holds the interpreter open, so the root needs no copy
            grep -qs '^flags:.*F' "/proc/sys/fs/binfmt_misc/qemu-$machine" ||
                die "please install qemu-user-static, or: update-binfmts --enable qemu-$machine"
            ;;
    esac
    exec unshare --mount "$PWD/scripts/debian.sh" --inside "$@"
fi
suite=$2 architecture=$3
shift 3
root=$PWD/build/$suite-$architecture

if [ ! -e "$root/made" ]; then
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    debootstrap --arch="$architecture" --variant=minbase --include=make,ca-certificates \
        "$suite" "$root" ${MIRROR:+"$MIRROR"} >&2
    # A mirror may be a snapshot, whose lists have expired
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/valid-until"
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
