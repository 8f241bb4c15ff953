"""The pages of memory that workers share: those that the next program of an upgrade
inherits, and that of parents' checks, of which each program has its own."""

import os
from collections.abc import Mapping

from cutthrough.process.checks_page import make_page
from cutthrough.supervisor import credentials_page, tickets_page
from cutthrough.supervisor.credentials_page import CredentialsPage
from cutthrough.supervisor.tickets_page import TicketsPage


class InheritedPages:
    """The pages, from `open` to `close`."""

    def __init__(self) -> None:
        self.credentials = CredentialsPage()
        self.tickets = TicketsPage()
        self._checks = -1

    def open(self, secret: str) -> None:
        """`secret`: of the credentials that hosts share; "": none. Raises OSError."""
        self.credentials.open(secret)
        self.tickets.open()
        self._checks = make_page()

    @property
    def variables(self) -> Mapping[str, int]:
        """The descriptor of each inherited page, by the variable with its number."""
        return {credentials_page.VARIABLE: self.credentials.fd,
                tickets_page.VARIABLE: self.tickets.fd}

    @property
    def descriptors(self) -> dict[str, int]:
        """The descriptors of all by their names in Hello."""
        return {"known": self.credentials.fd, "tickets": self.tickets.fd,
                "checks": self._checks}

    def close(self) -> None:
        self.credentials.close()
        self.tickets.close()
        if self._checks >= 0:
            os.close(self._checks)
            self._checks = -1
