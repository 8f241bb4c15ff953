"""The pages of memory that the next program of an upgrade inherits."""

from collections.abc import Mapping

from cutthrough.supervisor import credentials_page, tickets_page
from cutthrough.supervisor.credentials_page import CredentialsPage
from cutthrough.supervisor.tickets_page import TicketsPage


class InheritedPages:
    """Both pages, from `open` to `close`."""

    def __init__(self) -> None:
        self.credentials = CredentialsPage()
        self.tickets = TicketsPage()

    def open(self) -> None:
        """Raises OSError."""
        self.credentials.open()
        self.tickets.open()

    @property
    def variables(self) -> Mapping[str, int]:
        """Each page's descriptor, by the variable that has its number."""
        return {credentials_page.VARIABLE: self.credentials.fd,
                tickets_page.VARIABLE: self.tickets.fd}

    @property
    def descriptors(self) -> dict[str, int]:
        """The same by their names in Hello."""
        return {"known": self.credentials.fd, "tickets": self.tickets.fd}

    def close(self) -> None:
        self.credentials.close()
        self.tickets.close()
