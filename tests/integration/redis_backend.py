"""Redis for tests: a private server, a separate prefix for each test, and a proxy in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, ClaimRequest, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.redis import RedisStore
from onceward.testing.conformance.harness import claim_request
from tests.clients import Backend, RealClock
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

TIMEOUT = 10.0


class RedisBackend(Backend):
    """A store on real time, reached through the proxy. `raw` is a client that bypasses both."""

    def __init__(self, folder: Path, server: RedisServer, proxy: Proxy) -> None:
        super().__init__("redis", folder, RealClock())
        self.server = server
        self.proxy = proxy
        self.prefix = folder.name
        self.raw: Any = redis.Redis(port=server.port)

    def open(self, **settings: Any) -> RedisStore:
        return RedisStore(self.server.url(port=self.proxy.port), prefix=self.prefix, **settings)

    def name(self, id: bytes) -> bytes:
        return b"{%b}:r:%b" % (self.prefix.encode(), id)

    def close(self) -> None:
        self.raw.close()


@contextmanager
def opened(store: RedisStore) -> Iterator[RedisStore]:
    """Open the store for blocking calls."""
    run(store.open(ThreadRuntime()))
    try:
        yield store
    finally:
        run(store.close())


def claim(store: RedisStore, key: str, **how: Any) -> Answer:
    return send(store, claim_request(key, **how))


def send(store: RedisStore, request: ClaimRequest) -> Answer:
    [answer] = run(store.claim([request], timeout=TIMEOUT))
    return answer


def acquired(store: RedisStore, key: str, **how: Any) -> Record:
    answer = claim(store, key, **how)
    assert answer.verdict is Verdict.ACQUIRED
    assert answer.record is not None
    return answer.record
