"""The authority's key in a PKCS#11 token: an HSM, a card, SoftHSM.

In place of a key the file ca.key has the key's URI (RFC 7512). The key never leaves the
token, which signs the authority's own certificate (`cutthrough ca init --key`), the
leaves of `cutthrough ca issue`, and an authority below it for interception: delegate.
"""

import functools
import hashlib
import os
import shlex
import stat
import string
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from cutthrough.ca.names import AuthorityError

SCHEME = "pkcs11:"
# Of RFC 7512 section 2.3, those that find a token and a key
PATH = {"token", "serial", "slot-id", "object", "id", "type"}
QUERY = {"module-path", "pin-source"}
Signer = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class Place(NamedTuple):
    """The parts of a URI."""

    module: str
    pin_file: str                       # "": nobody logs in
    token: str
    serial: bytes
    slot: int                           # -1: any
    label: str
    key_id: bytes


def read_uri(text: str) -> Place:
    """Raises AuthorityError, which never has a PIN."""
    path, _, query = text.strip().removeprefix(SCHEME).partition("?")
    attributes: dict[str, str] = {}
    for part, known, mark in ((path, PATH, ";"), (query, QUERY, "&")):
        for attribute in filter(None, part.split(mark)):
            name, _, value = attribute.partition("=")
            if name == "pin-value":
                raise AuthorityError("a PIN belongs in a file: give pin-source")
            if name not in known or name in attributes:
                raise AuthorityError(f"the URI has {name!r} twice, or where only these "
                                     f"belong: {', '.join(sorted(known))}")
            attributes[name] = value
    if attributes.get("type", "private") != "private":
        raise AuthorityError("the URI's type must be private")
    if "module-path" not in attributes:
        raise AuthorityError("the URI needs ?module-path=, the token's library")
    if not {"object", "id"} & attributes.keys():
        raise AuthorityError("the URI names no key: give object or id")
    slot = attributes.get("slot-id", "-1")
    if not slot.lstrip("-").isdecimal():
        raise AuthorityError("the URI's slot-id is no number")
    return Place(
        module=_read_path(attributes["module-path"]),
        pin_file=_read_path(attributes.get("pin-source", "")),
        token=unquote(attributes.get("token", "")),
        serial=unquote_to_bytes(attributes.get("serial", "")),
        slot=int(slot),
        label=unquote(attributes.get("object", "")),
        key_id=unquote_to_bytes(attributes.get("id", "")))


def _read_path(value: str) -> str:
    return os.fsdecode(unquote_to_bytes(value.removeprefix("file:")))


def complete_uri(text: str) -> str:
    """The URI for a file, in ASCII: the server that reads it runs in another directory,
    so it has whole paths. A library without a slash is the dynamic linker's to find."""
    path, mark, query = text.strip().partition("?")
    parts = query.split("&")
    for i, part in enumerate(parts):
        name, _, value = part.partition("=")
        file = _read_path(value)
        if (name == "pin-source" and file) or (name == "module-path" and "/" in file):
            file = quote(os.fsencode(os.path.abspath(file)))
            parts[i] = f"{name}={'file:' if name == 'pin-source' else ''}{file}"
    return quote(os.fsencode(path + mark + "&".join(parts)), safe=string.punctuation)


def read_pin(path: str) -> str | None:
    """The first line. Raises AuthorityError if others than its owner may read it."""
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            is_open = os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            pin = file.readline().decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise AuthorityError(
            f"{path}: {getattr(error, 'strerror', None) or 'is no text'}") from None
    if is_open:
        raise AuthorityError(f"{path} has a PIN, and others than its owner may read "
                             f"it: chmod 600 {shlex.quote(path)}")
    return pin


