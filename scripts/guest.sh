#!/usr/bin/env bash
# scripts/guest.sh ktls|ipvs [ARGUMENT…]: tests in a guest whose kernel has what this machine's may lack.
#
#     ktls    tests/e2e/test_ktls.py: TLS by the kernel
#     ipvs    tests/e2e/test_fleet_failover.py behind IPVS and keepalived
#
# The guest is QEMU with Debian's kernel for clouds, which apt-get downloads into build/guest and
# nothing installs. It has no network, and a disk made of this tree, .venv, the interpreter, the
# programs of the tests and their libraries. ARGUMENTs are pytest's. It is emulated and takes some
# minutes; ACCEL=kvm may be faster. Ends with the exit status of pytest; after LIMIT=3600 seconds, or
# without a result, with 1. KERNEL=… chooses another package.
#
# Tests of ipvs are about time, and their guest has a time of its own: each instruction takes a
# nanosecond, and nothing passes while this machine runs other programs. Its one CPU so makes a thousand
# million instructions a second, which is less than one core of any server.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$PWD/build/guest
tree=$PWD
kernel=${KERNEL:-linux-image-cloud-amd64}
done_line='guest: pytest has ended with'
PATH=$PATH:/usr/sbin:/sbin

die() { echo "guest: $*" >&2; exit 1; }
[ "$(uname -m)" = x86_64 ] || die "the guest is x86_64, as its host has to be"

# modules, and where they lie; programs
case ${1:-} in
    ktls)
        tests=(tests/e2e/test_ktls.py)
        modules=(tls gcm ghash-generic aesni-intel ghash-clmulni-intel chacha_generic chacha-x86_64
            poly1305_generic poly1305-x86_64 chacha20poly1305)
        places=(net/tls)
        programs=(openssl)
        clock=(-smp 2 -accel "${ACCEL:-tcg,thread=multi}")
        ;;
    ipvs)
        tests=(tests/e2e/test_fleet_failover.py -s -k ipvs)
        modules=(veth bridge ip_vs ip_vs_mh)
        places=(drivers/net/veth.ko net/{802,bridge,ipv4,ipv6,llc,netfilter})
        programs=(ip keepalived openssl redis-server)
        clock=(-smp 1 -accel "tcg,thread=single" -icount "shift=0,sleep=off" -rtc clock=vm)
        [ -z "${ACCEL:-}" ] || clock=(-smp 2 -accel "$ACCEL")
        ;;
    *) die "usage: scripts/guest.sh ktls|ipvs [ARGUMENT…]" ;;
esac
subject=$1
shift
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
start=$work/$subject.start
rm -rf "$start"
mkdir -p "$start"/{bin,dev,mnt,proc,sys} "$start/lib/modules/$version/kernel"
cp "$busybox" "$start/bin"
(cd "$work/unpacked/lib/modules/$version" && cp modules.builtin* modules.order "$start/lib/modules/$version" &&
    cp -r --parents kernel/{arch/x86/crypto,crypto,drivers/block,drivers/virtio,lib} "${places[@]/#/kernel/}" \
        "$start/lib/modules/$version")
"$busybox" depmod -b "$start" "$version"
cat >"$start/init" <<INIT
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in virtio_pci virtio_blk ${modules[*]}; do
    modprobe \$module || echo "guest: no \$module"
done
mount -t ext4 /dev/vda /mnt
for kind in proc sysfs devtmpfs; do
    case \$kind in proc) to=proc ;; sysfs) to=sys ;; *) to=dev ;; esac
    mount -t \$kind \$kind /mnt/\$to
done
mkdir -p /mnt/dev/shm
mount -t tmpfs shm /mnt/dev/shm; mount -t tmpfs run /mnt/run; mount -t tmpfs tmp /mnt/tmp
# Into memory: while a program waits for the disk, a time of instructions goes on to the next timer
find /mnt -xdev -type f -exec cat {} + >/dev/null
ip link set lo up
chroot /mnt /bin/sh /inside
poweroff -f
INIT
chmod 755 "$start/init"
(cd "$start" && find . | "$busybox" cpio -o -H newc 2>/dev/null | gzip -1) >"$work/$subject.initrd"

