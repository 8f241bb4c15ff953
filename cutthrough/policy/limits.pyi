from cutthrough.policy.ledger import Ledger
from cutthrough.policy.source import Policy

class Limiter:
    ledger: Ledger
    def __init__(
        self,
        ledger: Ledger | None = None,
        policy: Policy | None = None,
        *,
        most: int = 0,
        most_of_client: int = 0,
    ) -> None: ...
