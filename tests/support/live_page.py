"""What a browser shows on the live page, and what cut tunnels see."""

import pytest

ASKS = "document.querySelector('#ask').open"


def rows(browser, table: str = "#rows") -> list[list[str]]:
    return browser.run(
        f"[...document.querySelectorAll('{table} tr')].map(r =>"
        " [...r.cells].map(c => c.innerText))")


def see_reset(tunnel) -> None:
    with pytest.raises(ConnectionResetError):
        tunnel.sock.recv(1)
