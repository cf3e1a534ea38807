"""PostgreSQL for tests: a store in a separate schema for each test, and a proxy in front of the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore
from tests.servers.postgres import URL, Postgres
from tests.servers.proxy import Proxy


def opened(url: str, **more: Any) -> PostgresStore:
    store = PostgresStore(url, migrate=True, **more)
    run(store.open(ThreadRuntime()))
    return store


@pytest.fixture
def store(schema: str) -> Iterator[PostgresStore]:
    store = opened(os.environ[URL], schema=schema)
    yield store
    run(store.close())


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", postgres.port) as proxy:
        yield proxy


def claim(store: PostgresStore, request: Any, timeout: float = 5.0) -> Any:
    return run(store.claim([request], timeout=timeout))[0]