# The disk. Libraries are found by ldd, those of extension modules too.
root=$work/$subject.root
paths=()
rm -rf "$root" "$work/$subject.disk"
mkdir -p "$root"/{bin,dev,etc,proc,root,run,sys,tmp,usr/bin}
chmod 1777 "$root/tmp"
take() { tar -C / -h -cf - "$@" | tar -C "$root" -xf -; } # -h: what links name
python=$(readlink -f .venv/bin/python)
library=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
for program in "${programs[@]}"; do
    paths+=("$(command -v "$program")") || die "no $program"
done
take "${library#/}" "${python#/}" "${paths[@]#/}" bin/sh usr/lib/ssl/openssl.cnf etc/nsswitch.conf \
    etc/passwd etc/group etc/hosts
mkdir -p "$root$tree" "$root$(dirname "$(readlink -f .venv)")"
tar --exclude=./.git --exclude=./.venv --exclude=./build --exclude=./dist --exclude='*.so' -cf - . | tar -C "$root$tree" -xf -
cp -r "$work/lib/." "$root$tree"
# Compiled here: emulated, each start of a program would take seconds longer
"$python" -m compileall -q -s "$root" -p / "$root$tree"/{cutthrough,tests/support}
cp -a "$(readlink -f .venv)" "$root$(readlink -f .venv)"
[ ! -L .venv ] || cp -a .venv "$root$tree/.venv"
[ -e "$root$(readlink -f .venv/bin/python3)" ] || die "no interpreter on the disk"
[ -e "$root/usr/bin/python3" ] || ln -s "$python" "$root/usr/bin/python3"
{
    printf '%s\n' "$python" "${paths[@]}" /bin/sh
    find "$library" "$(readlink -f .venv)" cutthrough -name '*.so'
} | xargs -d '\n' -n 50 ldd 2>/dev/null | sed -n 's/^\t\(.* => \)\?\(\/.*\) (0x[0-9a-f]*)$/\2/p' | sort -u |
    cut -c 2- | take -T -
quoted=${*@Q}
cat >"$root/inside" <<INSIDE
export PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8
cd '$tree'
.venv/bin/python -m pytest -q -p no:cacheprovider -rs ${tests[*]@Q} $quoted
echo "$done_line \$?"
INSIDE
used=$(du -sm "$root" | cut -f 1)
mkfs.ext4 -q -F -d "$root" "$work/$subject.disk" "$((used * 5 / 4 + 256))M"
rm -rf "$root" "$start"

# Emulated, because KVM inside a virtual machine may hang or abort. The guest has no network card.
status=0
timeout "${LIMIT:-3600}" qemu-system-x86_64 -M q35 "${clock[@]}" -cpu max -m 3072 -nic none -display none \
    -monitor none -serial stdio -no-reboot \
    -kernel "$work/unpacked/boot/vmlinuz-$version" -initrd "$work/$subject.initrd" \
    -drive "file=$work/$subject.disk,format=raw,if=virtio,cache=unsafe" \
    -append 'console=ttyS0 quiet panic=-1' </dev/null | tee "$work/$subject.log" || status=$?
rm -f "$work/$subject.disk"
[ "$status" -ne 124 ] || die "the guest has not ended in time"
status=$(tr -d "\r" <"$work/$subject.log" | sed -n "s/^.*$done_line \\([0-9]*\\)\$/\\1/p")
[ -n "$status" ] || die "the guest has ended without a result: $work/$subject.log"
# ipvs is there for what is skipped elsewhere
[ "$subject" != ipvs ] || ! grep -q SKIPPED "$work/$subject.log" || die "a test was skipped"
exit "$status"
