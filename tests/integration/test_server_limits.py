"""What a server's own settings and limits do to a store: the error says what it is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest
import redis

from onceward import Once
from onceward.errors import ConfigurationError, StoreUnavailable
from onceward.stores.postgres import PostgresStore
from tests.servers.postgres import URL, execute
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.finding("N76")]


@pytest.fixture
def appending() -> Iterator[RedisServer]:
    server = RedisServer(settings=("--appendonly", "yes", "--appendfsync", "no", "--save", "")).begin()
    yield server
    server.end()


def answer() -> str:
    return "done"


def test_a_server_that_leaves_syncing_to_the_system_is_refused_unless_allowed(appending: RedisServer) -> None:
    url = f"redis://127.0.0.1:{appending.port}/0"
    with Once(url) as once, pytest.raises(ConfigurationError, match=r"appendfsync no.*unsafe_persistence=allow"):
        once.run("k", answer)
    with Once(f"{url}?unsafe_persistence=allow") as once:
        assert once.run("k", answer) == "done"
    with redis.Redis(port=appending.port) as raw:
        raw.config_set("appendfsync", "everysec")
    with Once(url) as once:
        assert once.run("k", answer) == "done"


def test_a_redis_server_without_a_free_connection_is_not_called_unreachable(appending: RedisServer) -> None:
    with redis.Redis(port=appending.port) as raw:
        raw.config_set("maxclients", "1")
        with Once(appending.url()) as once, pytest.raises(StoreUnavailable, match="no connection left") as caught:
            once.run("k", answer)
    assert "maxclients" in str(caught.value)
    assert "running" not in str(caught.value)


@pytest.mark.usefixtures("postgres")
def test_a_postgresql_server_without_a_free_connection_is_not_called_unreachable(schema: str) -> None:
    role = f"limited_{schema}"
    execute(f'CREATE ROLE "{role}" LOGIN CONNECTION LIMIT 1')
    url = os.environ[URL].replace("postgres@", f"{role}@")
    try:
        refused = pytest.raises(StoreUnavailable, match="no connection left")
        with psycopg.connect(url), Once(PostgresStore(url, schema=schema)) as once, refused as caught:
            once.run("k", answer)
        assert "max_connections" in str(caught.value)
        assert "running" not in str(caught.value)
    finally:
        execute(f'DROP ROLE "{role}"')
