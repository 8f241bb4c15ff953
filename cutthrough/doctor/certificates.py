"""The certificates of TLS listeners: whether they can be used, and until when."""

import time
from collections.abc import Iterator

from cutthrough.config.config import ConfigError
from cutthrough.doctor.finding import Case, Finding
from cutthrough.generation.tls_files import check_tls, read_tls_files

# As the alert in deploy/alerts.yaml
SOON_DAYS = 14
DAY_S = 86400


def check_certificates(case: Case) -> Iterator[Finding]:
    if not any(one.certificates for one in case.config.all_listeners):
        return
    try:
        servers = check_tls(case.config, read_tls_files(case.config))
    except ConfigError as error:
        yield Finding("certificates", "fail", error.reason, "", "correct listeners")
        return
    now = time.time()
    for server in servers:
        for about in server.certificates if server is not None else ():
            days = int((about.not_after - now) // DAY_S)
            name = f"certificate {about.name}"
            kind = f"{about.key}, {', '.join(about.hosts) or 'no names'}"
            if about.not_before > now:
                yield Finding(name, "fail", f"{kind}, not valid yet", "",
                              "look at this host's clock")
            elif days < 0:
                yield Finding(name, "fail", f"{kind}, expired", "", "renew it")
            elif days < SOON_DAYS:
                yield Finding(name, "warn", f"{kind}, {days} days left",
                              f"{SOON_DAYS} days", "renew it")
            else:
                yield Finding(name, "ok", f"{kind}, {days} days left")
