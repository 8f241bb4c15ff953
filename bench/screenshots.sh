#!/usr/bin/env bash
# The report as Chromium shows it, at desktop and phone width: bench/screenshots.sh [REPORT [DIRECTORY [GROUPS]]]
# writes report-desktop.png and report-phone.png, the first screens of the page, and the charts of some
# groups ("1 3"): report-desktop-3.png, report-phone-3.png.
set -euo pipefail

report=$(realpath "${1:-$(dirname "$0")/results/field.html}")
directory=${2:-$(dirname "$0")/../docs/images}
browser=$(command -v chromium || command -v google-chrome) || {
    echo "screenshots.sh: apt install chromium" >&2
    exit 1
}
mkdir -p "$directory"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

shoot() { # PAGE NAME WIDTH HEIGHT
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$work/profile" --window-size="$3,$4" \
        --screenshot="$directory/report-$2.png" "file://$1" >/dev/null 2>&1
    echo "$directory/report-$2.png"
}

shoot "$report" desktop 1280 2600
shoot "$report" phone 500 2600
# Headless Chromium paints nothing where an address names a place in the page: a page that
# begins there is shown instead.
for group in ${3:-1 3}; do
    grep -q "<h2 id=\"group-$group\">" "$report" || continue
    sed "s|<body>.*<h2 id=\"group-$group\">|<body><h2 id=\"group-$group\">|" "$report" >"$work/page.html"
    shoot "$work/page.html" "desktop-$group" 1280 2000
    shoot "$work/page.html" "phone-$group" 500 2600
done
