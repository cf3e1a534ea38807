"""Other libraries on Redis, each used as in its documentation, on the same function."""

from __future__ import annotations

import warnings
from asyncio import Runner
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import redis

from bench.case import Call, work
from bench.peers import EXPIRES, LEASE, module


def idemkit(port: int, closing: ExitStack) -> Call:
    library, bridge = module("idemkit", "idemkit"), module("idemkit.core.sync_bridge", "idemkit")
    backend = library.RedisBackend.from_url(f"redis://127.0.0.1:{port}")
    closing.callback(lambda: bridge.run_sync(backend.aclose()))
    choices = library.MethodConfig(key_fields=["key"], scope=bench_scope)
    guarded = library.idempotent_sync(backend=backend, config=choices)(by_name)
    return lambda key: guarded(key=key)


def idemkit_awaited(port: int, closing: ExitStack, runner: Runner) -> Callable[[str], Awaitable[object]]:
    library = module("idemkit", "idemkit")
    backend = library.RedisBackend.from_url(f"redis://127.0.0.1:{port}")
    closing.callback(lambda: runner.run(backend.aclose()))
    choices = library.MethodConfig(key_fields=["key"], scope=bench_scope)

    async def named(*, key: str) -> str:
        return work(key)

    guarded = library.idempotent(backend=backend, config=choices)(named)
    return lambda key: guarded(key=key)


def powertools(port: int, closing: ExitStack) -> Call:
    library = module("aws_lambda_powertools.utilities.idempotency", "aws-lambda-powertools")
    layer = module("aws_lambda_powertools.utilities.idempotency.persistence.cache", "aws-lambda-powertools")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a deprecation warning about the old name of the class
        store = layer.CachePersistenceLayer(client=closing.enter_context(redis.Redis(port=port)))
    choices = library.IdempotencyConfig(expires_after_seconds=EXPIRES)
    choices.register_lambda_context(TenMinutes())  # without it, a crashed call is never taken over
    guard = library.idempotent_function(data_keyword_argument="key", persistence_store=store, config=choices)
    guarded = guard(by_name)
    return lambda key: guarded(key=key)


def dogpile(port: int, closing: ExitStack) -> Call:
    """Uses its lock on the server: without it, two processes would both run the function."""
    cache = module("dogpile.cache", "dogpile.cache")
    region = cache.make_region().configure(
        "dogpile.cache.redis",
        expiration_time=EXPIRES,
        arguments={"host": "127.0.0.1", "port": port, "distributed_lock": True, "thread_local_lock": False},
    )
    closing.callback(region.actual_backend.writer_client.close)
    cached: Call = region.cache_on_arguments()(work)
    return cached


def exactly_once(port: int, closing: ExitStack) -> Call:
    """Uses a lease, as in memory."""
    library = module("exactly_once", "exactly-once")
    store = library.Store.redis(f"redis://127.0.0.1:{port}/0")
    closing.callback(store.close)
    guarded: Call = library.once(store, key=lambda key: key, lease_ttl=LEASE)(work)
    return guarded


class TenMinutes:
    """A stand-in for the Lambda context: the remaining time is used as the lease."""

    def get_remaining_time_in_millis(self) -> int:
        return 600_000


def by_name(*, key: str) -> str:
    return work(key)


def bench_scope(*_: object, **__: object) -> str:
    return "bench"


Peer = Callable[[int, ExitStack], Call]

PEERS: dict[str, Peer] = {
    "idemkit": idemkit,
    "powertools": powertools,
    "dogpile redis": dogpile,
    "exactly_once": exactly_once,
}
