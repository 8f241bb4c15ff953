#!/usr/bin/env bash
# scripts/ktls.sh [ARGUMENT…]: pytest tests/e2e/test_ktls.py in a guest whose kernel has kTLS.
#
# The guest is QEMU with Debian's kernel for clouds, which apt-get downloads into build/ktls and
# nothing installs. It has two CPUs, 2 GiB, no network, and a disk made of this tree, .venv,
# the interpreter, openssl(1) and their libraries. ARGUMENTs are pytest's. It is emulated and takes
# some minutes; ACCEL=kvm may be faster. Ends with the exit status of pytest; after LIMIT=1800
# seconds, or without a result, with 1. KERNEL=… chooses another package.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$PWD/build/ktls
tree=$PWD
kernel=${KERNEL:-linux-image-cloud-amd64}
done_line='ktls: pytest has ended with'
PATH=$PATH:/usr/sbin:/sbin

die() { echo "ktls: $*" >&2; exit 1; }
[ "$(uname -m)" = x86_64 ] || die "the guest is x86_64, as its host has to be"

# The packages, unpacked. By default apt-get downloads as _apt, who may not reach this directory.
if [ ! -e "$work/ready" ]; then
    rm -rf "$work"
    mkdir -p "$work/packages" "$work/unpacked"
    # The metapackage names the kernel of the day
    image=$(apt-cache depends --important "$kernel" | awk '/Depends: linux-image/ { print $2; exit }')
    (cd "$work/packages" && apt-get -qq -o APT::Sandbox::User=root download "${image:-$kernel}" busybox-static) ||
        die "cannot download ${image:-$kernel} and busybox-static; apt-get update may help"
    for package in "$work"/packages/*.deb; do
        dpkg-deb -x "$package" "$work/unpacked"
    done
    touch "$work/ready"
fi
busybox=$work/unpacked/bin/busybox
version=$(ls "$work/unpacked/lib/modules")

# Modules that the emulated processor can run: those of this tree may be this machine's alone
CUTTHROUGH_BUILD=release .venv/bin/python -W 'ignore:Support for' setup.py -q build_ext --build-lib "$work/lib"

# An initrd: busybox, the modules, and what mounts the disk
start=$work/start
rm -rf "$start"
mkdir -p "$start"/{bin,dev,mnt,proc,sys} "$start/lib/modules/$version/kernel"
cp "$busybox" "$start/bin"
(cd "$work/unpacked/lib/modules/$version" && cp modules.builtin* modules.order "$start/lib/modules/$version" &&
    cp -r --parents kernel/{arch/x86/crypto,crypto,drivers/block,drivers/virtio,lib,net/tls} \
        "$start/lib/modules/$version")
"$busybox" depmod -b "$start" "$version"
cat >"$start/init" <<'INIT'
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in virtio_pci virtio_blk tls gcm ghash-generic aesni-intel ghash-clmulni-intel \
    chacha_generic chacha-x86_64 poly1305_generic poly1305-x86_64 chacha20poly1305; do
    modprobe $module || echo "ktls: no $module"
done
mount -t ext4 /dev/vda /mnt
for kind in proc sysfs devtmpfs; do
    case $kind in proc) to=proc ;; sysfs) to=sys ;; *) to=dev ;; esac
    mount -t $kind $kind /mnt/$to
done
mkdir -p /mnt/dev/shm
mount -t tmpfs shm /mnt/dev/shm; mount -t tmpfs tmp /mnt/run
ip link set lo up
chroot /mnt /bin/sh /inside
poweroff -f
INIT
chmod 755 "$start/init"
(cd "$start" && find . | "$busybox" cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"

# The disk. Libraries are found by ldd, those of extension modules too.
root=$work/root
rm -rf "$root" "$work/disk"
mkdir -p "$root"/{bin,dev,etc,proc,root,run,sys,tmp,usr/bin}
chmod 1777 "$root/tmp"
take() { tar -C / -h --exclude=__pycache__ -cf - "$@" | tar -C "$root" -xf -; } # -h: what links name
python=$(readlink -f .venv/bin/python)
library=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
take "${library#/}" "${python#/}" usr/bin/openssl bin/sh usr/lib/ssl/openssl.cnf etc/nsswitch.conf \
    etc/passwd etc/group etc/hosts
mkdir -p "$root$tree" "$root$(dirname "$(readlink -f .venv)")"
tar --exclude=./.git --exclude=./.venv --exclude=./build --exclude=./dist \
    --exclude=__pycache__ --exclude='*.so' -cf - . | tar -C "$root$tree" -xf -
cp -r "$work/lib/." "$root$tree"
cp -a "$(readlink -f .venv)" "$root$(readlink -f .venv)"
[ ! -L .venv ] || cp -a .venv "$root$tree/.venv"
[ -e "$root$(readlink -f .venv/bin/python3)" ] || die "no interpreter on the disk"
[ -e "$root/usr/bin/python3" ] || ln -s "$python" "$root/usr/bin/python3"
{
    printf '%s\n' "$python" /usr/bin/openssl /bin/sh
    find "$library" "$(readlink -f .venv)" cutthrough -name '*.so'
} | xargs -n 50 ldd 2>/dev/null | awk '/=> \// { print $3 } $1 ~ /^\/.*ld-linux/ { print $1 }' | sort -u |
    cut -c 2- | take -T -
quoted=${*@Q}
cat >"$root/inside" <<INSIDE
export PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
cd '$tree'
.venv/bin/python -m pytest -q -p no:cacheprovider -rs tests/e2e/test_ktls.py $quoted
echo "$done_line \$?"
INSIDE
used=$(du -sm "$root" | cut -f 1)
mkfs.ext4 -q -F -d "$root" "$work/disk" "$((used * 5 / 4 + 256))M"
rm -rf "$root" "$start"

# Emulated, because KVM inside a virtual machine may hang or abort. The guest has no network card.
status=0
timeout "${LIMIT:-1800}" qemu-system-x86_64 -M q35 -accel "${ACCEL:-tcg,thread=multi}" -cpu max \
    -smp 2 -m 2048 -nic none -display none -monitor none -serial stdio -no-reboot \
    -kernel "$work/unpacked/boot/vmlinuz-$version" -initrd "$work/initrd" \
    -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" \
    -append 'console=ttyS0 quiet panic=-1' </dev/null | tee "$work/log" || status=$?
rm -f "$work/disk"
[ "$status" -ne 124 ] || die "the guest has not ended in time"
status=$(tr -d "\r" <"$work/log" | sed -n "s/^.*$done_line \\([0-9]*\\)\$/\\1/p")
[ -n "$status" ] || die "the guest has ended without a result: $work/log"
exit "$status"
