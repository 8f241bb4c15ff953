"""Bodies in zstd, as stores keep them: one byte for the kind, and a frame (RFC 8878).

The writer packs, and each reader unpacks; a worker does neither. The frame was made
here, but the database may have been changed: the content is bounded (R65).
"""

from typing import Any

from cutthrough.codings import MOST_WINDOW_LOG, find_zstd

# A shorter body stays as it is: it would save less than a tenth of its row
LEAST = 1024
# Of zstd: 3 takes a fifth more time for 1 to 3 % less
LEVEL = 1
# As much as capture_body may be
MOST_UNPACKED = 64 << 20
TEXT, BYTES = b"t", b"b"
MISSING = "compressed bodies need zstd: pip install 'cutthrough[codings]'"


class NoZstd(Exception):
    """The package is not installed."""


class Packer:
    """Raises NoZstd."""

    def __init__(self) -> None:
        self._zstd = _need_zstd()
        self._compressor = self._zstd.ZstdCompressor(level=LEVEL)    # 8 us to make

    def pack(self, data: bytes, is_text: bool) -> bytes:
        """`is_text`: UTF-8."""
        self._compressor.set_pledged_input_size(len(data))
        frame: bytes = self._compressor.compress(data, self._compressor.FLUSH_FRAME)
        return (TEXT if is_text else BYTES) + frame

    def body(self, body: str | bytes | None) -> bytes | None:
        """None: it stays as it is."""
        if body is None or len(body) < LEAST:
            return None
        data = body.encode() if isinstance(body, str) else body
        packed = self.pack(data, isinstance(body, str))
        return packed if len(packed) < len(data) else None


def unpack(packed: bytes) -> str | bytes | None:
    """None: it is malformed, or becomes too large. Raises NoZstd."""
    zstd = _need_zstd()
    decompressor = zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: MOST_WINDOW_LOG})
    try:
        data: bytes = decompressor.decompress(packed[1:], MOST_UNPACKED)
        if not decompressor.eof:
            return None
        return data.decode() if packed[:1] == TEXT else data
    except (zstd.ZstdError, UnicodeDecodeError):
        return None


def _need_zstd() -> Any:
    if _ZSTD is None:
        raise NoZstd(MISSING)
    return _ZSTD


_ZSTD = find_zstd()
