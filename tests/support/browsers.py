"""The browsers that tests drive, and what they do on the site."""

from tests.support import browser, firefox
from tests.support.browser import Browser
from tests.support.firefox import Firefox
from tests.support.site import ECHO

KINDS = {"chromium": (Browser, browser.PROGRAM), "firefox": (Firefox, firefox.PROGRAM)}


def echo(client, url: str) -> object:
    return client.run(ECHO.replace("URL", f"'{url}'"))
