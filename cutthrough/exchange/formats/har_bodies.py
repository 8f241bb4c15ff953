"""The bodies of an archive: texts, base64, and parameters -> the octets sent.

Base64 may be in lines or without padding, and of text that is called so and is none the
text is taken (a defect of Firefox). Parameters are encoded again, unless browsers have
left them encoded. A body that cannot be understood is an error, and never empty.
"""

import base64
import binascii
import re
from typing import Annotated, Any
from urllib.parse import quote_plus

import msgspec

from cutthrough.exchange.content import CODECS, as_text, is_text
from cutthrough.exchange.flow import Fields, find
from cutthrough.exchange.formats.har_values import Notes
from cutthrough.exchange.formats.imported import Body, NotImported
from cutthrough.exchange.forms import parameter

Text = str | None
# A JSON number that the database can hold: JSON has no NaN, but 1e300
Number = Annotated[float, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]

_BLANKS = re.compile(r"[ \t\r\n]+")
_ENCODED = re.compile(r"(?:[\w*.+~!'()-]|%[0-9A-Fa-f]{2})*", re.A)
# The charset that a page names itself, where browsers look for it
_META = re.compile(r"<meta[^>]{0,200}charset *= *[\"']?([\w.:-]{1,40})", re.I)
_MOST_META = 1024
_QUOTED = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})


class Param(msgspec.Struct, rename="camel"):
    name: str
    value: Text = None
    file_name: Text = None
    content_type: Text = None


class Post(msgspec.Struct, rename="camel"):
    mime_type: Text = None
    text: Any = None
    params: list[Param] | None = None
    encoding: Text = msgspec.field(name="_encoding", default=None)     # ours
    state: Text = msgspec.field(name="_state", default=None)           # ours


class Content(msgspec.Struct, rename="camel"):
    size: Number | None = None
    mime_type: Text = None
    text: Any = None
    encoding: Text = None
    comment: Text = None


def decode(text: str) -> bytes | None:
    """The octets of base64, of either alphabet; None: it is none."""
    plain = _BLANKS.sub("", text).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def text_of(value: Any, place: str) -> Text:
    """Raises NotImported: a body is no text."""
    if value is None or isinstance(value, str):
        return value
    raise NotImported(f"{place} is no text")


def read_post(post: Post, fields: Fields, size: int | None) -> tuple[Body, str]:
    """The body of a request, and its state; None: absent. Raises NotImported."""
    text = text_of(post.text, "postData.text")
    if not text and post.params:
        return join_params(post, fields)
    if post.encoding == "base64":
        data = decode(text or "")
        if data is None:
            raise NotImported("postData.text is not base64")
        return data, post.state or ""
    if text is None and size:
        return None, post.state or ""
    kind = find(fields, "content-type") or post.mime_type or ""
    return octets_of_size(text or "", size, kind), post.state or ""


def octets_of_size(text: str, size: float | None, kind: str) -> Body:
    """The octets, if a program has decoded them by a charset without a name in the
    entry: binary content by Latin-1, a page by its own `meta`. They count only if the
    entry's size is theirs. Else the text."""
    if not size or not kind or text.isascii():
        return text
    codec = "latin-1"
    if is_text(kind):
        meta = None if "charset" in kind.lower() else _META.search(text[:_MOST_META])
        codec = CODECS.get(meta[1].lower(), "utf-8") if meta else "utf-8"
    try:
        data = text.encode(codec)
    except UnicodeEncodeError:
        return text
    return data if codec != "utf-8" and len(data) == size else text


def join_params(post: Post, fields: Fields) -> tuple[Body, str]:
    """The parameters as they were sent. Those of files may have no content."""
    params = post.params or []
    kind = post.mime_type or find(fields, "content-type")
    if not kind.lower().startswith("multipart/"):
        return join_pairs([(param.name, param.value or "") for param in params]), ""
    boundary = parameter(find(fields, "content-type"), "boundary") or (
        parameter(kind, "boundary"))
    if not boundary or any(param.value is None for param in params):
        return None, post.state or "incomplete"
    pieces = []
    for param in params:
        name = f'; filename="{quoted(param.file_name)}"' if param.file_name else ""
        typed = f"Content-Type: {quoted(param.content_type)}\r\n" if (
            param.content_type) else ""
        pieces.append(f"--{boundary}\r\nContent-Disposition: form-data; "
                      f'name="{quoted(param.name)}"{name}\r\n{typed}\r\n'
                      f"{param.value}\r\n")
    return f"{''.join(pieces)}--{boundary}--\r\n", post.state or ""


def quoted(text: str) -> str:
    """As browsers write the name of a part (the standard of HTML)."""
    return text.translate(_QUOTED)


def join_pairs(pairs: list[tuple[str, str]]) -> str:
    """A query, or a form."""
    texts = [text for pair in pairs for text in pair]
    if any("%" in text for text in texts) and all(map(_ENCODED.fullmatch, texts)):
        return "&".join(f"{name}={value}" for name, value in pairs)
    return "&".join(f"{encode(name)}={encode(value)}" for name, value in pairs)


def encode(text: str) -> str:
    return quote_plus(text, errors="replace")


def read_content(content: Content, fields: Fields, notes: Notes, *, ours: bool
                 ) -> Body:
    """The body of a response; None: absent. As at capture, bytes become text if their
    type is one of text. Raises NotImported."""
    text = text_of(content.text, "content.text")
    kind = find(fields, "content-type") or content.mime_type or ""
    if text is None or not content.encoding:
        return octets_of_size(text, content.size, kind) if text and not ours else text
    if content.encoding.lower() != "base64":
        raise NotImported(f"the encoding {content.encoding!r:.40} is not known")
    data = decode(text)
    if data is None:
        notes.add("content.text is called base64, is none, and is taken as text")
        return text
    if ours:
        return data
    decoded = as_text(data, kind, whole=True)
    return data if decoded is None else decoded
