"""A SQLite store that has joined a user's connection to the same file, sync and async."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, Complete, Verdict
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.joined import SQLiteJoined
from tests.integration.sqlite_workers import opened, request

T = TypeVar("T")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "once.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    opened_here = opened(str(path))
    yield opened_here
    run(opened_here.close())


@pytest.fixture
def connection(store: SQLiteStore, path: Path) -> Iterator[sqlite3.Connection]:
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE effects (word TEXT)")
    yield theirs
    theirs.close()


@pytest.fixture(params=["threads", "loop"])
def joined(request: pytest.FixtureRequest, store: SQLiteStore, connection: sqlite3.Connection) -> SQLiteJoined:
    return store.join(connection, ThreadRuntime() if request.param == "threads" else AsyncioRuntime())


def call(joined: SQLiteJoined, work: Coroutine[Any, Any, T]) -> T:
    return run(work) if isinstance(joined._runtime, ThreadRuntime) else asyncio.run(work)


def ask(joined: SQLiteJoined, word: str = "order 7") -> Answer:
    return call(joined, joined.claim([request(word, None)], timeout=5))[0]


def complete(joined: SQLiteJoined, mine: Record, result: bytes = b"r") -> Verdict:
    done = Complete(mine.id, mine.token, mine.nonce, result=result, digest=result)
    return call(joined, joined.settle([done], timeout=5))[0].verdict


def effects(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    found = [row[0] for row in connection.execute("SELECT word FROM effects")]
    connection.close()
    return found


def do(joined: SQLiteJoined, connection: sqlite3.Connection, word: str = "order 7") -> Answer:
    """Claim, write the effect and complete, all in the open transaction."""
    answer = ask(joined, word)
    if answer.verdict is Verdict.ACQUIRED:
        assert answer.record is not None
        connection.execute("INSERT INTO effects VALUES (?)", (word,))
        assert complete(joined, answer.record) is Verdict.OK
    return answer
