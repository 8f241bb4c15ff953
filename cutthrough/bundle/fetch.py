"""Fetches a bundle if it has changed: over HTTPS by ETag, or from a file.

A reason names neither the URL's query nor the header, because they may hold credentials
(R37). A redirect is not followed: the header would go to another server.
"""

import asyncio
import os
import ssl
import stat
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import aiohttp
from yarl import URL

from cutthrough.bundle.manifest import MOST_BYTES
from cutthrough.config.bundles import BundleSource

# For a whole answer: 1 MB/s for the longest bundle
PATIENCE_S = 30.0
CONNECT_S = 10.0


class FetchError(Exception):
    """No bundle could be fetched: the reason."""


class Fetched(NamedTuple):
    """`etag`: for the next request; "": the server gave none."""

    data: bytes
    etag: str


def make_context(source: BundleSource) -> ssl.SSLContext | None:
    """Returns a context with the authorities that verify the server; None without TLS.
    It reads their files, for 20 ms. Raises FetchError."""
    if not source.url.startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=source.ca or None)
    except (OSError, ValueError) as error:
        raise FetchError(f"{source.ca}: {error}") from None


async def fetch(source: BundleSource, etag: str,
                context: ssl.SSLContext | None) -> Fetched | None:
    """Returns the bundle, not verified; None: it is still that of `etag`. Raises
    FetchError."""
    if source.url.startswith("file:"):
        return await asyncio.to_thread(_read, unquote(urlsplit(source.url).path), etag)
    try:
        return await _request(source, etag, context)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise FetchError(_explain(error)) from None


async def _request(source: BundleSource, etag: str,
                   context: ssl.SSLContext | None) -> Fetched | None:
    fields = {"Accept-Encoding": "identity", "User-Agent": "cutthrough"}
    if source.header:
        name, _, value = source.header.partition(":")
        fields[name] = value.strip()
    if etag:
        fields["If-None-Match"] = etag
    data = bytearray()
    async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(PATIENCE_S, sock_connect=CONNECT_S),
            auto_decompress=False, trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar()) as session, session.get(
            # As it was given: a signed query does not bear another spelling
            URL(source.url, encoded=True), headers=fields, ssl=context or True,
            allow_redirects=False) as answer:
        if answer.status == 304 and etag:
            return None
        if answer.status != 200:
            raise FetchError(f"the server answered {answer.status}")
        async for piece in answer.content.iter_any():
            data += piece
            if len(data) > MOST_BYTES:
                raise FetchError(f"the bundle has more than {MOST_BYTES} bytes")
        return Fetched(bytes(data), answer.headers.get("ETag", ""))


def _explain(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            reason = error.certificate_error
            return ("the server's certificate is refused: "
                    f"{getattr(reason, 'verify_message', '') or reason}")
        case aiohttp.ClientConnectorError():
            return f"no connection: {error.os_error.strerror or error.os_error}"
        case TimeoutError():
            return f"no whole answer within {PATIENCE_S:g} s"
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            return "the answer is cut off"
        case aiohttp.ClientResponseError():
            return "the answer is no HTTP"
    return f"no answer: {type(error).__name__}"


def _read(path: str, etag: str) -> Fetched | None:
    try:
        # A FIFO without a writer would hold up open(2)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise FetchError(f"{path}: is no regular file")
            version = f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"
            if version == etag:
                return None
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise FetchError(f"{path}: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise FetchError(f"the bundle has more than {MOST_BYTES} bytes")
    return Fetched(data, version)
