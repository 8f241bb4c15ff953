"""Hellos of real clients: our fingerprints are tshark's (see record_hellos)."""

import hashlib
import json
from typing import Any

import pytest

from cutthrough.wire import fingerprints
from tests.doors.wire_hello import read_client_hello
from tests.wire.record_hellos import HERE, HOST
from tests.wire.recorded_hellos import VALUES, data_of
from tests.wire.replay import parse_every_way
from tests.wire.twin_hello import build_records, read_hello

CLIENTS: dict[str, str] = json.loads((HERE / "clients.json").read_text())


def test_each_recording_has_its_client_and_its_values() -> None:
    names = {file.stem for file in HERE.glob("*.bin")}
    assert names == VALUES.keys() == CLIENTS.keys()


@pytest.mark.parametrize("name", VALUES)
def test_the_fingerprints_are_tshark_s(name: str) -> None:
    found: dict[str, Any] = parse_every_way(read_client_hello, data_of(name))
    assert {"ja4": found["ja4"], "ja3": found["ja3"],
            "name": found["name"] or ""} == VALUES[name]
    assert found == read_hello(data_of(name))._asdict()


@pytest.mark.parametrize("name", VALUES)
def test_records_do_not_change_a_fingerprint(name: str) -> None:
    data = data_of(name)
    message = b""
    while data:
        size = 5 + int.from_bytes(data[3:5])
        message, data = message + data[5:size], data[size:]
    for size in (1, 3, 300):
        if len(message) // size * (size + 5) < 16000:
            records = build_records(message, *[size] * (len(message) // size))
            assert read_client_hello(records)["ja4"] == VALUES[name]["ja4"]


@pytest.mark.parametrize("name", VALUES)
def test_the_lists_of_a_client_are_hashed_once(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two lists of Chromium and of Python have one place."""
    texts: list[bytes] = []

    def count(text: bytes) -> object:
        texts.append(text)
        return hashlib.sha256(text)

    monkeypatch.setattr(fingerprints, "sha256", count)
    for _ in range(2):
        texts.clear()
        read_client_hello(data_of(name))
    assert texts == []


def test_what_the_clients_offer() -> None:
    found = {name: read_client_hello(data_of(name)) for name in VALUES}
    assert {one["name"] for one in found.values()} == {HOST, None}
    offering_ech = {name for name, one in found.items() if one["ech"]}
    assert offering_ech == {"chromium", "firefox"}
    assert found["chromium"]["alpn"] == found["curl"]["alpn"] == [b"h2", b"http/1.1"]
    # An ML-KEM share: longer than one segment of an Ethernet
    assert {name for name, one in found.items() if one["length"] > 1460} == {
        "chromium", "firefox", "go", "curl-13", "curl-address-13", "openssl-13"}
