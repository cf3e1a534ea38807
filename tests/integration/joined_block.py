"""`within` of the sync and async client, called as blocking code, and user connections to the store's file."""

from __future__ import annotations

import contextlib
import contextvars
import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients import SyncClient

__all__ = ["Block", "Write", "always_open", "connection", "rows", "since_3_12", "users_connection", "within", "write"]

Write = Callable[[str], None]

since_3_12 = pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit came with Python 3.12")


class Block:
    """The transaction that a `with` block has joined."""

    def __init__(self, client: SyncClient, tx: Any) -> None:
        self._client = client
        self._tx = tx

    def run(self, key: Any, fn: Callable[..., Any], *args: Any) -> Any:
        return self._client.wait(self._tx.run(key, self._client.work(fn), *args))

    def outcome(self, key: Any, fn: Callable[..., Any], *args: Any) -> Any:
        return self._client.wait(self._tx.outcome(key, self._client.work(fn), *args))


@contextlib.contextmanager
def within(client: SyncClient, connection: sqlite3.Connection) -> Iterator[Block]:
    block = client.once.within(connection)
    context = contextvars.copy_context()
    tx = client.enter(block, context)
    try:
        yield Block(client, tx)
    except BaseException as error:
        client.leave(block, context, error)
        raise
    client.leave(block, context, None)


def users_connection(client: SyncClient) -> sqlite3.Connection:
    """Connect for any thread: handlers of the async client run on another thread, one at a time."""
    client.read("open the store")
    connection = sqlite3.connect(client.backend.path, check_same_thread=False, timeout=0.05)
    connection.execute("CREATE TABLE IF NOT EXISTS effects (word TEXT)")
    return connection


def rows(client: SyncClient) -> list[str]:
    """Return the committed effects."""
    with contextlib.closing(sqlite3.connect(client.backend.path)) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM effects ORDER BY rowid")]


@pytest.fixture
def connection(sqlite_client: SyncClient) -> Iterator[sqlite3.Connection]:
    theirs = users_connection(sqlite_client)
    yield theirs
    theirs.close()


@pytest.fixture
def write(connection: sqlite3.Connection) -> Write:
    def write(word: str) -> None:
        connection.execute("INSERT INTO effects VALUES (?)", (word,))

    return write


@pytest.fixture
def always_open(sqlite_client: SyncClient) -> Iterator[sqlite3.Connection]:
    """A connection with `autocommit=False`, where the end of a transaction begins the next."""
    users_connection(sqlite_client).close()
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    theirs = connect(sqlite_client.backend.path, check_same_thread=False, autocommit=False)
    yield theirs
    theirs.close()
