"""What a browser shows on the live page, and what cut tunnels see."""

import pytest

from tests.support.admin import TOKEN
from tests.support.wait import wait_until

ASKS = "document.querySelector('#ask').open"


def rows(browser, table: str = "#rows") -> list[list[str]]:
    return browser.run(
        f"[...document.querySelectorAll('{table} tr')].map(r =>"
        " [...r.cells].map(c => c.innerText))")


def see_reset(tunnel) -> None:
    with pytest.raises(ConnectionResetError):
        tunnel.sock.recv(1)


def sign_in(browser) -> None:
    browser.type("#token", TOKEN)
    browser.key("Enter", 13, "\r")
    wait_until(lambda: browser.run("isSignedIn() && $('token').hidden"), "a session")
