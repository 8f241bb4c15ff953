"""The connection to Redis, and the meaning of its errors.

Redis runs scripts for us, each with all of its keys in one slot of a cluster. Any node
of a cluster may have the URL's address; it names the one that has the keys.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from redis import exceptions
from redis.asyncio import Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from cutthrough.config.config import Config, ConfigError

# Timeout of one step. Redis needs under a millisecond; waiting longer gains nothing
PATIENCE_S = 1.0


class NamedConnection(SSLConnection):
    """The server's name is in its certificate's subjectAltName or nowhere (R86)."""

    def _connection_arguments(self) -> Mapping[str, Any]:
        self.ssl_context.get().hostname_checks_common_name = False
        return super()._connection_arguments()


def make_client(config: Config, node: tuple[str, int] | None = None) -> Redis:
    """Returns a client. `node`: host ("": the URL's) and port of a node of the URL's
    cluster. Raises ConfigError without the address (R37)."""
    try:
        client: Redis = Redis.from_url(
            config.fleet_url, decode_responses=True, protocol=2, max_connections=1,
            socket_timeout=PATIENCE_S, socket_connect_timeout=PATIENCE_S,
            retry=Retry(NoBackoff(), 0), client_name="cutthrough",
            **({"ssl_check_hostname": True} if config.fleet_url.startswith("rediss:")
               else {}))
        pool: Any = client.connection_pool
        if issubclass(pool.connection_class, SSLConnection):
            pool.connection_class = NamedConnection
        if node is not None:
            host, port = node
            pool.connection_kwargs.update(port=port, **({"host": host} if host else {}))
        pool.make_connection()
    except (ValueError, TypeError, exceptions.RedisError):
        raise ConfigError("", "fleet_url", "is not of the form "
                          "rediss://user:password@host:6379/0") from None
    return client


async def disconnect(client: Redis | None) -> None:
    """Closes the connection: a late answer must not be taken for the next one."""
    if client is not None:
        with contextlib.suppress(exceptions.RedisError, OSError, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await client.aclose()


class Link:
    """A connection for scripts, made by the first, and anew after `close`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._client: Redis | None = None
        self._node: tuple[str, int] | None = None    # of a cluster, with our keys

    @property
    def is_open(self) -> bool:
        return self._client is not None

    async def run(self, script: str, keys: list[str], values: list[Any]) -> Any:
        """The script's answer. Raises ConfigError, and the errors of redis and of its
        connection; the caller bounds the time."""
        try:
            return await self._run(script, keys, values)
        except exceptions.MovedError as error:
            await self.close()
            self._node = error.node_addr
            return await self._run(script, keys, values)

    async def _run(self, script: str, keys: list[str], values: list[Any]) -> Any:
        if self._client is None:
            self._client = make_client(self._config, self._node)
        return await self._client.register_script(script)(keys, values)

    async def close(self) -> None:
        """The next script is for the URL's address."""
        client, self._client, self._node = self._client, None, None
        await disconnect(client)


def explain(error: Exception) -> tuple[str, str]:
    """Returns the kind, one of FAILURES, and a text. Redis's own message is omitted,
    because it quotes commands that Redis does not understand, even AUTH (R37)."""
    if isinstance(error, TimeoutError | exceptions.TimeoutError):
        return "timeout", "does not answer in time"
    if isinstance(error, exceptions.AuthenticationError
                  | exceptions.AuthorizationError | exceptions.NoPermissionError):
        return "refused", "refuses our credentials"
    if isinstance(error, exceptions.ConnectionError | OSError):
        cause = error if isinstance(error, OSError) else error.__cause__
        why = f" ({cause.strerror})" if isinstance(
            cause, OSError) and cause.strerror else ""
        return "connection", f"cannot be reached{why}"
    if isinstance(error, exceptions.ReadOnlyError):
        return "error", "is a replica, which takes no usage"
    return "error", f"answers with an error ({type(error).__name__})"
