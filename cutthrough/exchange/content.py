"""The content of a body: bytes as they went over the wire -> bytes, then text, bounded.

    read_chunks     the data of a chunked body
    undo_coding     without Content-Encoding, up to a bound (R63, R65)
    as_text         the text that captures keep
    octets_codec    of such a text: how it becomes the same octets
    read_text       the text, and how to write it again as the same octets

Nothing is repaired, and every step is linear in its input. Charsets are those of the
WHATWG's Encoding Standard: no name that a peer sends reaches Python's other codecs,
some of which are quadratic (R65).
"""

import functools
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from cutthrough.codings import CodingError, make_decoders

# Bytes of inflated content that each use may read
MOST_CAPTURED: Final = 4 << 20
MOST_COMPARED: Final = 16 << 20              # a recording: to mask and to match it
MOST_CHARACTER = 4                           # bytes of a character, in UTF-8 and UTF-16

_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[^\r\n]*\r\n")
_TEXT = re.compile(r"(text/|multipart/|message/|application/(.{0,200}[+./-])?"
                   r"((nd)?json|xml|javascript|ecmascript|csp-report|"
                   r"x-www-form-urlencoded|graphql|yaml|toml|"
                   r"(mpegurl|jwt|jose|sdp|sql|sparql|n-triples)\b))|"
                   r".{0,200}\+(json|xml|yaml)\b", re.I)
# Types with binary values in them, although a short message may be valid UTF-8; base64
# is no text to search in
_BINARY = re.compile(r"application/(.{0,200}[+./-])?(protobuf|proto|grpc-web-text|"
                     r"msgpack|messagepack|cbor|bson|avro|thrift)\b", re.I)
# Octets that no text has, unless its type is one of text: mimesniff's, without the 0x1e
# of JSON sequences
_CONTROL = re.compile("[\0-\x08\x0b\x0e-\x1a\x1c\x1d\x1f]")
_CHARSET = re.compile(r";\s{0,9}charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", re.I)

# Messages with heads: a batch of requests, whose parts are of any type
_HEADED = re.compile(r"(application|message)/http\b|multipart/(?!form-data|byteranges|"
                     r"alternative|x-mixed-replace)", re.I)
# Fields with a digest of a body (RFC 9530, RFC 3230, and those of clouds)
_DIGEST = re.compile(r"content-md5|(content-|repr-)?digest|x-amz-checksum-[\w-]{1,40}|"
                     r"x-goog-hash|x-ms-(blob-)?content-(md5|crc64)", re.I)
_MEDIA = re.compile(r"(image|audio|video|font)/(?!svg)", re.I)
_SIGNATURE = re.compile(
    rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF....(WEBP|WAVE|AVI )|"
    rb"BM....\0\0\0\0|"
    rb"\0\0\x01\0[^\0]\0|....ftyp|\x1a\x45\xdf\xa3|OggS|ID3|\xff[\xe2-\xfb]|fLaC|"
    rb"wOF[F2]|OTTO|\0\x01\0\0\0", re.S)

# Python's codec, and the labels of https://encoding.spec.whatwg.org/#names-and-labels.
# Labels of ISO-8859-1 and ASCII stay ISO-8859-1, which reads every octet and writes it
# again; windows-1252 does not.
_CODECS: Final = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 "
                 "iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 "
                 "iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 "
                 "iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 "
                 "iso_8859-5 iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 "
                 "iso-8859-6 iso-8859-6-e iso-8859-6-i iso-ir-127 iso8859-6 iso88596 "
                 "iso_8859-6 iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 "
                 "iso8859-7 iso88597 iso_8859-7 iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e "
                 "iso-ir-138 iso8859-8 iso88598 iso_8859-8 iso_8859-8:1988 visual "
                 "csiso88598i iso-8859-8-i logical",
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "latin-1": "ansi_x3.4-1968 ascii iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
               "iso_8859-1 iso_8859-1:1987 csisolatin1 cp819 ibm819 l1 latin1 latin-1 "
               "us-ascii",
    "cp1252": "cp1252 windows-1252 x-cp1252",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 "
              "iso_8859-9:1989 l5 latin5 windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk "
               "iso-ir-58 x-gbk gb18030",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 "
             "ks_c_5601-1989 ksc5601 ksc_5601 windows-949",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
}
CODECS: Final = {label: codec for codec, labels in _CODECS.items()
                 for label in labels.split()}
