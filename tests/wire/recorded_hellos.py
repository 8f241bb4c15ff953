"""ClientHellos that were recorded of clients, and their values."""

import json

from tests.wire.record_hellos import HERE

VALUES: dict[str, dict[str, str]] = json.loads(
    (HERE / "values.json").read_text())["hellos"]
# Chromium has GREASE among its signature algorithms, another one each time. JA4.md
# ignores GREASE everywhere; tshark 4.4 hashes it. The value is FoxIO's own for
# Chromium 152 (pcap/sigalg-grease.pcap).
VALUES["chromium"]["ja4"] = "t13d1517h2_8daaf6152771_cb7bf5808d99"


def data_of(name: str) -> bytes:
    return (HERE / f"{name}.bin").read_bytes()
