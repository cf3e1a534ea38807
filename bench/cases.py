"""What is compared: Onceward, and the least that one could write by hand against the same storage.

The bare versions claim and complete and nothing else: no lease, no token, no fingerprint, no types. They are a floor,
not an alternative.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bench.paired import Block
from onceward import MemoryStore, Once, open_store
from onceward.ports import Store

KNOWN = 200
"""Keys that are done already in the replay cases."""

DURABILITY = ("FULL", "NORMAL")

_CREATE = "CREATE TABLE done (key TEXT PRIMARY KEY, state TEXT NOT NULL, result TEXT) WITHOUT ROWID"
_CLAIM = "INSERT INTO done (key, state) VALUES (?, 'PENDING') ON CONFLICT DO NOTHING"
_COMPLETE = "UPDATE done SET state = 'COMPLETED', result = ? WHERE key = ?"
_READ = "SELECT state, result FROM done WHERE key = ?"

Bare = Callable[[str], str]


class Case(NamedTuple):
    """Two blocks that do the same, as far as the bare one can."""

    name: str
    ours: Block
    bare: Block


def work(key: str) -> str:
    return key


def cases(folder: Path, only: str = "") -> Iterator[Case]:
    """The cases whose name contains `only`; each with its storage open for as long as the caller looks at it."""
    if any(only in name for name in _names("memory")):
        yield from _both("memory", MemoryStore(), bare_memory(), only)
    for durability in DURABILITY:
        if not any(only in name for name in _names(f"sqlite {durability}")):
            continue
        store = open_store(f"sqlite:///{folder}/ours-{durability}.db?synchronous={durability}")
        with closing(sqlite3.connect(folder / f"bare-{durability}.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute(f"PRAGMA synchronous = {durability}")
            yield from _both(f"sqlite {durability}", store, bare_sqlite(connection), only)


def _names(storage: str) -> tuple[str, str]:
    return f"{storage}, fresh", f"{storage}, replay"


def _both(storage: str, store: Store, bare: Bare, only: str) -> Iterator[Case]:
    with Once(store, window="forever") as once:
        ours = once(key="{key}", name="bench")(work)
        for name, block in zip(_names(storage), (_fresh, _replay), strict=True):
            if only in name:
                yield Case(name, block(ours), block(bare))


def _fresh(call: Callable[[str], str]) -> Block:
    numbers = count()

    def block(times: int) -> None:
        for number, _ in zip(numbers, range(times), strict=False):
            call(f"fresh:{number}")

    return block


def _replay(call: Callable[[str], str]) -> Block:
    keys = [f"known:{number}" for number in range(KNOWN)]
    for key in keys:
        call(key)

    def block(times: int) -> None:
        for number in range(times):
            call(keys[number % KNOWN])

    return block


def bare_memory() -> Bare:
    lock = threading.Lock()
    done: dict[str, str | None] = {}

    def call(key: str) -> str:
        with lock:
            result = done.get(key)
            if result is not None:
                return result
            done[key] = None
        result = work(key)
        with lock:
            done[key] = result
        return result

    return call


def bare_sqlite(connection: sqlite3.Connection) -> Bare:
    cursor = connection.cursor()
    cursor.execute(_CREATE)

    def call(key: str) -> str:
        found = cursor.execute(_READ, (key,)).fetchone()
        if found is not None and found[0] == "COMPLETED":
            return str(found[1])
        cursor.execute(_CLAIM, (key,))
        result = work(key)
        cursor.execute(_COMPLETE, (result, key))
        return result

    return call
