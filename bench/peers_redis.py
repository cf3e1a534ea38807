"""Other libraries on Redis, each used as its own documentation uses it, on the same function."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from bench.case import Call, work
from bench.peers import EXPIRES, NotInstalled


def _module(name: str, package: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError:
        raise NotInstalled(package) from None


def idemkit(port: int) -> Call:
    library = _module("idemkit", "idemkit")
    backend = library.RedisBackend.from_url(f"redis://127.0.0.1:{port}")
    guarded = library.idempotent_sync(backend=backend, config=library.MethodConfig(key_fields=["key"], scope=_nobody))(
        _by_name
    )
    return lambda key: guarded(key=key)


def idemkit_awaited(port: int) -> Callable[[str], Awaitable[object]]:
    library = _module("idemkit", "idemkit")
    backend = library.RedisBackend.from_url(f"redis://127.0.0.1:{port}")

    @library.idempotent(backend=backend, config=library.MethodConfig(key_fields=["key"], scope=_nobody))  # type: ignore[untyped-decorator]
    async def guarded(*, key: str) -> str:
        return work(key)

    return lambda key: guarded(key=key)


def powertools(port: int) -> Call:
    import redis

    library = _module("aws_lambda_powertools.utilities.idempotency", "aws-lambda-powertools")
    layer = _module("aws_lambda_powertools.utilities.idempotency.persistence.redis", "aws-lambda-powertools")
    store = layer.RedisCachePersistenceLayer(client=redis.Redis(port=port))
    guarded = library.idempotent_function(
        data_keyword_argument="key",
        persistence_store=store,
        config=library.IdempotencyConfig(expires_after_seconds=EXPIRES),
    )(_by_name)
    return lambda key: guarded(key=key)


def dogpile(port: int) -> Call:
    """With its lock on the server: without one, two processes both run."""
    cache = _module("dogpile.cache", "dogpile.cache")
    region = cache.make_region().configure(
        "dogpile.cache.redis",
        expiration_time=EXPIRES,
        arguments={"host": "127.0.0.1", "port": port, "distributed_lock": True, "thread_local_lock": False},
    )
    cached: Call = region.cache_on_arguments()(work)
    return cached


def _by_name(*, key: str) -> str:
    return work(key)


def _nobody(*_: object, **__: object) -> str:
    return "bench"


PEERS: dict[str, Callable[[int], Call]] = {"idemkit": idemkit, "powertools": powertools, "dogpile redis": dogpile}
