"""A state on PostgreSQL, and others that look at it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import Once
from onceward.stores.postgres import PostgresStore
from tests.integration.postgres_connections import make_effects
from tests.servers.postgres import URL, execute

WEEK = 7 * 86_400 * 1_000_000


class Stop(Exception):
    pass


@pytest.fixture
def store(schema: str) -> PostgresStore:
    make_effects(schema)
    return PostgresStore(os.environ[URL], schema=schema, migrate=True)


@pytest.fixture
def once(store: PostgresStore) -> Iterator[Once]:
    with Once(store) as once:
        once.read("open the store")
        yield once


@pytest.fixture
def trucks(once: Once) -> Any:
    return once.state("trucks")


def another(schema: str, **settings: Any) -> Once:
    return Once(PostgresStore(os.environ[URL], schema=schema), **settings)


def count(schema: str, table: str) -> int:
    return int(execute(f'SELECT count(*) FROM "{schema}".onceward_{table}')[0][0])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "onceward")
