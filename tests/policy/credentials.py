"""Credentials as the field of a request has them."""

from base64 import b64encode


def basic(pair: bytes) -> bytes:
    return b"Basic " + b64encode(pair)
