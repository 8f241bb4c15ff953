#!/usr/bin/env bash
# The report as Chromium shows it, at desktop and phone width: bench/screenshots.sh [REPORT [DIRECTORY]]
# writes report-desktop.png and report-phone.png, the first screens of the page.
set -euo pipefail

report=$(realpath "${1:-$(dirname "$0")/results/field.html}")
directory=${2:-$(dirname "$0")/../docs/images}
browser=$(command -v chromium || command -v google-chrome) || {
    echo "screenshots.sh: apt install chromium" >&2
    exit 1
}
mkdir -p "$directory"
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT

shoot() { # NAME WIDTH HEIGHT
    "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$profile" --window-size="$2,$3" \
        --screenshot="$directory/report-$1.png" "file://$report" >/dev/null 2>&1
    echo "$directory/report-$1.png"
}

shoot desktop 1280 2600
shoot phone 500 2600
