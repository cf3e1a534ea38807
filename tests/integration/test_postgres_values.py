"""Arrays as they are packed here and as the server reads them, both ways."""

from __future__ import annotations

import os
import time
from typing import Any

import psycopg
import pytest
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.string import TextBinaryLoader

from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres.pool import Pool
from onceward.stores.postgres.values import MAX_BIGINT
from tests.servers.postgres import URL

SOME: dict[str, tuple[str, list[Any]]] = {
    "nothing": ("bytea", []),
    "bytes": ("bytea", [b"ab", b"", b"\0\xff", b"x" * 70_000]),
    "bytes of one length": ("bytea", [b"ab", b"\0\0", b"zz"]),
    "bytes that are missing": ("bytea", [b"ab", None, b""]),
    "texts": ("text", ["a", "", "b c", "{,}\\"]),
    "texts of one length": ("text", ["a", "b"]),
    "no text": ("text", []),
    "texts that are missing": ("text", [None, "a"]),
    "texts beyond ASCII": ("text", ["a", "ä\u20ac", "\U0001f600"]),
    "what no text of the server holds": ("text", ["a\0b", "\ufdd0", "\ufdd00", "plain"]),
    "numbers": ("bigint", [0, -1, 2**63 - 1]),
    "one number": ("bigint", [7]),
    "numbers that are missing": ("bigint", [None, 1]),
    "all numbers missing": ("bigint", [None, None]),
    "one number again and again": ("bigint", [7, 7, 7]),
    "one text again and again": ("text", ["\0ä", "\0ä"]),
    "the same bytes again and again": ("bytea", [b"ab", b"ab"]),
    "flags": ("boolean", [True, False, None]),
}


def there_and_back(kind: str, values: list[Any]) -> list[Any]:
    async def exchange() -> list[Any]:
        deadline = time.monotonic() + 30
        pool = Pool(os.environ[URL], "the server", 1, prepares=None)
        pool.open()
        try:
            connection = await pool.acquire(ThreadRuntime(), deadline)
            rows = await connection.query(f"SELECT one FROM unnest($1::{kind}[]) AS one", deadline, values)
            pool.release(connection)
        finally:
            pool.close()
        return [value for (value,) in rows]

    return run(exchange())


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("what", SOME)
def test_an_array_comes_back_as_it_was(what: str) -> None:
    kind, values = SOME[what]
    assert there_and_back(kind, values) == values


@pytest.mark.usefixtures("postgres")
def test_a_time_beyond_the_largest_is_as_good_as_never() -> None:
    assert there_and_back("bigint", [1, 2**70]) == [1, MAX_BIGINT]


class Shouting(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data).decode().upper()


@pytest.mark.usefixtures("postgres")
def test_a_loader_that_the_user_registered_with_psycopg_does_not_affect_our_rows() -> None:
    psycopg.adapters.register_loader("text", Shouting)
    try:
        assert there_and_back("text", ["quiet", "still"]) == ["quiet", "still"]
    finally:
        psycopg.adapters.register_loader("text", TextBinaryLoader)
