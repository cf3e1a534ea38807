"""Which server: from a URL, or from a client that the user has made. And how to connect to it, in either world."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis
from msgspec import Struct
from redis import connection

from onceward.errors import ConfigurationError

SCHEMES: Final = ("redis", "rediss", "unix")
EXAMPLES: Final = "write redis://host:6379/0, rediss://user:password@host:6380/0 or unix:///run/redis.sock?db=0"
OURS: Final = ("prefix", "unsafe_eviction", "unsafe_persistence")
ALLOW: Final = "allow"

KINDS: Final = {"Connection": "tcp", "SSLConnection": "tls", "UnixDomainSocketConnection": "unix"}
CLASSES: Final = {kind: name for name, kind in KINDS.items()}

KEPT: Final = frozenset({
    "host", "port", "path", "db", "username", "password", "credential_provider", "client_name",
    "socket_keepalive", "socket_keepalive_options", "redis_connect_func",
})  # fmt: skip
"""What of a client's settings is about where and who. Timeouts, retries and decoding are ours to choose."""


_parse_url: Callable[[str], dict[str, Any]] = connection.parse_url  # it has no types of its own


class RedisAddress(Struct, frozen=True):
    """A server and a database there: how redis-py connects to it. `name` is for people, without the password."""

    name: str
    kind: str
    settings: dict[str, Any]

    def connection(self, module: Any, seconds: float) -> Any:
        """A connection of redis-py (`redis.connection`, or its asyncio twin), not yet connected.

        It repeats nothing by itself, since a lost reply is ours to judge, and speaks RESP 2, which never pushes.
        """
        make = getattr(module, CLASSES[self.kind])
        try:
            return make(**self.settings, protocol=2, socket_timeout=seconds, socket_connect_timeout=seconds)
        except (TypeError, ValueError, redis.RedisError) as error:
            raise ConfigurationError(
                f"{self.name}: redis-py does not accept these settings ({error})", hint=EXAMPLES
            ) from error


def parse(url: str) -> tuple[RedisAddress, dict[str, Any]]:
    """The server, and the settings that are ours."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        theirs = urlencode([pair for pair in pairs if pair[0] not in OURS])
        settings = dict(_parse_url(f"{url.partition('?')[0]}?{theirs}"))
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{_masked(url)} is not a Redis URL ({error})", hint=EXAMPLES) from error
    if parts.scheme not in SCHEMES or parts.fragment:
        raise ConfigurationError(f"{_masked(url)} is not a Redis URL", hint=EXAMPLES)
    if parts.scheme != "unix" and not re.fullmatch(r"/?[0-9]*", parts.path):  # redis-py would take database 0
        raise ConfigurationError(f"{_masked(url)} names no database: that is a number", hint=EXAMPLES)
    made_by = settings.pop("connection_class", redis.Connection)
    return _place(KINDS[made_by.__name__], settings), _ours([pair for pair in pairs if pair[0] in OURS])


def from_client(client: Any) -> RedisAddress:
    """The place that a `redis.Redis` or `redis.asyncio.Redis` of the user's is connected to.

    Only its address and credentials are taken over: calls go over connections of our own, with deadlines of our own.
    """
    pool = getattr(client, "connection_pool", None)
    kind = KINDS.get(getattr(getattr(pool, "connection_class", None), "__name__", ""))
    if pool is None or kind is None:
        raise ConfigurationError(
            f"{type(client).__qualname__} is not a client of one Redis server",
            hint="give redis.Redis, redis.asyncio.Redis, or a URL; clusters and sentinels are not supported yet",
        )
    given = pool.connection_kwargs
    return _place(kind, {name: value for name, value in given.items() if name in KEPT or name.startswith("ssl_")})


def _place(kind: str, settings: Mapping[str, Any]) -> RedisAddress:
    settings = {name: value for name, value in settings.items() if value is not None}
    database = settings.get("db", 0)
    if kind == "unix":
        name = f"unix://{settings.get('path', '')}?db={database}"
    else:
        host = settings.setdefault("host", "localhost")
        scheme = "rediss" if kind == "tls" else "redis"
        where = f"[{host}]" if ":" in str(host) else host
        name = f"{scheme}://{where}:{settings.get('port', 6379)}/{database}"
    return RedisAddress(name, kind, dict(settings))


def _ours(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in pairs:
        if name in settings:
            raise ConfigurationError(f"{name} is given twice")
        if name == "prefix":
            settings[name] = value
        elif value != ALLOW:
            raise ConfigurationError(f"{name}={value!r} is not possible", hint=f"write {name}={ALLOW}, or leave it out")
        else:
            settings[name] = True
    return settings


def _masked(url: str) -> str:
    """Without what may be a password: before the @, or among the settings."""
    place, _, _ = url.partition("?")
    head, at, tail = place.rpartition("@")
    return repr(f"{head.partition('://')[0]}://…@{tail}" if at else place)
