"""The bare statements on PostgreSQL: those that Onceward's store needs, on its own table, with only the driver.

Everything around them is omitted: keys, decisions, leases, results, lost replies. So the ratio is what Onceward adds to
the database.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import asyncpg
import psycopg

from bench.bare import Busy, Work
from onceward.stores.postgres.statements import NOW

Select = Literal["never", "first", "second"]
"""When to SELECT the record: never, before the INSERT, or (as most people write it) after the INSERT had a conflict."""

LEASE = 600_000_000  # µs
NONCE = bytes(16)

_CLAIM = """
INSERT INTO "{schema}".onceward_records (
    id, scope, key, state, token, nonce, updated_at, lease_until, owner
) SELECT {id}, 'bench', {key}, 'PENDING', now, {nonce}, now, now + {lease}, 'me'
FROM (SELECT {now} AS now) AS clock ON CONFLICT (id) DO NOTHING RETURNING token
"""
_COMPLETE = """
UPDATE "{schema}".onceward_records SET state = NULL, updated_at = {now}, lease_until = NULL, result = {result},
    digest = {digest} WHERE id = {id} AND token = {token} AND nonce = {nonce} AND state = 'PENDING' RETURNING token
"""
_SELECT = """
SELECT token, attempt, fingerprint, result, stored, valid_until, slide, owner, min_reader, {now}
FROM "{schema}".onceward_records WHERE id = {id} AND state IS NULL
"""


class Texts:
    """The statements with the parameter style of the driver: %b for psycopg, $1 for asyncpg."""

    def __init__(self, schema: str, *, numbered: bool) -> None:
        def text(template: str, *names: str) -> str:
            placeholders = {name: f"${n}" if numbered else "%b" for n, name in enumerate(names, 1)}
            return template.format(schema=schema, now=NOW, **placeholders)

        self.claim = text(_CLAIM, "id", "key", "nonce", "lease")
        self.complete = text(_COMPLETE, "result", "digest", "id", "token", "nonce")
        self.select = text(_SELECT, "id")


def by_psycopg(cursor: psycopg.Cursor[Any], texts: Texts, work: Work, *, select: bool) -> Work:
    def call(key: str) -> str:
        id = hashlib.sha256(key.encode()).digest()
        if select:
            found = cursor.execute(texts.select, (id,), prepare=True, binary=True).fetchone()
            if found is not None:
                return str(found[3].decode())
        inserted = cursor.execute(texts.claim, (id, key, NONCE, LEASE), prepare=True, binary=True).fetchone()
        if inserted is None:
            raise Busy(key)
        result = work(key)
        values = (result.encode(), NONCE, id, inserted[0], NONCE)
        if cursor.execute(texts.complete, values, prepare=True, binary=True).fetchone() is None:
            raise Busy(key)
        return result

    return call


@contextmanager
def connection_per_thread(url: str, schema: str, work: Work, *, select: bool) -> Iterator[Work]:
    """Use one connection per thread."""
    own = threading.local()
    connections: list[psycopg.Connection[Any]] = []
    texts = Texts(schema, numbered=False)

    def call(key: str) -> str:
        do: Work | None = getattr(own, "call", None)
        if do is None:
            connections.append(psycopg.connect(url, autocommit=True))
            do = own.call = by_psycopg(connections[-1].cursor(), texts, work, select=select)
        return do(key)

    try:
        yield call
    finally:
        for connection in connections:
            connection.close()


async def by_asyncpg(
    url: str, schema: str, work: Work, connections: int, *, select: Select
) -> tuple[Callable[[str], Awaitable[str]], Callable[[], Coroutine[Any, Any, None]]]:
    """Return the call, for this many concurrent tasks and connections, and a function that closes everything."""
    texts = Texts(schema, numbered=True)
    pool = await asyncpg.create_pool(url, min_size=connections, max_size=connections)
    free: asyncio.Queue[Any] = asyncio.Queue()
    for _ in range(connections):
        free.put_nowait(await pool.acquire())

    async def call(key: str) -> str:
        connection = await free.get()
        try:
            id = hashlib.sha256(key.encode()).digest()
            if select == "first":
                found = await connection.fetchrow(texts.select, id)
                if found is not None:
                    return str(found[3].decode())
            token = await connection.fetchval(texts.claim, id, key, NONCE, LEASE)
            if token is None:
                found = await connection.fetchrow(texts.select, id) if select == "second" else None
                if found is None:
                    raise Busy(key)
                return str(found[3].decode())
            result = work(key)
            if await connection.fetchval(texts.complete, result.encode(), NONCE, id, token, NONCE) is None:
                raise Busy(key)
            return result
        finally:
            free.put_nowait(connection)

    async def end() -> None:
        while not free.empty():
            await pool.release(free.get_nowait())
        await pool.close()

    return call, end
