"""Names of users, in one spelling wherever they are read.

If a rule spelled a name in another way than the client does, the rule would match no
client, and a denied request would pass. So each reader of a name composes it.
"""

from unicodedata import category, normalize

from cutthrough.config.values import parse_text


def composed(text: str) -> str:
    """The name as RFC 7617 section 2.1 and OpaqueString of RFC 8265 have it: macOS
    decomposes letters, and a space has many widths."""
    if text.isascii():
        return text
    spaced = "".join(" " if category(c) == "Zs" else c for c in text)
    return normalize("NFC", spaced)


def parse_identity(text: str) -> str:
    return composed(parse_text(text))


def parse_user(text: str) -> str:
    # RFC 7617 section 2: the first colon ends the user-id.
    if ":" in text:
        raise ValueError("a user name cannot contain a colon")
    return parse_identity(text)
