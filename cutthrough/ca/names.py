"""Names in certificates: typed text becomes a general name (RFC 5280), and name
constraints are made and compared.

This module knows no files and no keys.
"""

import contextlib
import ipaddress
from collections.abc import Iterable, Sequence

from cryptography import x509

from cutthrough.policy.patterns import canonical_host, canonical_network

Name = x509.DNSName | x509.IPAddress

EVERY_V4 = ipaddress.ip_network("0.0.0.0/0")
EVERY_V6 = ipaddress.ip_network("::/0")


class AuthorityError(ValueError):
    """An authority's files or a request to it that cannot be used: one line."""


def read_name(text: str) -> Name:
    """Reads a host name, `*.` and a host name, or an address.

    U-labels become A-labels (RFC 5890). Raises AuthorityError.
    """
    below = text.startswith("*.")
    host, is_address = _host(text.removeprefix("*."))
    if is_address:
        if below:
            raise AuthorityError(f"{text!r}: an address has no subdomains")
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(f"*.{host}" if below else host)


def _host(text: str) -> tuple[str, bool]:
    try:
        return canonical_host(text)
    except ValueError:
        raise AuthorityError(
            f"{text!r} is not a host name or address") from None


def copy_names(certificate: x509.Certificate) -> list[Name]:
    """Returns the host names and addresses of a server's certificate.

    Other kinds of names (mail, URIs) are left out, and so are texts that only pretend
    to be host names, because another party has written them. Raises AuthorityError if
    none is left.
    """
    try:
        general_names = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension,
            x509.UnsupportedGeneralNameType, ValueError) as error:
        raise AuthorityError(f"the certificate has no readable names: {error}"
                             ) from None
    names: list[Name] = []
    for general_name in general_names:
        if isinstance(general_name, x509.IPAddress):
            names.append(general_name)
        elif isinstance(general_name, x509.DNSName):
            with contextlib.suppress(AuthorityError):
                name = read_name(general_name.value)
                if isinstance(name, x509.DNSName):
                    names.append(name)
    if not names:
        raise AuthorityError("the certificate has no host name and no address")
    return names


def build_constraints(texts: Sequence[str]) -> x509.NameConstraints | None:
    """Makes the constraints of `--permit`: domains with all below them, addresses and
    networks. None: no constraint. Raises AuthorityError.

    A kind of name is excluded as a whole if no subtree of it is permitted, because it
    would not be constrained at all otherwise (RFC 5280 section 4.2.1.10).
    """
    permitted = [_read_permitted(text) for text in texts]
    if not permitted:
        return None
    excluded: list[x509.GeneralName] = []
    if not any(isinstance(subtree, x509.DNSName) for subtree in permitted):
        excluded.append(x509.DNSName(""))    # matches every name
    versions = {subtree.value.version for subtree in permitted
                if isinstance(subtree, x509.IPAddress)}
    excluded += [x509.IPAddress(every) for every in (EVERY_V4, EVERY_V6)
                 if every.version not in versions]
    return x509.NameConstraints(permitted, excluded or None)


def _read_permitted(text: str) -> Name:
    try:
        if "/" in text:
            return x509.IPAddress(ipaddress.ip_network(canonical_network(text)))
    except ValueError as error:
        raise AuthorityError(str(error)) from None
    host, is_address = _host(text.removeprefix("*").removeprefix("."))
    if is_address:
        return x509.IPAddress(ipaddress.ip_network(host))
    return x509.DNSName(host)


def constraints_of(certificate: x509.Certificate) -> x509.NameConstraints | None:
    try:
        return certificate.extensions.get_extension_for_class(
            x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return None


def is_permitted(name: x509.GeneralName,
                 constraints: x509.NameConstraints | None) -> bool:
    """Whether a name may be in a certificate under these constraints."""
    if constraints is None:
        return True
    permitted = [subtree for subtree in constraints.permitted_subtrees or ()
                 if type(subtree) is type(name)]
    excluded = constraints.excluded_subtrees or ()
    return (not permitted or any(_is_within(name, subtree) for subtree in permitted)
            ) and not any(_is_within(name, subtree) for subtree in excluded)


def _is_within(name: x509.GeneralName, subtree: x509.GeneralName) -> bool:
    if isinstance(name, x509.DNSName) and isinstance(subtree, x509.DNSName):
        host, domain = (dns_name.value.lower().removeprefix("*.")
                        for dns_name in (name, subtree))
        return domain == "" or host == domain or host.endswith(f".{domain}")
    if isinstance(name, x509.IPAddress) and isinstance(subtree, x509.IPAddress):
        network = subtree.value
        return isinstance(network, (ipaddress.IPv4Network, ipaddress.IPv6Network)) and (
            name.value in network)           # False for another version
    return False


def show_names(names: Iterable[x509.GeneralName]) -> str:
    return ", ".join(str(name.value) for name in names)


def show_constraints(constraints: x509.NameConstraints | None) -> str:
    if constraints is None:
        return "none: it may sign for every name"
    return "only for " + ", ".join(
        f"{subtree.value} and below" if isinstance(subtree, x509.DNSName)
        else str(subtree.value)
        for subtree in constraints.permitted_subtrees or ())
