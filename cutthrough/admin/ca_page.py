"""The page /ca: the certificate of `ca_certificate`, and how it is installed.

    GET /ca          the page
    GET /ca.pem      the certificate in PEM
    GET /ca.crt      the same in DER, as Windows, macOS, Android and iOS take it

If there is no `ca_certificate`, all three are 404. The key is no file of this program.
"""

import datetime
import html
from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from cutthrough.admin.traffic_page import make_page

NONE = "no ca_certificate is configured\n"


class Certificate(Protocol):
    """An authority's certificate; `not_after` in seconds of the epoch."""

    @property
    def der(self) -> bytes: ...
    @property
    def pem(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def not_after(self) -> int: ...


class CaPage:
    def __init__(self, read: Callable[[], Certificate | None]) -> None:
        """`read` returns the certificate in force now."""
        self._read = read

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/ca", self.page), web.get("/ca.pem", self.pem),
                web.get("/ca.crt", self.der)]

    async def page(self, request: web.Request) -> web.StreamResponse:
        certificate = self._read()
        if certificate is None:
            return web.Response(status=404, text=NONE)
        text, policy = make_page("ca.html", (), "ca.css")
        end = datetime.datetime.fromtimestamp(certificate.not_after, datetime.UTC)
        for name, value in (("subject", certificate.subject),
                            ("sha256", certificate.sha256),
                            ("end", f"{end:%Y-%m-%d}")):
            text = text.replace(f"{{{{{name}}}}}", html.escape(value))
        return web.Response(text=text, content_type="text/html",
                            headers={"Content-Security-Policy": policy})

    async def pem(self, request: web.Request) -> web.StreamResponse:
        certificate = self._read()
        if certificate is None:
            return web.Response(status=404, text=NONE)
        return _file("cutthrough-ca.pem", "application/x-pem-file",
                     certificate.pem.encode())

    async def der(self, request: web.Request) -> web.StreamResponse:
        certificate = self._read()
        if certificate is None:
            return web.Response(status=404, text=NONE)
        # Android, iOS and Firefox offer to install a file of this type
        return _file("cutthrough-ca.crt", "application/x-x509-ca-cert", certificate.der)


def _file(name: str, kind: str, data: bytes) -> web.Response:
    return web.Response(body=data, content_type=kind, headers={
        "Content-Disposition": f'attachment; filename="{name}"'})
