"""A real headless Firefox, driven over WebDriver BiDi, which it speaks by itself."""

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.support.browser import wait_or_kill
from tests.support.certificates import make_nss_database
from tests.support.wait import wait_until

PROGRAM = shutil.which("firefox-esr") or shutil.which("firefox")

# It turns off most requests to its vendor by itself, because it is driven.
PREFERENCES = {
    "network.trr.mode": 5,                      # no DNS over HTTPS
    "network.manage-offline-status": False,     # loopback alone is no network to it
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "dom.security.https_first": False,
}
MANIFEST = {
    "manifest_version": 2, "name": "test", "version": "1",
    "browser_specific_settings": {"gecko": {"id": "test@example.test"}},
    "permissions": ["proxy", "webRequest", "webRequestBlocking", "<all_urls>"],
    "background": {"scripts": ["background.js"]},
}
LOG_IN = """
browser.webRequest.onAuthRequired.addListener(
  details => details.isProxy ? {authCredentials: %s} : {},
  {urls: ["<all_urls>"]}, ["blocking"]);
"""
# A second tab shows that the listeners above are in place
READY = "browser.tabs.create({active: false, url: 'about:blank'});\n"


class CommandError(Exception):
    """A command's error, in Firefox's words."""


class Firefox:
    """One page. The parameters and `close`, `visit`, `run` and `log_in` are Browser's.
    """

    def __init__(self, directory: Path, *, pac: str = "", names: Sequence[str] = (),
                 trusted: Path | None = None, flags: Sequence[str] = ()) -> None:
        self._directory, profile = directory, directory / "profile"
        self._number = 0
        if trusted is None:
            profile.mkdir()
        else:
            make_nss_database(profile, trusted)
        preferences = PREFERENCES | {"network.dns.localDomains": ",".join(names)}
        if pac:
            preferences |= {
                "network.proxy.type": 2, "network.proxy.autoconfig_url": pac}
        (profile / "user.js").write_text("".join(
            f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
            for name, value in preferences.items()))
        (directory / "home").mkdir()
        try:
            self._begin(profile, flags)
        except (AssertionError, TimeoutError):  # on a busy machine its remote agent
            self._begin(profile, flags)         # sometimes never answers

    def _begin(self, profile: Path, flags: Sequence[str]) -> None:
        assert PROGRAM is not None
        with open(self._directory / "said", "wb") as said:
            self._process = subprocess.Popen(
                [PROGRAM, "--headless", "--no-remote", "--profile", str(profile),
                 "--remote-debugging-port=0", *flags, "about:blank"],
                env=os.environ | {"HOME": str(self._directory / "home"),
                                  "MOZ_CRASHREPORTER_DISABLE": "1"},
                stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        with contextlib.ExitStack() as stack:
            stack.callback(wait_or_kill, self._process)
            stack.callback(self._process.terminate)
            address = wait_until(self._address, self._said, 60)
            self._socket = stack.enter_context(connect(
                f"{address}/session", max_size=1 << 26, proxy=None))
            self.send("session.new", capabilities={})
            self._context = self._contexts()[0]
            self._stack = stack.pop_all()

    def _said(self) -> str:
        return (self._directory / "said").read_text(errors="replace")

    def _address(self) -> str:
        address = re.search(r"WebDriver BiDi listening on (\S+)\n", self._said())
        return address[1] if address else ""

    def __enter__(self) -> "Firefox":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.send("browser.close")
        self._stack.close()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Raises CommandError."""
        self._number += 1
        self._socket.send(json.dumps(
            {"id": self._number, "method": method, "params": parameters}))
        while True:
            heard = json.loads(self._socket.recv(60))
            if heard.get("id") == self._number:
                if heard["type"] == "error":
                    raise CommandError(f"{method}: {heard['message']}")
                return heard["result"]

    def _contexts(self) -> list[str]:
        return [tree["context"]
                for tree in self.send("browsingContext.getTree")["contexts"]]

    def visit(self, url: str) -> str:
        try:
            self.send("browsingContext.navigate", context=self._context, url=url,
                      wait="complete")
        except CommandError as error:
            error_name = re.search(r"NS_ERROR_\w+", str(error))
            name = error_name[0] if error_name else str(error)
            if name == "NS_ERROR_GENERATE_FAILURE":     # of TLS: the page has the code
                return self.run("document.getNetErrorInfo().errorCodeString")
            return name
        return ""

    def run(self, script: str) -> Any:
        evaluation = self.send(
            "script.evaluate", target={"context": self._context}, awaitPromise=True,
            expression=f"(async () => JSON.stringify(await ({script})))()")
        assert evaluation["type"] == "success", evaluation
        return json.loads(evaluation["result"].get("value", "null"))

    def run_inside(self, script: str) -> Any:
        """Runs it with the rights of Firefox's own code, if the flag
        --remote-allow-system-access was given."""
        tree = self.send("browsingContext.getTree", **{"moz:scope": "chrome"})
        page, self._context = self._context, tree["contexts"][0]["context"]
        try:
            return self.run(script)
        finally:
            self._context = page

    def install(self, script: str) -> None:
        """Installs an extension with this script, which runs from now on."""
        folder = self._directory / "extension"
        folder.mkdir()
        (folder / "manifest.json").write_text(json.dumps(MANIFEST))
        (folder / "background.js").write_text(script + READY)
        before = len(self._contexts())
        self.send("webExtension.install",
                  extensionData={"type": "path", "path": str(folder)})
        wait_until(lambda: len(self._contexts()) > before, "the extension to run")

    def log_in(self, user: str, password: str) -> None:
        self.install(LOG_IN % json.dumps({"username": user, "password": password}))
