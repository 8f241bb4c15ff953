"""Authorities below one with its key in a token: kept, and renewed in time."""

import asyncio
import types
from pathlib import Path

import pytest

from cutthrough.config.config import Config
from cutthrough.generation import delegates
from cutthrough.supervisor.certificate_watch import CertificateWatch

DAY, FILES = delegates.DAY_S, ("ca", b"certificate", b"pkcs11:object=a")


class Clock:
    """`asked`: how often the token was used; `gone`: it cannot be reached."""

    def __init__(self) -> None:
        self.now, self.asked, self.gone = 1e9, 0, False

    def time(self) -> float:
        return self.now

    def ask(self, folder: str) -> delegates.Delegate:
        self.asked += 1
        if self.gone:
            raise ValueError(f"{folder}: there is no such token")
        return delegates.Delegate(b"key", b"%d" % self.asked, self.now, self.now)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(delegates, "time", types.SimpleNamespace(time=made.time))
    monkeypatch.setattr(delegates, "_ask", made.ask)
    monkeypatch.setattr(delegates, "_held", {})
    return made


def test_it_is_kept_and_renewed_every_day(clock) -> None:
    first = delegates.find_delegate(*FILES)
    clock.now += DAY - 1
    assert delegates.find_delegate(*FILES) is first
    assert not delegates.is_old()
    clock.now += 1
    assert delegates.is_old()
    assert delegates.renew_old()
    assert delegates.find_delegate(*FILES) is not first
    assert clock.asked == 2


def test_a_token_that_is_gone_is_tried_again(clock, caplog) -> None:
    first = delegates.find_delegate(*FILES)
    clock.now += DAY
    clock.gone = True
    assert not delegates.renew_old()
    assert "no such token. What the token has signed holds for 144 hours" in caplog.text
    assert not delegates.is_old()
    clock.now += delegates.AGAIN_S
    assert delegates.is_old()
    clock.now += 5.5 * DAY
    assert delegates.find_delegate(*FILES).certificates == first.certificates
    clock.now += DAY
    with pytest.raises(ValueError, match="no such token"):
        delegates.find_delegate(*FILES)


def test_a_clock_that_was_set_back_renews_it(clock) -> None:
    """It began in the future, and no client accepted what it signed until then."""
    first = delegates.find_delegate(*FILES)
    clock.now -= 30 * DAY
    assert delegates.is_old()
    assert delegates.renew_old()
    assert delegates.find_delegate(*FILES) is not first
    assert not delegates.is_old()
    clock.now -= DAY
    assert delegates.find_delegate(*FILES).certificates == b"3"


def test_other_files_have_another(clock) -> None:
    first = delegates.find_delegate(*FILES)
    assert delegates.find_delegate("ca", b"other", FILES[2]) is not first
    assert len(delegates._held) == 1


def test_the_watch_renews_it(clock) -> None:
    """And has the workers take it."""
    rereads = []
    delegates.find_delegate(*FILES)
    clock.now += DAY

    async def look() -> None:
        watch = CertificateWatch(Config, lambda: bool(rereads.append(True)))
        watch.begin()
        watch._look()
        assert watch._renewing is not None
        await watch._renewing
        watch.end()

    asyncio.run(look())
    assert (clock.asked, len(rereads)) == (2, 1)


def test_a_library_that_hangs_is_ended(tmp_path: Path, monkeypatch) -> None:
    script = tmp_path / "hangs"
    script.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    script.chmod(0o700)
    monkeypatch.setattr(delegates, "sys", types.SimpleNamespace(executable=str(script)))
    monkeypatch.setattr(delegates, "PATIENCE_S", 0.2)
    with pytest.raises(ValueError, match="has not signed within"):
        delegates._ask("ca")


def test_a_library_that_crashes_is_told(tmp_path: Path, monkeypatch) -> None:
    script = tmp_path / "crashes"
    script.write_text("#!/bin/sh\nkill -SEGV $$\n")
    script.chmod(0o700)
    monkeypatch.setattr(delegates, "sys", types.SimpleNamespace(executable=str(script)))
    with pytest.raises(ValueError, match=r"library has ended the process \(-11"):
        delegates._ask("ca")
