"""A real headless browser, driven over its DevTools protocol."""

import base64
import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.support.wait import wait_until

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page. `faults` has the errors of the console, `requested` the URL of every
    request."""

    def __init__(self, directory: Path) -> None:
        assert PROGRAM is not None
        self.faults: list[str] = []
        self.requested: list[str] = []
        self._number = 0
        with open(directory / "said", "wb") as said:
            # No sandbox: it needs user namespaces, which containers do not allow
            self._process = subprocess.Popen(
                [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                 "--disable-background-networking", "--disable-component-update",
                 "--disable-sync", "--disable-quic", "--disable-domain-reliability",
                 "--disable-default-apps", "--no-pings", "--no-default-browser-check",
                 "--disable-features=MediaRouter,DialMediaRouteProvider,"
                 "OptimizationHints,AsyncDns,DnsOverHttps",
                 # It looks up its vendor's names; here every name is one host
                 "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                 "--remote-debugging-port=0",
                 f"--user-data-dir={directory / 'profile'}",
                 "about:blank"],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            port = directory / "profile" / "DevToolsActivePort"
            wait_until(
                lambda: port.exists() and len(port.read_text().splitlines()) == 2,
                lambda: (directory / "said").read_text(), 60)
            number, path = port.read_text().splitlines()
            self._stack = contextlib.ExitStack()
            self._socket = self._stack.enter_context(connect(
                f"ws://127.0.0.1:{number}{path}", max_size=1 << 26, proxy=None))
        except BaseException:
            self._end()
            raise
        self._session = ""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send(
            "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(Exception):
            self._session = ""
            self.send("Browser.close")
        self._stack.close()
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {
            "id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            heard = json.loads(self._socket.recv(30))
            if heard.get("id") == self._number:
                assert "error" not in heard, (method, heard["error"])
                return heard["result"]
            self._note(heard.get("method", ""), heard.get("params", {}))

    def _note(self, method: str, told: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(told["exceptionDetails"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.faults.append(json.dumps(told["entry"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] == "error":
            self.faults.append(json.dumps(told["args"]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(told["request"]["url"])

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)
        wait_until(lambda: self.run(f"document.readyState === 'complete' && "
                                    f"location.href === {json.dumps(url)}"), url, 30)

    def run(self, script: str) -> Any:
        """Returns the value of an expression in the page."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

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
