"""Helpers for the tests of the SQLite store: sync and async calls, claims, and reading the file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeVar

from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, ClaimRequest, Complete, Validity, Verdict
from onceward.protocol.runtime import Runtime
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore

T = TypeVar("T")
LEASE = 60_000_000
HOUR = 3_600_000_000
DAY = 24 * HOUR


class Mode(Protocol):
    @property
    def runtime(self) -> Runtime: ...

    def __call__(self, call: Coroutine[Any, Any, T]) -> T: ...


class Blocking:
    def __init__(self) -> None:
        self.runtime = ThreadRuntime()

    def __call__(self, call: Coroutine[Any, Any, T]) -> T:
        return run(call)


class OnALoop:
    def __init__(self, runner: asyncio.Runner) -> None:
        self.runtime = AsyncioRuntime()
        self._runner = runner

    def __call__(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)


def ident(word: object) -> bytes:
    return sha256(str(word).encode()).digest()


def request(word: object, nonce: bytes = b"n", **changes: Any) -> ClaimRequest:
    return ClaimRequest(
        id=ident(word), scope="shop", key=str(word), nonce=nonce, lease=changes.pop("lease", LEASE), **changes
    )


def claim(store: SQLiteStore, word: object, nonce: bytes = b"n", **changes: Any) -> Answer:
    return run(store.claim([request(word, nonce, **changes)], timeout=5))[0]


def complete(store: SQLiteStore, record: Record, lasting: int | None = None, result: bytes = b"r") -> Answer:
    settlement = Complete(
        record.id, record.token, record.nonce, result=result, digest=result, validity=Validity(lasting=lasting)
    )
    return run(store.settle([settlement], timeout=5))[0]


def acquire(store: SQLiteStore, word: object, **changes: Any) -> Record:
    answer = claim(store, word, **changes)
    assert answer.verdict is Verdict.ACQUIRED
    assert answer.record is not None
    return answer.record


def look(path: Path, statement: str, *values: Any) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def made(path: Path) -> None:
    store = SQLiteStore(path)
    run(store.open(ThreadRuntime()))
    run(store.close())
