"""The bare statements on SQLite: those that Onceward's store needs, on its own table, with only the driver.

Everything around them is omitted: keys, decisions, leases, results, locks. So the ratio is what Onceward adds to the
database. `bare.py` has the minimum that one would write by hand instead, on a table of six columns.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from pathlib import Path

from bench.bare import SETTINGS, Busy, Work, tokens
from onceward.stores.sqlite import schema
from onceward.stores.sqlite.rows import SELECT_COMPLETED

LEASE = 600_000_000  # µs

CLAIM = (
    "INSERT INTO onceward_records (id, scope, key, state, token, nonce, updated_at, lease_until, owner)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
)
COMPLETE = (
    "UPDATE onceward_records SET state = NULL, updated_at = ?, lease_until = NULL, result = ?, digest = ?"
    " WHERE id = ? AND token IS ? AND nonce IS ? AND state IS 'PENDING' AND updated_at IS ?"
    " AND lease_until IS ? AND released IS NULL AND note IS NULL"
    " AND coalesce(min_reader, 1) <= 1"
)
NONCE = bytes(16)


def connect(path: Path, durability: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for setting in (*SETTINGS, f"PRAGMA synchronous = {durability}"):
        connection.execute(setting).fetchall()
    schema.prepare(connection.cursor(), path.name, migrate=True)
    return connection


def on(cursor: sqlite3.Cursor, work: Work) -> Work:
    """Select, claim, complete: each with an auto-committed statement, on one cursor that keeps them prepared."""

    def call(key: str) -> str:
        id = hashlib.sha256(key.encode()).digest()
        found = cursor.execute(SELECT_COMPLETED, (id,)).fetchall()
        if found and found[0][-1] is None:  # NULL: COMPLETED
            return str(found[0][5].decode())
        token, now = next(tokens), time.time_ns() // 1000
        row = (id, "bench", key, "PENDING", token, NONCE, now, now + LEASE, "me")
        if cursor.execute(CLAIM, row).rowcount != 1:
            raise Busy(key)
        result = work(key)
        done = (now, result.encode(), NONCE, id, token, NONCE, now, now + LEASE)
        if cursor.execute(COMPLETE, done).rowcount != 1:
            raise Busy(key)
        return result

    return call
