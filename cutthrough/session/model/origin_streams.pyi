from typing import Self

from cutthrough.session.model.idle_pool import IdlePool

class Carriers:
    held: int
    def __new__(cls, pool: IdlePool) -> Self: ...
    def configure(self, idle_timeout: float, connect_timeout: float,
                  response_timeout: float) -> None: ...
    def clear(self) -> None: ...
