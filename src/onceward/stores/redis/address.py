"""The address of a Redis server, from a URL or from a user's client, and how to connect to it, sync or async."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis
from msgspec import Struct
from redis import connection

from onceward.errors import ConfigurationError
from onceward.protocol.secrets import url_without_secrets

SCHEMES: Final = ("redis", "rediss", "unix")
EXAMPLES: Final = "use redis://host:6379/0, rediss://user:password@host:6380/0 or unix:///run/redis.sock?db=0"
OWN_SETTINGS: Final = ("prefix", "unsafe_eviction", "unsafe_persistence")
ALLOW: Final = "allow"

KINDS: Final = {"Connection": "tcp", "SSLConnection": "tls", "UnixDomainSocketConnection": "unix"}
CLASSES: Final = {kind: name for name, kind in KINDS.items()}

CLIENT_SETTINGS: Final = frozenset({
    "host", "port", "path", "db", "username", "password", "credential_provider", "client_name",
    "socket_keepalive", "socket_keepalive_options", "redis_connect_func",
})  # fmt: skip
"""The settings taken from a user's client: address and identity. Timeouts, retries and decoding are Onceward's own."""


_parse_url: Callable[[str], dict[str, Any]] = connection.parse_url  # untyped in redis-py


class RedisAddress(Struct, frozen=True):
    """A server and a database, as settings for redis-py. `name` is for display and contains no password."""

    name: str
    kind: str
    settings: dict[str, Any]

    def __repr__(self) -> str:  # never the settings, which include the password
        return f"<RedisAddress {self.name}>"

    def client(self, seconds: float) -> Any:
        """Return a client of redis-py for one thread. Closing it closes its connections."""
        connection_class = getattr(connection, CLASSES[self.kind])
        timeouts: dict[str, Any] = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
        pool = redis.ConnectionPool(connection_class=connection_class, **self.settings, protocol=2, **timeouts)
        return redis.Redis.from_pool(pool)

    def connection(self, module: Any, *, connect_timeout: float, read_timeout: float | None = None) -> Any:
        """Return an unconnected redis-py connection. `module` is `redis.connection` or its asyncio counterpart.

        It does not retry, because Onceward decides what a lost reply means. It uses RESP 2, which never pushes.
        """
        connection_class = getattr(module, CLASSES[self.kind])
        timeouts = {"socket_timeout": read_timeout, "socket_connect_timeout": connect_timeout}
        try:
            return connection_class(**self.settings, protocol=2, **timeouts)
        except (TypeError, ValueError, redis.RedisError) as error:
            raise ConfigurationError(
                f"{self.name}: redis-py does not accept these settings ({error})", hint=EXAMPLES
            ) from error


def parse(url: str) -> tuple[RedisAddress, dict[str, Any]]:
    """Return the server's address and Onceward's own settings."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        driver_query = urlencode([pair for pair in pairs if pair[0] not in OWN_SETTINGS])
        settings = dict(_parse_url(f"{url.partition('?')[0]}?{driver_query}"))
    except (ValueError, TypeError):  # its message may quote the password
        raise ConfigurationError(f"{url_without_secrets(url)!r} is not a Redis URL", hint=EXAMPLES) from None
    misplaced = parts.scheme == "unix" and ":" in parts.netloc and "@" not in parts.netloc
    if parts.scheme not in SCHEMES or parts.fragment or misplaced:
        raise ConfigurationError(f"{url_without_secrets(url)!r} is not a Redis URL", hint=EXAMPLES)
    if parts.scheme != "unix" and not re.fullmatch(r"/?[0-9]*", parts.path):  # redis-py would use database 0
        raise ConfigurationError(f"{url_without_secrets(url)!r}: the database must be a number", hint=EXAMPLES)
    connection_class = settings.pop("connection_class", redis.Connection)
    return _address(KINDS[connection_class.__name__], settings), _own_settings(
        [pair for pair in pairs if pair[0] in OWN_SETTINGS]
    )


def from_client(client: Any) -> RedisAddress:
    """Return the address of a `client`: a `redis.Redis` or `redis.asyncio.Redis`. Pass it to `RedisStore`.

    Only its address and credentials are used. Calls use Onceward's own connections and deadlines.

    Raises:
        ConfigurationError: The client does not connect to a single Redis server.
    """
    pool = getattr(client, "connection_pool", None)
    kind = KINDS.get(getattr(getattr(pool, "connection_class", None), "__name__", ""))
    if pool is None or kind is None:
        raise ConfigurationError(
            f"{type(client).__qualname__} is not a client of one Redis server",
            hint="pass redis.Redis, redis.asyncio.Redis or a URL; clusters and sentinels are not supported yet",
        )
    given = pool.connection_kwargs
    return _address(
        kind, {name: value for name, value in given.items() if name in CLIENT_SETTINGS or name.startswith("ssl_")}
    )


def _address(kind: str, settings: Mapping[str, Any]) -> RedisAddress:
    settings = {name: value for name, value in settings.items() if value is not None}
    database = settings.get("db", 0)
    if kind == "unix":
        name = f"unix://{settings.get('path', '')}?db={database}"
    else:
        host = settings.setdefault("host", "localhost")
        scheme = "rediss" if kind == "tls" else "redis"
        shown_host = f"[{host}]" if ":" in str(host) else host
        name = f"{scheme}://{shown_host}:{settings.get('port', 6379)}/{database}"
    return RedisAddress(name, kind, dict(settings))


def _own_settings(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in pairs:
        if name in settings:
            raise ConfigurationError(f"{name} is given twice")
        if name == "prefix":
            settings[name] = value
        elif value != ALLOW:
            raise ConfigurationError(f"{name}={value!r} is not allowed", hint=f"use {name}={ALLOW}, or leave it out")
        else:
            settings[name] = True
    return settings
