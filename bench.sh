#!/usr/bin/env bash
# The benchmark in one command: wrk and siege through the proxy, against a private nginx
# (or Apache) on free loopback ports, checked by the origin's own access log.
#
#   DURATION=2 CONC=50 PORT=0 WORKERS=auto ./bench.sh [flags of the proxy]
#
# PORT is the proxy's; 0 selects a free one. Nothing is installed, no system service is
# touched, and every started process is stopped. Exit status 1: an error, or different
# counts. It ends with a table of direct, a blind relay and the proxy, measured in turns:
# rate, ratio, CPU per request, and the origin's count; and with the verdict in words.
# More: python -m bench --list.
set -euo pipefail
cd "$(dirname "$0")"

DURATION=${DURATION:-2}
CONC=${CONC:-50}
PORT=${PORT:-0}
WORKERS=${WORKERS:-auto}
PYTHON=${PYTHON:-$PWD/.venv/bin/python}
USER_PASSWORD=username:password
PATH=$PATH:/usr/sbin

fail() {
    echo "bench.sh: $*" >&2
    exit 1
}

for tool in wrk siege; do
    command -v "$tool" >/dev/null || fail "$tool is missing: apt install wrk siege nginx"
done
server=$(command -v nginx || command -v apache2) ||
    fail "neither nginx nor apache2 is installed: apt install wrk siege nginx"
[ -x "$PYTHON" ] || fail "$PYTHON is missing: make bench builds the proxy first"
"$PYTHON" -c 'import cutthrough.session.connection' 2>/dev/null ||
    fail "the proxy is not built: make bench builds it first"