# The longest first: UTF-32's begins as that of UTF-16
_MARKS: Final = ((b"\xff\xfe\0\0", "utf-32-le"), (b"\0\0\xfe\xff", "utf-32-be"),
                 (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"),
                 (b"\xfe\xff", "utf-16-be"))
_WIDE: Final = ("utf-16", "utf-32", "iso2022")


class Text(NamedTuple):
    """Text of a body. `octets` writes it again: unchanged parts as they came."""

    text: str
    codec: str
    errors: str = "strict"

    def octets(self, text: str) -> bytes:
        return text.encode(self.codec, self.errors)

    def changed(self, data: bytes, change: Callable[[bytes], bytes]) -> bytes:
        """The octets of the changed text. `change` gets and returns UTF-8."""
        errors = (self.errors if self.errors == "surrogateescape" else "surrogatepass")
        text = self.text.encode("utf-8", errors)
        changed = change(text)
        return data if changed == text else self.octets(changed.decode("utf-8", errors))


def read_chunks(raw: bytes) -> tuple[bytes, bool, bytes]:
    """The data of a chunked body, whether its last chunk is there, and its trailers if
    all of them are there."""
    pieces: list[bytes] = []
    at = 0
    while match := _CHUNK.match(raw, at):
        size = int(match[1], 16)
        at = match.end()
        if size == 0:
            end = raw.find(b"\r\n\r\n", at) + 2
            return b"".join(pieces), True, raw[at:end] if end > 1 else b""
        pieces.append(raw[at:at + size])
        at += size + 2
    return b"".join(pieces), False, b""


def join_chunks(raw: bytes) -> tuple[bytes, bool]:
    """The data of a chunked body, and whether its last chunk is there."""
    data, ended, _ = read_chunks(raw)
    return data, ended


def undo_coding(data: bytes, coding: str, most: int) -> tuple[bytes | None, bool]:
    """The content, of `most` bytes at most, and whether its end is there; None: it
    cannot be decoded."""
    pieces: list[bytes] = []
    size = 0
    try:
        decoders = make_decoders(coding)
        for piece in decoders.feed(data):
            pieces.append(piece)
            size += len(piece)
            if size >= most:
                return b"".join(pieces)[:most], False
    except CodingError:
        return None, False
    try:
        decoders.end()
    except CodingError:
        return b"".join(pieces), False
    return b"".join(pieces), True


def inflate(data: bytes, coding: str, most: int = MOST_COMPARED) -> bytes:
    """The whole content. Raises CodingError if it cannot be decoded, does not end, or
    has more than `most` bytes."""
    content, is_whole = undo_coding(data, coding, most)
    if content is None or not is_whole:
        raise CodingError("the coding cannot be undone, or not whole")
    return content


@functools.lru_cache(256)
def codec_of(kind: str) -> str:
    """Python's codec for a body of this media type; "": it is no text, or of a charset
    that is unknown."""
    if kind and _TEXT.match(kind) is None:
        return ""
    match = _CHARSET.search(kind)
    return CODECS.get(match[1].lower(), "") if match else "utf-8"


def is_text(kind: str) -> bool:
    """Is this media type one of text, of whatever charset?"""
    return _TEXT.match(kind) is not None


@functools.lru_cache(256)
def has_heads(kind: str) -> bool:
    """May a body of this media type have heads of HTTP, with credentials?"""
    return _HEADED.match(kind) is not None


def is_digest(name: str) -> bool:
    """Has a field of this name a digest of the body? Of another body it is wrong, and
    its reader refuses that."""
    return _DIGEST.fullmatch(name) is not None


def is_media(data: bytes, kind: str) -> bool:
    """Does a picture, sound, film or font begin as its type does?"""
    return bool(_MEDIA.match(kind)) and _SIGNATURE.match(data) is not None


def as_text(data: bytes, kind: str, *, whole: bool) -> str | None:
    """The text if the type is one of text, or if there is no type and it can be read as
    UTF-8, and if the same octets can be made
    of it again; None: it is none. A NUL would
    end a text in the database."""
    codec = codec_of(kind)
    if not codec or b"\0" in data:
        return None
    try:
        text = _decode(data, codec, whole)
        if codec == "utf-8":                 # has one spelling of each text
            return text
        octets = text.encode(codec)
        text.encode()                        # no halves of characters
    except UnicodeError:
        return None
    return text if octets == data or (not whole and data.startswith(octets)) else None


def octets_codec(text: str, kind: str) -> str:
    """Python's codec that turns the text back into the octets that came. "": the
    charset is unknown, or lacks a character, as a text of another program may have.

    ISO-8859-1 with characters beyond it is windows-1252, as browsers read it."""
    codec = codec_of(kind) or ("" if is_text(kind) else "utf-8")
    for name in (codec, "cp1252") if codec == "latin-1" else (codec,) * bool(codec):
        try:
            text.encode(name)
            return name
        except UnicodeEncodeError:
            continue
    return ""


def read_text(data: bytes, kind: str, *, whole: bool) -> Text | None:
    """The text, to look for secrets in it; None: it cannot be read as text.

    A byte order mark counts more than a charset. If the type is one of text, octets
    beyond the charset are passed on. Another type is text if it is valid UTF-8 without
    controls, and not known as binary: a login of protobuf is a few letters behind
    numbers. A NUL is in no text: it may be UTF-16 under another name."""
    if _BINARY.match(kind):
        return None
    codec, errors = codec_of(kind), "surrogateescape"
    for mark, codec_of_mark in _MARKS:
        if data.startswith(mark):
            codec = codec_of_mark
            break
    else:
        codec = order_of(data, codec)
    if not codec:
        if is_text(kind):                    # of an unknown charset
            return None
        codec, errors = "utf-8", "strict"
    try:
        read = Text(_decode(data, codec, whole), codec)
    except UnicodeError:
        if errors == "strict" or codec.startswith(_WIDE):
            return None
        codec = "utf-8" if codec == "utf-8" else "latin-1"
        read = Text(data.decode(codec, errors), codec, errors)
    if "\0" in read.text or (not is_text(kind) and _CONTROL.search(read.text)):
        return None
    return read


def order_of(data: bytes, codec: str) -> str:
    """Of UTF-16 without a mark the order of most octets: RFC 2781 and the WHATWG have
    different ones, and in the wrong one each text is another. Other characters may
    outnumber the characters of a secret: see in_other_order."""
    if not codec.startswith("utf-16"):
        return codec
    first, second = data[::2].count(0), data[1::2].count(0)
    return codec if first == second else "utf-16-be" if first > second else "utf-16-le"


def in_other_order(data: bytes, read: Text, *, whole: bool) -> Text | None:
    """The text in the other octet order of UTF-16, if there is no mark; None: there is
    one order alone, or no text in the other."""
    if not read.codec.startswith("utf-16") or read.text.startswith("\ufeff"):
        return None
    codec = "utf-16-be" if read.codec == "utf-16-le" else "utf-16-le"
    try:
        return Text(_decode(data, codec, whole), codec)
    except UnicodeError:
        return None


def _decode(data: bytes, codec: str, whole: bool) -> str:
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        if whole or error.start < len(data) - MOST_CHARACTER:
            raise
        return data[:error.start].decode(codec)          # cut within a character
