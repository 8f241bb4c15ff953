#!/usr/bin/env bash
# scripts/packages.sh deb|rpm…: dist/cutthrough_VERSION_ARCHITECTURE.deb, dist/cutthrough-VERSION.rpm.
#
# For the distribution that it runs on, its Python and its libraries: /opt/cutthrough is a virtual
# environment with what requirements/image.txt locks, as dh-virtualenv makes them.
# build/share has manual pages and completions. `scripts/debian.sh SUITE ARCHITECTURE deb` builds
# for another Debian. DEBFULLNAME and DEBEMAIL name the one who builds.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export PIP_DISABLE_PIP_VERSION_CHECK=1

die() { echo "packages: $*" >&2; exit 1; }
[ $# -gt 0 ] || die "usage: $0 deb|rpm…"
python=$(readlink -f .venv/bin/python)
case $python in
    /usr/bin/python3.*) ;;
    *) die "$python is not the distribution's Python: remove .venv, and PYTHON=/usr/bin/python3 make build" ;;
esac
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' cutthrough/__init__.py)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
work=$PWD/build/packages
root=$work/root
inside=$root/opt/cutthrough

make_tree() {
    rm -rf "$work"
    mkdir -p "$root/opt"
    "$python" -m venv --without-pip "$inside"
    pip() { .venv/bin/python -m pip --python "$inside/bin/python" install --quiet --no-cache-dir --no-compile "$@"; }
    pip --require-hashes -r requirements/image.txt
    CUTTHROUGH_BUILD=release .venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/wheel" .
    pip --no-index --no-deps "$work"/wheel/*.whl
    find "$inside/bin" -mindepth 1 ! -name 'python*' ! -name cutthrough -delete
    sed -i "s#$root##g" "$inside/bin/cutthrough" "$inside/pyvenv.cfg"
    find "$inside" -name '*.so' -exec strip --strip-unneeded {} +
    # Part of the package, so that nothing writes there later; by content, because times are set below
    "$python" -m compileall -q -s "$root" -p / --invalidation-mode unchecked-hash "$inside/lib"

    local doc=$root/usr/share/doc/cutthrough
    mkdir -p "$root/usr/bin" "$doc" "$root"/usr/lib/{systemd/system,sysusers.d} "$root/etc/cutthrough"
    ln -s /opt/cutthrough/bin/cutthrough "$root/usr/bin/cutthrough"
    cp -r --no-preserve=mode build/share/. "$root/usr/share" # made with a umask of the user's
    gzip -9n "$root"/usr/share/man/man*/*
    gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
    install -m 644 deploy/packages/copyright "$doc"
    install -m 644 deploy/systemd/* "$root/usr/lib/systemd/system"
    install -m 644 deploy/packages/sysusers.conf "$root/usr/lib/sysusers.d/cutthrough.conf"
    install -m 644 deploy/packages/cutthrough.toml "$root/etc/cutthrough"
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

make_deb() {
    local architecture release libraries full
    architecture=$(dpkg --print-architecture)
    # shellcheck source=/dev/null
    release=$(. /etc/os-release && echo "$ID${VERSION_ID:-}")
    full=${version/.dev/\~dev}-1~$release # of the next Debian it is higher
    rm -rf "$work/deb"
    cp -a "$root" "$work/deb"
    mkdir -p "$work/debian" "$work/deb/DEBIAN" # dpkg-shlibdeps looks for both
    printf 'Source: cutthrough\n\nPackage: cutthrough\nArchitecture: any\n' >"$work/debian/control"
    libraries=$(cd "$work" && find deb/opt -name '*.so*' -type f -exec dpkg-shlibdeps --warnings=0 --ignore-missing-info -O {} + |
        sed -n 's/^shlibs:Depends=//p')
    sed -e "s#@VERSION@#$full#; s#@ARCHITECTURE@#$architecture#; s#@LIBRARIES@#$libraries#" \
        -e "s#@PYTHON@#${python##*/}#; s#@SIZE@#$(du -sk "$root" | cut -f 1)#" \
        -e "s#@MAINTAINER@#${DEBFULLNAME:-cutthrough} <${DEBEMAIL:-unset@localhost}>#" \
        deploy/packages/control >"$work/deb/DEBIAN/control"
    echo /etc/cutthrough/cutthrough.toml >"$work/deb/DEBIAN/conffiles"
    install -m 755 deploy/packages/{postinst,prerm,postrm} "$work/deb/DEBIAN"
    printf 'cutthrough (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' "$full" \
        "$(sed -n 's/^Maintainer: //p' "$work/deb/DEBIAN/control")" "$(date -Rud "@$SOURCE_DATE_EPOCH")" |
        gzip -9n >"$work/deb/usr/share/doc/cutthrough/changelog.Debian.gz"
    (cd "$work/deb" && find opt usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group --build "$work/deb" "$work/whole.deb"
    mv "$work/whole.deb" "dist/cutthrough_${full}_$architecture.deb" # a run that is killed leaves none
}

make_rpm() {
    local link # rpmbuild splits paths at spaces
    link=$(mktemp -d)/tree
    ln -s "$PWD" "$link"
    rpmbuild -bb --quiet --define "_topdir $link/build/packages/rpm" --define "scripts $link/deploy/packages" \
        --define "tree $link/build/packages/root" --define "python $python" --define "release_version ${version/.dev/\~dev}" \
        --define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" --define "_rpmdir $link/dist" \
        --define "use_source_date_epoch_as_buildtime 1" \
        deploy/packages/cutthrough.spec
    rm -r "${link%/tree}"
}

mkdir -p dist
make_tree
for kind in "$@"; do
    "make_$kind"
done
