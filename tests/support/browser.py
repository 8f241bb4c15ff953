"""A real headless Chromium, driven over its DevTools protocol."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.support.certificates import make_nss_database
from tests.support.wait import wait_until

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
#: For pages of ours: Chromium without windows, if it is installed. A page takes 0.12 s
#: of CPU in place of 0.5, the start 0.3 in place of 0.8. Who tests the browser as a
#: client starts PROGRAM, and `make browser` has all in that. What is in /usr/bin is a
#: script, which does not become the program
SHELL = shutil.which("chromium-headless-shell", path="/usr/lib/chromium") or PROGRAM
if os.environ.get("CUTTHROUGH_BROWSER"):
    SHELL = PROGRAM
# bootstrap.sh installs it on Debian; elsewhere it comes as a snap, or not at all
needs_chromium = pytest.mark.skipif(
    PROGRAM is None, reason="chromium is not installed")


def wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a program that has not ended after ten seconds."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def texts_of(node: dict[str, Any], is_inside: bool) -> Iterator[str]:
    """The texts below a node; outside of frames only the texts of frames."""
    if is_inside and node["nodeName"] == "#text":
        yield node["nodeValue"]
    for child in node.get("children", ()):
        yield from texts_of(child, is_inside)
    if "contentDocument" in node:
        yield from texts_of(node["contentDocument"], True)


class Browser:
    """One page. `faults` has the errors of the console, `requested` the URL of every
    request. `pac`: the URL of its configuration. `names` are of this host, `trusted` is
    an authority's file. They are Firefox's too, and so are `close`, `visit`, `run` and
    `log_in`."""

    def __init__(self, directory: Path, *flags: str, pac: str = "",
                 names: Sequence[str] = (), trusted: Path | None = None,
                 program: str | None = PROGRAM) -> None:
        assert program is not None
        home = directory / "home"
        home.mkdir()
        if trusted is not None:
            make_nss_database(home / ".pki" / "nssdb", trusted)
        if pac:
            flags = (*flags, f"--proxy-pac-url={pac}")
        known = "".join(f"MAP {name} 127.0.0.1, " for name in names)
        with open(directory / "said", "wb") as said:
            # No sandbox: it needs user namespaces, which containers do not allow
            self._process = subprocess.Popen(
                [program, "--headless=new", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                 "--disable-background-networking", "--disable-component-update",
                 "--disable-sync", "--disable-quic", "--disable-domain-reliability",
                 "--disable-default-apps", "--no-pings", "--no-default-browser-check",
                 # PreloadTopChromeWebUI: a process for pages of the frame's own, 0.25 s
                 # of CPU for each window
                 "--disable-features=MediaRouter,DialMediaRouteProvider,"
                 "OptimizationHints,AsyncDns,DnsOverHttps,HttpsUpgrades,"
                 "PreloadTopChromeWebUI,NetworkTimeServiceQuerying",
                 # It looks up its vendor's names; here every name is one host
                 f"--host-resolver-rules={known}MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                 "--remote-debugging-port=0",
                 f"--user-data-dir={directory / 'profile'}",
                 *flags, "about:blank"], env=os.environ | {"HOME": str(home)},
                stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            port = directory / "profile" / "DevToolsActivePort"
            wait_until(
                lambda: port.exists() and len(port.read_text().splitlines()) == 2,
                lambda: (directory / "said").read_text(), 150)
            number, path = port.read_text().splitlines()
            self.address = f"ws://127.0.0.1:{number}{path}"
            self._connect()
        except BaseException:
            self._end()
            raise
        self._attach()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _connect(self) -> None:
        self.faults: list[str] = []
        self.requested: list[str] = []
        self._number = 0
        self._session = ""
        self._credentials: dict[str, str] = {}
        self._chooser = 0               # the field with an open chooser of files
        self._stack = contextlib.ExitStack()
        self._socket = self._stack.enter_context(
            connect(self.address, max_size=1 << 26, proxy=None))

    def _attach(self, **where: str) -> None:
        """Opens the page."""
        target = self.send("Target.createTarget", url="about:blank", **where)
        self._session = self.send("Target.attachToTarget", flatten=True,
                                  targetId=target["targetId"])["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._session = ""
            self.send("Browser.close")
        self._stack.close()
        self._end()

    def _end(self) -> None:
        wait_or_kill(self._process)

    def _post(self, method: str, **parameters: Any) -> int:
        """Sends a command; returns its number, and does not wait for the result."""
        self._number += 1
        message: dict[str, Any] = {
            "id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        return self._number

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = self._post(method, **parameters)
        while True:
            heard = json.loads(self._socket.recv(30))
            if heard.get("id") == number:
                if "navigated" in heard.get("error", {}).get("message", ""):
                    raise Navigated(method)
                assert "error" not in heard, (method, heard["error"])
                return heard["result"]
            self._note(heard.get("method", ""), heard.get("params", {}))

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(event["exceptionDetails"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.faults.append(json.dumps(event["entry"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] == "error":
            self.faults.append(json.dumps(event["args"]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(event["request"]["url"])
        elif method == "Page.fileChooserOpened":
            self._chooser = event["backendNodeId"]
        elif method == "Fetch.requestPaused":
            self._post("Fetch.continueRequest", requestId=event["requestId"])
        elif method == "Fetch.authRequired":
            self._post("Fetch.continueWithAuth", requestId=event["requestId"],
                       authChallengeResponse=self._credentials)

    def log_in(self, user: str, password: str) -> None:
        """Answers every prompt for credentials from now on."""
        self._credentials = {
            "response": "ProvideCredentials", "username": user, "password": password}
        self.send("Fetch.enable", handleAuthRequests=True)

    def visit(self, url: str) -> str:
        """Opens a page; returns the error that the browser shows instead, or ""."""
        error = self.send("Page.navigate", url=url).get("errorText", "")
        if not error:
            wait_until(lambda: self.run(f"document.readyState === 'complete' && "
                                        f"location.href === {json.dumps(url)}"), url)
        return error

    def open(self, url: str) -> None:
        error = self.visit(url)
        assert not error, error

    def run(self, script: str) -> Any:
        """Returns the value of an expression in the page; None if the page was left
        while it was evaluated."""
        try:
            result = self.send("Runtime.evaluate", expression=script,
                               returnByValue=True, awaitPromise=True)
        except Navigated:
            return None
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def frame_text(self) -> str:
        """The text of the page's frames, also if they have a process of their own."""
        own, texts = self._session, []
        known = self.send("Target.getTargets")["targetInfos"]
        frames = [target["targetId"] for target in known if target["type"] == "iframe"]
        try:
            for target in (None, *frames):
                if target is not None:
                    self._session = own
                    self._session = self.send("Target.attachToTarget", targetId=target,
                                              flatten=True)["sessionId"]
                root = self.send("DOM.getDocument", depth=-1, pierce=True)["root"]
                texts += list(texts_of(root, target is not None))
        finally:
            self._session = own
        return "".join(texts)

    def type(self, selector: str, text: str) -> None:
        """Types into a field, replacing its contents."""
        self.run(f"(e => {{ e.focus(); e.select(); }})"
                 f"(document.querySelector({json.dumps(selector)}))")
        if text:
            self.send("Input.insertText", text=text)
        else:
            for kind in ("keyDown", "keyUp"):
                self.send("Input.dispatchKeyEvent", type=kind, key="Delete",
                          windowsVirtualKeyCode=46)

    def place(self, selector: str) -> tuple[float, float]:
        """Scrolls the element into view, and returns its middle."""
        x, y = self.run(
            f"(e => {{ e.scrollIntoView({{block: 'center'}});"
            " const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })"
            f"(document.querySelector({json.dumps(selector)}))")
        return x, y

    def move(self, selector: str) -> None:
        """Moves the mouse to the middle of the element."""
        x, y = self.place(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, x: float, y: float, count: int = 1) -> None:
        """Clicks at a point; `count`: the first click, or the second of two."""
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                      clickCount=count)

    def click(self, selector: str) -> None:
        """Clicks the middle of the element."""
        self.move(selector)
        self.press(*self.place(selector))

    def choose(self, selector: str, *paths: Path) -> None:
        """Clicks the element that opens a chooser of files, and chooses these."""
        self._chooser = 0
        self.send("Page.setInterceptFileChooserDialog", enabled=True)
        self.click(selector)
        wait_until(lambda: self.run("0") or self._chooser, "a chooser of files")
        self.send("DOM.setFileInputFiles", files=list(map(str, paths)),
                  backendNodeId=self._chooser)

    def key(self, name: str, code: int, text: str = "") -> None:
        """Presses and releases one key, by its name and its virtual code."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name,
                      windowsVirtualKeyCode=code,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def look(self, width: int, height: int, scheme: str) -> None:
        """Sets the window's size and the light or dark theme."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.send("Emulation.setScrollbarsHidden", hidden=True)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path, whole: bool = True) -> None:
        """Returns the page, or the part in the window, as PNG."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


class Navigated(Exception):
    """The page that a command was for has been left."""


class Tab(Browser):
    """A page of a Chromium that others have too, with cookies and storage of its own:
    the program takes CPU to begin and to end."""

    def __init__(self, chromium: Browser) -> None:
        self.address = chromium.address
        self._connect()
        try:
            self._context = self.send("Target.createBrowserContext")["browserContextId"]
            self._attach(browserContextId=self._context)
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._session = ""
            self.send("Target.disposeBrowserContext", browserContextId=self._context)
        self._stack.close()
