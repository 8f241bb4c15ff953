"""Content codings of bodies (RFC 9110 section 8.4.1), decoded piece by piece.

gzip and deflate are Python's. br and zstd need the extra `codings`: brotli since 1.2,
which bounds its output, and backports.zstd; Python 3.14 has zstd itself.

    bytes that came ─> Decoders.feed ─> 64 KiB at a time, or b"" for work without any

Several codings multiply, so a bound on the result bounds no work: 2 kB may inflate to
1 GiB, and the next coding passes over it. `Decoders` bounds the output of each layer by
the bytes of the result, for every user of this module.
"""

import functools
import importlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# Decoded at a time: a few bytes of a coding may stand for megabytes
PIECE = 65536
MOST_WINDOW_LOG = 23                         # RFC 9659: 8 MiB, of zstd in HTTP
# Given to a coding at a time: zlib copies what is left behind each member
SLICE = 16384
# Bytes between two codings that a message may have: so many, and so many for each byte
# that has come out. A coding of content is hardly longer than the content: an event of
# 100 bytes that is flushed for itself takes 105
MOST_BETWEEN, BETWEEN_OF_BYTE = 1 << 20, 2
# A further member counts as so many of them
BETWEEN_OF_MEMBER = 256
# It takes as long as so many bytes do: zstd's decoder is made in 8 us, gzip's in 3
WORK_OF_MEMBER = 4096


class CodingError(ValueError):
    """A body that cannot be decoded."""


class Decoder:
    """Decodes one body. `feed` yields pieces of at most PIECE bytes, roughly, and b""
    if a further member begins."""

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
                yield b""
            self._begun = True
            piece = self._decompress(data)
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece
            while len(piece) == PIECE and not data and not self._inflate.eof:
                piece = self._decompress(b"")
                if piece:
                    yield piece

    def _decompress(self, data: bytes) -> bytes:
        """Without data: what zlib still holds, which may be malformed, too."""
        try:
            piece: bytes = self._inflate.decompress(data, PIECE)
        except zlib.error as error:
            raise CodingError(str(error)) from None
        return piece

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
                if piece:
                    yield piece
                piece = self._one.process(b"", output_buffer_limit=PIECE)
        except self._error as error:
            raise CodingError(str(error)) from None

    def end(self) -> None:
        if self._begun and not self._one.is_finished():
            raise CodingError("the body ends inside its coding")


class _Zstandard(Decoder):
    """A decoder by compression.zstd, or backports.zstd: both bound their output."""

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
                    yield b""
                if piece := self._one.decompress(data, PIECE):
                    yield piece
                while not (self._one.needs_input or self._one.eof):
                    if piece := self._one.decompress(b"", PIECE):
                        yield piece
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


class Decoders:
    """The codings of one body, undone one after the other. False: it has none."""

    def __init__(self, layers: Sequence[Decoder]) -> None:
        self._layers = layers
        self._left = MOST_BETWEEN
        self._work = 0

    def __bool__(self) -> bool:
        return bool(self._layers)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The pieces that these bytes decode to; b"": work that has made none. Raises
        CodingError."""
        self._work += len(data)
        return self._undo(data, 0)

    def end(self) -> None:
        """The body is complete. Raises CodingError if a coding is not."""
        for layer in self._layers:
            layer.end()

    def take_work(self) -> int:
        """Bytes that all layers have made, and what takes as long, since the last
        call."""
        work, self._work = self._work, 0
        return work

    def _undo(self, data: bytes, depth: int) -> Iterator[bytes]:
        if depth == len(self._layers):
            yield data
            return
        is_last = depth == len(self._layers) - 1
        for at in range(0, len(data), SLICE):
            for piece in self._layers[depth].feed(data[at:at + SLICE]):
                self._work += len(piece) or WORK_OF_MEMBER
                if piece and is_last:
                    self._left += len(piece) * BETWEEN_OF_BYTE
                    yield piece
                    continue
                self._left -= len(piece) or BETWEEN_OF_MEMBER
                if self._left < 0:
                    raise CodingError("its codings have more bytes or members than its "
                                      "content needs")
                yield b""
                if piece:
                    yield from self._undo(piece, depth + 1)


def make_decoders(field: str | None) -> Decoders:
    """Returns the decoders of a Content-Encoding, in the order of decoding. Raises
    CodingError."""
    names = [name.strip().lower() for name in (field or "").split(",")]
    names = [name for name in reversed(names) if name not in ("", "identity")]
    if len(names) > 3:
        raise CodingError("more than three codings")
    unknown = [name for name in names if name not in known_decoders()]
    if unknown:
        raise CodingError(f"the coding {unknown[0][:20]!r} cannot be decoded here")
    return Decoders([known_decoders()[name]() for name in names])


def accepted(field: str) -> str:
    """An Accept-Encoding, reduced to the codings that can be decoded here."""
    members = [member.strip() for member in field.split(",")
               if (name := member.split(";")[0].strip().lower()) == "identity"
               or name in known_decoders()]
    return ", ".join(members) or "identity"
