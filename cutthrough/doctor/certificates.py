"""The certificates of listeners, for parents and of our authorities: can they be used,
and until when."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cutthrough.config.config import ConfigError
from cutthrough.doctor.finding import Case, Finding
from cutthrough.generation.ca_certificate import read_ca_certificate
from cutthrough.generation.interception import (
    authority_expiry,
    client_certificates,
    read_interception,
)
from cutthrough.generation.tls_files import (
    certificates,
    check_parents,
    check_tls,
    read_parent_files,
    read_tls_files,
)

if TYPE_CHECKING:
    from cutthrough.net.tls.certificates import Certificate

# As the alerts in deploy/alerts.yaml. More for an authority, because its next
# certificate has to reach every device
SOON_DAYS = 14
AUTHORITY_SOON_DAYS = 60
DAY_S = 86400


def check_certificates(case: Case) -> Iterator[Finding]:
    if not any(listener.certificates for listener in case.config.all_listeners):
        return
    try:
        servers = check_tls(case.config, read_tls_files(case.config))
    except ConfigError as error:
        yield Finding("certificates", "fail", error.reason, "", "correct listeners")
        return
    for server in servers:
        for about in server.certificates if server is not None else ():
            yield judge(about)


def check_certificates_of_parents(case: Case) -> Iterator[Finding]:
    """Ours, and of each file of authorities the first one to expire."""
    if not any(parent.tls_files for parent in case.config.all_parents):
        return
    try:
        files = read_parent_files(case.config)
        check_parents(case.config, files)
    except ConfigError as error:
        yield Finding("certificates for parents", "fail", error.reason, "",
                      "correct parents")
        return
    for about in dict.fromkeys(certificates(case.config, files)):
        yield judge(about)


def judge(about: "Certificate") -> Finding:
    now = time.time()
    days = int((about.not_after - now) // DAY_S)
    name = f"certificate {about.name}"
    kind = f"{about.key}, {', '.join(about.hosts) or 'no names'}"
    if about.not_before > now:
        return Finding(name, "fail", f"{kind}, not valid yet", "",
                       "look at this host's clock")
    if days < 0:
        return Finding(name, "fail", f"{kind}, expired", "", "renew it")
    if days < SOON_DAYS:
        return Finding(name, "warn", f"{kind}, {days} days left",
                       f"{SOON_DAYS} days", "renew it")
    return Finding(name, "ok", f"{kind}, {days} days left")


def check_authority(case: Case) -> Iterator[Finding]:
    try:
        authority = read_ca_certificate(case.config)
    except ConfigError as error:
        yield Finding("ca_certificate", "fail", error.reason, "", "correct the file")
        return
    if authority is not None:
        yield judge_authority(
            f"ca_certificate {authority.path}", authority.subject, authority.not_after)


def check_interception_authority(case: Case) -> Iterator[Finding]:
    try:
        files = read_interception(case.config)
        expiries = authority_expiry(case.config, files)
        shown = [*client_certificates(files)]
    except (ConfigError, ImportError, ValueError) as error:
        yield Finding("intercept_ca", "fail", getattr(error, "reason", str(error)), "",
                      "correct the files")
        return
    for path, not_after in expiries.items():
        yield judge_authority(f"intercept_ca {path}", "our authority", not_after)
    yield from map(judge, shown)


def judge_authority(name: str, subject: str, not_after: int) -> Finding:
    days = int((not_after - time.time()) // DAY_S)
    advice = "make the next authority, and have every device trust both"
    if days < 0:
        return Finding(name, "fail", f"{subject}, expired", "", advice)
    if days < AUTHORITY_SOON_DAYS:
        return Finding(name, "warn", f"{subject}, {days} days left",
                       f"{AUTHORITY_SOON_DAYS} days", advice)
    return Finding(name, "ok", f"{subject}, {days} days left")
