"""A worker that the tests kill or pause: `python -m tests.chaos.victim scenario mode path …`.

It prints its progress line by line, and waits for a line of input where a scenario pauses.
"""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onceward import AsyncOnce, Once, applied, current_async_claim, current_claim, not_applied, verify
from onceward.stores.sqlite import SQLiteStore

HERE = "tests.chaos.victim"
"""The name of this module also when it runs as a program, so that its keys are the same in all processes."""

LEASE = "1500ms"
TABLE = "CREATE TABLE IF NOT EXISTS ledger (item TEXT NOT NULL, attempt TEXT NOT NULL)"


def say(*words: object) -> None:
    print(*words, flush=True)


def pause() -> None:
    sys.stdin.readline()


def ledger_of(path: str) -> Path:
    return Path(path).with_name("ledger.txt")


def entries(path: str) -> list[str]:
    """Return the effects outside of the database."""
    ledger = ledger_of(path)
    return ledger.read_text().splitlines() if ledger.exists() else []


class Hanging(SQLiteStore):
    """Hangs after the effect, before it is recorded."""

    async def settle(self, *_: Any, **__: Any) -> Any:
        say("completing")
        time.sleep(60)  # noqa: ASYNC251 (the process is killed here)


def send(path: str) -> str:
    """Make an effect that no transaction can undo."""
    with ledger_of(path).open("a") as ledger:
        ledger.write("sent\n")
    return "receipt"


def stop_before_sending(path: str) -> str:
    say("about to send")
    pause()
    return send(path)


def find(path: str) -> Any:
    return applied("receipt") if entries(path) else not_applied


def policy(word: str) -> Any:
    return verify(find) if word == "verify" else word


def call(mode: str, once: Any, key: str, fn: Callable[..., Any], *args: Any) -> Any:
    """Return the outcome, by the sync or the async client."""
    if mode == "blocking":
        return once.outcome(key, fn, *args)

    @functools.wraps(fn)
    async def awaited(*args: Any) -> Any:
        return await asyncio.to_thread(fn, *args)

    return asyncio.run(once.outcome(key, awaited, *args))


def client(mode: str, store: SQLiteStore, **settings: Any) -> Any:
    return (Once if mode == "blocking" else AsyncOnce)(store, app="chaos", lease=LEASE, **settings)


# ── scenarios ──


def die_completing(mode: str, path: str, after_crash: str) -> None:
    call(mode, client(mode, Hanging(path), after_crash=policy(after_crash)), "order 7", send, path)


def die_before(mode: str, path: str, after_crash: str) -> None:
    once = client(mode, SQLiteStore(path), after_crash=policy(after_crash))
    stop_before_sending.__qualname__ = send.__qualname__
    call(mode, once, "order 7", stop_before_sending, path)


def pause_in_work(mode: str, path: str, fenced: str) -> None:
    """Print the outcome, and whether a resource that checks tokens accepted the write."""
    once = client(mode, SQLiteStore(path))

    def work() -> str:
        claim = current_claim() if mode == "blocking" else current_async_claim()
        say("working", claim.token)
        pause()
        if fenced == "fenced":
            say("written", write_fenced(path, claim.token, "victim"))
        return "victim's"

    work.__module__, work.__qualname__ = HERE, "work"
    outcome = call(mode, once, "order 7", work)
    say(outcome.kind, getattr(outcome, "lost", False))


def write_fenced(path: str, token: int, writer: str) -> int:
    """Write to an external resource that remembers the highest token it has seen."""
    resource = sqlite3.connect(Path(path).with_name("resource.db"), isolation_level=None)
    resource.execute("CREATE TABLE IF NOT EXISTS fenced (id INTEGER PRIMARY KEY, token INTEGER, writer TEXT)")
    resource.execute("INSERT OR IGNORE INTO fenced VALUES (1, 0, '')")
    changed = resource.execute("UPDATE fenced SET token = ?1, writer = ?2 WHERE token <= ?1", (token, writer)).rowcount
    resource.close()
    return changed


def insert(connection: sqlite3.Connection, item: str) -> str:
    connection.execute("INSERT INTO ledger VALUES (?, '')", (item,))
    return item


def joined(mode: str, path: str, where: str) -> None:
    """Claim, effect and result in one transaction; stop before or after its commit."""
    connection = sqlite3.connect(path)
    once = Once(SQLiteStore(path), app="chaos", lease=LEASE, fingerprint="none")
    assert mode == "blocking"
    with once.within(connection) as transaction:
        transaction.run("order 7", insert, connection, "order 7")
    if where == "before":
        say("written")
        pause()
    connection.commit()
    say("committed")
    pause()


def completed_in(mode: str, path: str, where: str) -> None:
    """A leased claim, completed inside the transaction; stop before or after its commit."""
    connection = sqlite3.connect(path)
    once = Once(SQLiteStore(path), app="chaos", lease=LEASE)
    assert mode == "blocking"
    with once.claim("order 7") as claim:
        insert(connection, "order 7")
        claim.complete_in(connection, "order 7")
        if where == "before":
            say("written")
            pause()
        connection.commit()
        say("committed")
        pause()


def hold_the_lock(mode: str, path: str, _: str) -> None:
    """Hold an open write transaction."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    say("locked", mode)
    pause()
    connection.execute("COMMIT")


def stream(mode: str, path: str, count: str) -> None:
    """Process many items, each in its own transaction, joined and claimed in turn."""
    assert mode == "blocking"
    connection = sqlite3.connect(path, timeout=10)
    once = Once(SQLiteStore(path), app="chaos", lease="300ms", wait="60s", fingerprint="none")
    say("ready")
    for number in range(int(count)):
        item = f"item {number}"
        if number % 2:
            with once.within(connection) as transaction:
                transaction.run(item, insert, connection, item)
            connection.commit()
        else:
            complete_one(once, connection, item)
        say(number)
    once.close()
    say("finished")


def complete_one(once: Once, connection: sqlite3.Connection, item: str) -> None:
    entry = once.read(item)
    if entry is not None and entry.stored:
        return
    with once.claim(item) as claim:
        insert(connection, item)
        claim.complete_in(connection, item)
        connection.commit()


SCENARIOS = {
    one.__name__: one
    for one in (die_completing, die_before, pause_in_work, joined, completed_in, hold_the_lock, stream)
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](*sys.argv[2:])
