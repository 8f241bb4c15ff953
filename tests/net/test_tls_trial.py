"""A trial of our records against the libssl that is loaded (R85)."""

import pytest

from cutthrough.config.config import Config
from cutthrough.doctor.program import check_records
from cutthrough.net.tls import records, trial
from cutthrough.net.tls import transport as tls
from tests.net.conftest import Meet
from tests.support.certificates import client_context, on_aws_lc

KEY_UPDATE = 24


def test_this_libssl_passes_and_leaves_no_trace() -> None:
    before = tls.stats()
    assert trial.try_all() == ""
    assert tls.stats() == before


def test_a_trial_can_fail(monkeypatch) -> None:
    """Our records know no CCM, so libssl keeps the connection."""
    monkeypatch.setattr(trial, "SUITES", ((True, b"TLS_AES_128_CCM_SHA256"),))
    before = tls.stats()
    assert trial.try_all() == "a trial of TLS_AES_128_CCM_SHA256 has failed"
    assert tls.stats() == before


@pytest.mark.parametrize(("version", "known"), [
    (0x30000000, True), (0x30500000, True), (0x305000F0, True), (0x30600000, False),
    (0x40000000, False)])
def test_versions_that_the_tests_do_not_know_are_not_tried(version, known) -> None:
    assert on_aws_lc() or (trial.why_unknown(version) == "") == known


@pytest.mark.parametrize("option", ["own", "libssl", "kernel"])
def test_the_doctor_says_whose_the_records_are(option) -> None:
    seen = check_records(Config(tls_records=option)).seen
    assert seen.startswith("libssl's" if option == "libssl" else "own")


def test_libssl_renews_its_key_too(meet: Meet) -> None:
    """It never did by itself."""
    records.set_records_of_key(8)
    tls.set_own_records(False)
    try:
        context, updates = client_context(), []

        def count(_conn, direction, _version, _content, message, _data) -> None:
            if (direction, message) == ("read", KEY_UPDATE):
                updates.append(message)

        context._msg_callback = count
        couple = meet(peer=context)
        couple.begin()
        for n in range(40):
            assert couple.end.send(b"%d" % n) > 0
        assert couple.peer.recv() == b"".join(b"%d" % n for n in range(40))
        assert len(updates) == 4, "behind each 8 records"
    finally:
        tls.set_own_records(True)
        records.set_records_of_key(1 << 24)