# A directory for this run: logs, configuration and payloads; stop removes it
dir=$(mktemp -d "${TMPDIR:-/tmp}/bench.XXXXXX")
pids=()
stop() {
    status=$?
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$dir"
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

# wait_for FILE PATTERN PID: until PATTERN is in FILE; fails when PID ends first.
wait_for() {
    for _ in $(seq 300); do
        grep -q "$2" "$1" 2>/dev/null && return
        kill -0 "$3" 2>/dev/null || break
        sleep 0.05
    done
    cat "$1" >&2
    fail "'$2' did not appear"
}

free_port() {
    "$PYTHON" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# ---- the origin ----

mkdir "$dir/files" "$dir/home"
cp index.html "$dir/files/"
for size in 1k 16k 128k 1m; do
    head -c "$(numfmt --from=iec "${size^^}")" /dev/urandom >"$dir/files/$size"
done
origin=127.0.0.1:$(free_port)
if [ "$(basename "$server")" = nginx ]; then
    user=''
    [ "$(id -u)" = 0 ] && user='user root;' # nginx's default user may not enter $dir
    sed -e "s/@PORT@/${origin#*:}/" -e "s/@USER@/$user/" \
        -e 's/@IP@/127.0.0.1/' -e '/^@TLS@$/d' bench/origin.conf >"$dir/origin.conf"
    "$server" -p "$dir" -c "$dir/origin.conf" 2>"$dir/origin.err" &
else
    user=''
    if [ "$(id -u)" = 0 ]; then # Apache refuses to serve as root
        user=$(printf 'User nobody\\nGroup %s' "$(id -gn nobody)")
        chmod 755 "$dir"
    fi
    sed -e "s/@ORIGIN@/$origin/" -e "s|@DIR@|$dir|" -e "s/@USER@/$user/" \
        bench/apache.conf >"$dir/origin.conf"
    "$server" -d "$dir" -f "$dir/origin.conf" -D FOREGROUND 2>"$dir/origin.err" &
fi
pids+=($!)
for _ in $(seq 100); do
    (: >"/dev/tcp/${origin/://}") 2>/dev/null && break
    kill -0 "${pids[0]}" 2>/dev/null || break
    sleep 0.05
done
kill -0 "${pids[0]}" 2>/dev/null || {
    cat "$dir"/*.err "$dir"/error.log >&2 || true
    fail "the origin did not start"
}

# origin_count: requests that the origin answered with 200, after its log has settled.
origin_count() {
    local before=-1 now=0
    while [ "$now" != "$before" ]; do
        before=$now
        sleep 0.3
        now=$(wc -c <"$dir/access.log")
    done
    grep -c '^200 ' "$dir/access.log" || true
}

# ---- the proxy ----

"$PYTHON" -c 'import proxy' --listen "127.0.0.1:$PORT" --workers "$WORKERS" \
    --origin "http://$origin" --access-log off "$@" >"$dir/proxy.out" 2>&1 &
pids+=($!)
wait_for "$dir/proxy.out" 'listening on' "$!"
grep 'listening on' "$dir/proxy.out"
proxy=$(sed -n 's/.*listening on \([^ ,]*\).*/\1/p' "$dir/proxy.out" | head -n 1)
credentials="Proxy-Authorization: Basic $(printf %s "$USER_PASSWORD" | base64)"

# ---- the tools ----

failures=0
checks=0
names=() # of what failed

# check NAME REPORTED BEFORE IN_FLIGHT: the origin must have answered the REPORTED requests.
# When its time is over, wrk closes its connections and does not count the requests in
# flight, at most one for each connection. So the origin may have IN_FLIGHT more.
check() {
    local seen verdict=ok
    checks=$((checks + 1))
    seen=$(($(origin_count) - $3))
    if [ "$2" -eq 0 ] || [ "$seen" -lt "$2" ] || [ "$seen" -gt $(($2 + $4)) ]; then
        verdict=MISMATCH
        failures=$((failures + 1))
        names+=("$1: the counts differ")
    fi
    echo "== $1: reported $2, origin answered $seen (up to $4 more may be in flight): $verdict"
    echo
}

run_wrk() { # NAME, arguments of wrk
    local name=$1 before reported
    shift
    before=$(origin_count)
    echo "== $name: wrk -t1 -c$CONC -d${DURATION}s --latency $*"
    wrk -t1 "-c$CONC" "-d${DURATION}s" --latency "$@" >"$dir/wrk.out" || failures=$((failures + 1))
    cat "$dir/wrk.out"
    if grep -Eq 'Socket errors|Non-2xx' "$dir/wrk.out"; then
        echo "== $name: ERRORS"
        failures=$((failures + 1))
        names+=("$name: errors")
    fi
    reported=$(sed -n 's/ *\([0-9]*\) requests in .*/\1/p' "$dir/wrk.out")
    check "$name" "${reported:-0}" "$before" "$CONC"
}

# A number of requests, not a time: when its time is over, siege cancels its threads at
# any point, and if one of many dies with a lock held, siege hangs. A small machine does
# about 8000 requests a second, so this takes about DURATION.
run_siege() { # NAME, arguments of siege
    local name=$1 before reported failed each
    shift
    each=$((DURATION * 8000 / CONC + 1))
    before=$(origin_count)
    echo "== $name: siege -b -c$CONC -r$each $*"
    HOME=$dir/home siege --rc="$dir/siege.rc" -b "-c$CONC" "-r$each" "$@" \
        >"$dir/siege.out" 2>&1 || failures=$((failures + 1))
    sed -n '/^Transactions/,/^Shortest/p' "$dir/siege.out"
    reported=$(sed -n 's/^Transactions:[^0-9]*\([0-9]*\).*/\1/p' "$dir/siege.out")
    failed=$(sed -n 's/^Failed transactions:[^0-9]*\([0-9]*\).*/\1/p' "$dir/siege.out")
    if [ "${failed:-1}" -ne 0 ]; then
        echo "== $name: ERRORS"
        tail -n 20 "$dir/siege.out"
        failures=$((failures + 1))
        names+=("$name: errors")
    fi
    check "$name" "${reported:-0}" "$before" 0
}

cp bench/siege.rc "$dir/"

run_wrk "origin form" -H "$credentials" "http://$proxy/index.html"
run_wrk "absolute form" -s bench/absolute.lua "http://$proxy" -- \
    "$origin/index.html" "${credentials##* }"
for size in 1k 16k 128k 1m; do
    run_wrk "absolute form, $size" -s bench/absolute.lua "http://$proxy" -- \
        "$origin/$size" "${credentials##* }"
done
run_siege "siege, origin form" -H "$credentials" "http://$proxy/index.html"
# Not with proxy-login: siege would wait for a 407 and count it as a transaction.
cat >>"$dir/siege.rc" <<EOF_RC
proxy-host = ${proxy%:*}
proxy-port = ${proxy##*:}
EOF_RC
run_siege "siege, as a proxy" -H "$credentials" "http://$origin/index.html"

# ---- the limit of the machine, and the cost of the proxy ----

# This run has its own origin and a new proxy for each turn. The relay is a blind C loop of
# one thread, the limit of any proxy. So cutthrough has one worker, independent of WORKERS.
echo "== direct, blind relay, cutthrough with one worker: wrk -t1 -c$CONC -d${DURATION}s, medians of three"
if [ "$(basename "$server")" = nginx ]; then
    "$PYTHON" -m bench short --seconds "$DURATION" --conns "$CONC" -- "$@" || {
        failures=$((failures + 1))
        names+=("the table: a run is void")
    }
else
    echo "skipped: this table needs nginx"
fi

if [ "$failures" -gt 0 ]; then
    cat "$dir/proxy.out" >&2
    for name in "${names[@]}"; do echo "verdict: $name" >&2; done
    fail "verdict: $failures failed"
fi
echo "verdict: the origin counted what the clients reported in all $checks runs, without an error"
