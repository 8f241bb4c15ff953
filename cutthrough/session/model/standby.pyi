from collections.abc import Callable

from cutthrough.net.poller import Poller
from cutthrough.policy.parents import Standing

class Standby:
    held: int
    def __init__(self, poller: Poller, standing: Standing) -> None: ...
    def configure(
        self, most: int, timeout: float, begin: Callable[[Standby], object]
    ) -> None: ...
    def close_now(self) -> None: ...
