"""`python -m cutthrough.ca.delegate DIRECTORY`: makes an authority for interception,
below one whose key is in a token.

Writes its key, its certificate and the one above it to standard output, in PEM. The
server calls this as a process of its own, because the token's library and the PIN must
be in no process that serves, and a library that hangs can be ended.
"""

import datetime
import sys

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cutthrough.ca.leaf import BACKDATED, authority_builder, issuer_key, utc_now
from cutthrough.ca.names import AuthorityError
from cutthrough.ca.store import encode_key, read_authority
from cutthrough.ca.token import TokenKey

# So many, because the token may be out of reach meanwhile. Renewed every day:
# generation.delegates
DELEGATE_DAYS = 7


def make_delegate(directory: str) -> tuple[ec.EllipticCurvePrivateKey,
                                           list[x509.Certificate]]:
    """Returns its key, its certificate and the authority's. Raises AuthorityError and
    OSError."""
    authority = read_authority(directory)
    token = authority.key
    if not isinstance(token, TokenKey):
        raise AuthorityError(f"{directory}: the key is in no token")
    above, now = authority.certificate, utc_now()
    limits = above.extensions.get_extension_for_class(x509.BasicConstraints).value
    if limits.path_length == 0:
        raise AuthorityError("the authority's certificate allows none below it "
                             "(path length 0): `cutthrough ca init --key` makes one "
                             "that does")
    end = min(now + datetime.timedelta(days=DELEGATE_DAYS), above.not_valid_after_utc)
    if now >= end:
        raise AuthorityError(f"the authority expired on {end:%Y-%m-%d}")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(
        NameOID.COMMON_NAME, f"cutthrough interception {now:%Y-%m-%d}")])
    begin = max(now - BACKDATED, above.not_valid_before_utc)
    builder = (authority_builder(key.public_key(), name, above.subject, begin, end, 0)
               .add_extension(issuer_key(above), critical=False))
    return key, [token.sign(builder), above]


def main(words: list[str]) -> int:
    try:
        key, certificates = make_delegate(words[0])
    except (AuthorityError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    sys.stdout.buffer.write(encode_key(key) + b"".join(
        certificate.public_bytes(serialization.Encoding.PEM)
        for certificate in certificates))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
