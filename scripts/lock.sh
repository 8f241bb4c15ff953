#!/usr/bin/env bash
# Makes requirements/*.txt anew: for each list of pyproject.toml the newest versions that
# fit together on Python 3.11 to 3.14, with the hashes of all their files (x86-64, arm64 and
# sources). pip takes nothing else: --require-hashes. What is in them decides what the
# image, CI and `make` install; read the difference before it is committed.
#
#     scripts/lock.sh [UV]
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${1:-uv}
python=.venv/bin/python
[ -x $python ] || python=python3

# No host of a registry and no path of this machine goes into the files.
compile() { # NAME INPUT…
    local name=$1
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-annotate \
        --custom-compile-command "make lock" --output-file "$work/$name.txt" "$@"
}

listed() { # PYTHON-EXPRESSION: the requirements in this place of pyproject.toml
    "$python" -c "import tomllib; tables = tomllib.load(open('pyproject.toml', 'rb'))
print(*tables$1, sep='\n')"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
listed "['build-system']['requires']" >"$work/build.in"
listed "['dependency-groups']['tools']" >"$work/tools.in"
listed "['dependency-groups']['site']" >"$work/site.in"
listed "['dependency-groups']['judges']" >"$work/judges.in"
listed "['dependency-groups']['tlsfuzzer']" >"$work/tlsfuzzer.in"
listed "['dependency-groups']['recipes']" >"$work/recipes.in"
listed "['dependency-groups']['stores']" >"$work/stores.in"

served=(--extra redis --extra postgres --extra codings --extra recording --extra grpc --extra pkcs11
    --extra otlp)
compile test pyproject.toml "$work/build.in" "${served[@]}" --extra test
for name in run redis postgres image build; do # the same versions as the tests have
    case $name in
        run) inputs=(pyproject.toml) ;;
        image) inputs=(pyproject.toml "${served[@]}") ;;
        redis | postgres) inputs=(pyproject.toml --extra "$name") ;;
        build) inputs=("$work/build.in") ;;
    esac
    compile "$name" "${inputs[@]}" --constraints "$work/test.txt"
done
compile tools "$work/tools.in"
compile site "$work/site.in"
compile judges "$work/judges.in"
compile tlsfuzzer "$work/tlsfuzzer.in"
compile recipes "$work/recipes.in"
compile stores "$work/stores.in"
mkdir -p requirements
mv "$work"/*.txt requirements/
