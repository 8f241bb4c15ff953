"""A filter that no request of the benchmark meets: see unused.toml."""


class Nothing:
    async def on_request_head(self, flow: object) -> None:
        """Changes nothing."""
