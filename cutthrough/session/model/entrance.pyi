from collections.abc import Collection

class Entrance:
    def __init__(
        self,
        protocols: Collection[str] = ("http",),
        *,
        udp: bool = False,
        needs_user: bool = True,
        anonymous_from: Collection[str] = (),
        transparent: str = "off",
        senders: Collection[str] = (),
        user: str = "",
        believed: Collection[str] = (),
        host_strict: bool = False,
    ) -> None: ...
