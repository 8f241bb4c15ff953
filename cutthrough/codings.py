"""Content codings of bodies (RFC 9110 section 8.4.1), decoded piece by piece.

gzip and deflate are Python's. br and zstd need the extra `codings`: brotli since 1.2,
which bounds its output, and backports.zstd; Python 3.14 has zstd itself.
"""

import functools
import importlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

# Decoded at a time: a few bytes of a coding may stand for megabytes
PIECE = 65536
MOST_WINDOW_LOG = 23                         # RFC 9659: 8 MiB, of zstd in HTTP


class CodingError(ValueError):
    """A body that cannot be decoded."""


class Decoder:
    """Decodes one body. `feed` yields pieces of at most PIECE bytes, roughly."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data

    def end(self) -> None:
        """The body is complete. Raises CodingError if the coding is not."""


class _Inflate(Decoder):
    def __init__(self, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._inflate: Any = zlib.decompressobj(31) if is_gzip else None
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inflate is None:
                # Some servers send deflate without zlib's two bytes: RFC 9110 8.4.1.2
                wrapped = data[0] & 15 == 8 and data[0] >> 4 <= 7
                self._inflate = zlib.decompressobj(15 if wrapped else -15)
            elif self._inflate.eof:
                if not self._is_gzip:
                    raise CodingError("bytes behind the end of the coding")
                data = data.lstrip(b"\0")    # gzip(1) and browsers pass padding over
                if not data:
                    return
                self._inflate = zlib.decompressobj(31)      # a further member
            self._begun = True
            try:
                piece = self._inflate.decompress(data, PIECE)
            except zlib.error as error:
                raise CodingError(str(error)) from None
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece
            while len(piece) == PIECE and not data and not self._inflate.eof:
                piece = self._inflate.decompress(b"", PIECE)
                if piece:
                    yield piece

    def end(self) -> None:
        if self._begun and not self._inflate.eof:
            raise CodingError("the body ends inside its coding")


class _Brotli(Decoder):
    def __init__(self, module: Any) -> None:
        self._one, self._error = module.Decompressor(), module.error
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._begun = True
        try:
            piece = self._one.process(data, output_buffer_limit=PIECE)
            while piece or not self._one.can_accept_more_data():
                yield piece
                piece = self._one.process(b"", output_buffer_limit=PIECE)
        except self._error as error:
            raise CodingError(str(error)) from None

    def end(self) -> None:
        if self._begun and not self._one.is_finished():
            raise CodingError("the body ends inside its coding")


class _Zstandard(Decoder):
    """Of compression.zstd, or backports.zstd: both bound their output."""

    def __init__(self, module: Any) -> None:
        self._module, self._one = module, self._new(module)
        self._begun = False

    def _new(self, module: Any) -> Any:
        return module.ZstdDecompressor(
            options={module.DecompressionParameter.window_log_max: MOST_WINDOW_LOG})

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._begun = True
        try:
            while data:
                if self._one.eof:       # a further frame (RFC 8878 section 3.1)
                    self._one = self._new(self._module)
                yield self._one.decompress(data, PIECE)
                while not (self._one.needs_input or self._one.eof):
                    yield self._one.decompress(b"", PIECE)
                data = self._one.unused_data if self._one.eof else b""
        except self._module.ZstdError as error:
            raise CodingError(str(error)) from None

    def end(self) -> None:
        if self._begun and not self._one.eof:
            raise CodingError("the body ends inside its coding")


@functools.cache
def known_decoders() -> dict[str, Callable[[], Decoder]]:
    """Makers of decoders, by the names of their codings. The first call loads brotli
    and zstd, which would take 4 ms of each worker's start."""
    decoders: dict[str, Callable[[], Decoder]] = {
        "gzip": lambda: _Inflate(True), "x-gzip": lambda: _Inflate(True),
        "deflate": lambda: _Inflate(False)}
    try:
        brotli = importlib.import_module("brotli")
        if hasattr(brotli.Decompressor, "can_accept_more_data"):
            decoders["br"] = lambda: _Brotli(brotli)
    except ImportError:
        pass
    if (zstd := find_zstd()) is not None:
        decoders["zstd"] = lambda: _Zstandard(zstd)
    return decoders


def find_zstd() -> Any:
    """compression.zstd, or backports.zstd; None: neither is there."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def make_decoders(field: str | None) -> list[Decoder]:
    """The decoders of a Content-Encoding, in the order of decoding. Raises
    CodingError."""
    names = [name.strip().lower() for name in (field or "").split(",")]
    names = [name for name in reversed(names) if name not in ("", "identity")]
    if len(names) > 3:
        raise CodingError("more than three codings")
    unknown = [name for name in names if name not in known_decoders()]
    if unknown:
        raise CodingError(f"the coding {unknown[0][:20]!r} cannot be decoded here")
    return [known_decoders()[name]() for name in names]


def decode(data: bytes, decoders: list[Decoder]) -> Iterator[bytes]:
    """The pieces that these bytes decode to."""
    if not decoders:
        yield data
        return
    for piece in decoders[0].feed(data):
        yield from decode(piece, decoders[1:])


def accepted(field: str) -> str:
    """An Accept-Encoding, reduced to the codings that can be decoded here."""
    members = [member.strip() for member in field.split(",")
               if (name := member.split(";")[0].strip().lower()) == "identity"
               or name in known_decoders()]
    return ", ".join(members) or "identity"