class TokenKey:
    """A key in a token, found and tried. Used by one process, which made it: a child
    that is forked has to make its own."""

    def __init__(self, uri: str) -> None:
        """Raises AuthorityError."""
        self._place = read_uri(uri)
        self._pkcs11 = _library()
        self._session = self._call("open the token", self._open)
        self._key = self._call("find the key", self._find, "PRIVATE_KEY")
        self.public = self._call("read the public key", self._read_public)

    def _call(self, what: str, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (self._pkcs11.PKCS11Error, RuntimeError, ValueError, TypeError) as error:
            reason = str(error) or type(error).__name__
            raise AuthorityError(
                f"{self._place.module} cannot {what}: {reason}") from None

    def _open(self) -> Any:
        place = self._place
        wanted = {"token_label": place.token, "token_serial": place.serial}
        library = self._pkcs11.lib(place.module)
        tokens = [token for token in library.get_tokens(
            **{key: value for key, value in wanted.items() if value})
            if place.slot in (-1, token.slot.slot_id)]
        if len(tokens) != 1:
            raise ValueError(f"{len(tokens)} tokens are what the URI says"
                             if tokens else "there is no such token")
        return tokens[0].open(user_pin=read_pin(place.pin_file))

    def _find(self, kind: str) -> Any:
        place, attribute = self._place, self._pkcs11.Attribute
        wanted = {attribute.CLASS: getattr(self._pkcs11.ObjectClass, kind)}
        if place.label:
            wanted[attribute.LABEL] = place.label
        if place.key_id:
            wanted[attribute.ID] = place.key_id
        objects = list(self._session.get_objects(wanted))
        if len(objects) != 1:
            raise ValueError(f"{len(objects)} objects are what the URI says" if objects
                             else f"there is no such {kind.lower().replace('_', ' ')}")
        return objects[0]

    def _read_public(self) -> PublicKey:
        from pkcs11.util.ec import encode_ec_public_key
        from pkcs11.util.rsa import encode_rsa_public_key

        handle = self._find("PUBLIC_KEY")
        of_rsa = handle.key_type is self._pkcs11.KeyType.RSA
        encode = encode_rsa_public_key if of_rsa else encode_ec_public_key
        public = serialization.load_der_public_key(encode(handle))
        assert isinstance(public, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)
        return public

    def sign(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        """Returns the certificate. Raises AuthorityError."""
        # With the signature of another key of this kind, which is exchanged
        draft = builder.sign(_stand_in(isinstance(self.public, rsa.RSAPublicKey)),
                             hashes.SHA256())
        signature = self._call("sign", self._sign, draft.tbs_certificate_bytes)
        whole = x509.load_der_x509_certificate(exchange_signature(draft, signature))
        try:
            if isinstance(self.public, rsa.RSAPublicKey):
                from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

                self.public.verify(signature, draft.tbs_certificate_bytes, PKCS1v15(),
                                   hashes.SHA256())
            else:
                self.public.verify(signature, draft.tbs_certificate_bytes,
                                   ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise AuthorityError("the token's keys do not belong together") from None
        return whole

    def _sign(self, data: bytes) -> bytes:
        from pkcs11.util.ec import encode_ecdsa_signature

        mechanism = self._pkcs11.Mechanism
        if isinstance(self.public, rsa.RSAPublicKey):
            return bytes(self._key.sign(data, mechanism=mechanism.SHA256_RSA_PKCS))
        # Not every token hashes for ECDSA; SoftHSM 2.6 does not
        return bytes(encode_ecdsa_signature(self._key.sign(
            hashlib.sha256(data).digest(), mechanism=mechanism.ECDSA)))


def _library() -> ModuleType:
    try:
        import pkcs11
    except ImportError as error:
        raise AuthorityError(f"the package {error.name} is not installed: pip install "
                             "'cutthrough[pkcs11]'") from None
    return pkcs11


@functools.cache
def _stand_in(of_rsa: bool) -> Signer:
    return (rsa.generate_private_key(65537, 2048) if of_rsa
            else ec.generate_private_key(ec.SECP256R1()))


def exchange_signature(certificate: x509.Certificate, signature: bytes) -> bytes:
    """The certificate in DER with this signature (RFC 5280 section 4.1)."""
    body = certificate.tbs_certificate_bytes
    der = certificate.public_bytes(serialization.Encoding.DER)
    at = der.index(body) + len(body)
    algorithm = der[at:at + 2 + der[at + 1]]
    return _wrap(0x30, body + algorithm + _wrap(0x03, b"\0" + signature))


def _wrap(tag: int, content: bytes) -> bytes:
    n = len(content)
    length = bytes([n]) if n < 128 else (
        lambda octets: bytes([0x80 | len(octets)]) + octets)(
            n.to_bytes((n.bit_length() + 7) // 8, "big"))
    return bytes([tag]) + length + content
