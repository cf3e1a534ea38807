"""What other processes do in the tests of the SQLite store: `python -m tests.integration.sqlite_workers verb …`.

Each verb prints one line of JSON for the test to check.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from onceward.errors import OncewardError
from onceward.protocol.record import Record
from onceward.protocol.requests import ClaimRequest, Complete, Renewal, Verdict
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite import connection as link
from tests.raw_sqlite import busy, write_on

LEASE = 60_000_000


def ident(word: object) -> bytes:
    return sha256(str(word).encode()).digest()


def request(word: object, lease: int | None = LEASE) -> ClaimRequest:
    return ClaimRequest(id=ident(word), scope="s", key=str(word), nonce=os.urandom(16), lease=lease)


def opened(path: str) -> SQLiteStore:
    store = SQLiteStore(path, synchronous="NORMAL")
    run(store.open(ThreadRuntime()))
    return store


def claim(store: SQLiteStore, word: object, lease: int = LEASE) -> Record | None:
    answer = run(store.claim([request(word, lease)], timeout=20))[0]
    return answer.record if answer.verdict is Verdict.ACQUIRED else None


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def at_the_same_time(start: str) -> None:
    """Wait until the test writes a file, which it does when every worker is ready."""
    say(ready=True)
    while not Path(start).exists():
        time.sleep(0.001)


def open_new(path: str, start: str) -> None:
    at_the_same_time(start)
    store = opened(path)
    say(acquired=claim(store, os.getpid()) is not None)
    run(store.close())


def claim_all(path: str, start: str, number: str, order: str, size: str) -> None:
    """Claim 0 … number - 1 in batches, up or down; print which were acquired."""
    store = opened(path)
    at_the_same_time(start)
    words = list(range(int(number)))[:: 1 if order == "up" else -1]
    mine = []
    for begin in range(0, len(words), int(size)):
        batch = words[begin : begin + int(size)]
        answers = run(store.claim([request(word) for word in batch], timeout=60))
        mine += [word for word, answer in zip(batch, answers, strict=True) if answer.verdict is Verdict.ACQUIRED]
        renewals = [Renewal(a.record.id, a.record.token, a.record.nonce, LEASE) for a in answers if a.record]
        run(store.renew(renewals, timeout=60))
    say(mine=mine)
    run(store.close())


def die_in_a_transaction(path: str) -> None:
    """Claim and write in the user's own transaction, then be killed before the commit."""
    store = opened(path)
    connection = sqlite3.connect(path)
    joined = store.join(connection, ThreadRuntime())
    answer = run(joined.claim([request("order 7", None)], timeout=5))[0]
    assert answer.record is not None
    connection.execute("INSERT INTO effects VALUES ('order 7')")
    record = answer.record
    run(joined.settle([Complete(record.id, record.token, record.nonce, result=b"r")], timeout=5))
    say(verdict=answer.verdict)
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_a_write(path: str) -> None:
    """Be killed between the write and the commit of the store's own transaction."""
    store = opened(path)
    claim(store, "before")

    def killed(cursor: sqlite3.Cursor) -> None:
        cursor.execute("UPDATE onceward_records SET state = NULL")
        os.kill(os.getpid(), signal.SIGKILL)

    write_on(store, killed)


def late_owner(path: str, lease: str) -> None:
    """Claim, stop as if the machine were suspended, and complete after it resumes."""
    store = opened(path)
    mine = claim(store, "order 7", int(lease))
    assert mine is not None
    say(token=mine.token)
    os.kill(os.getpid(), signal.SIGSTOP)
    answer = run(store.settle([Complete(mine.id, mine.token, mine.nonce, result=b"late")], timeout=5))[0]
    say(verdict=answer.verdict)
    run(store.close())


def in_a_child(work: Callable[[], Any]) -> Callable[[], Any]:
    """Fork and do the work in the child. Return a function that waits for the result, or the error's name."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except OncewardError as error:
            answer = type(error).__name__
        os.write(there, json.dumps(answer).encode())
        os._exit(0)
    os.close(there)

    def result() -> Any:
        with os.fdopen(here) as pipe:
            answer = json.loads(pipe.read())
        os.waitpid(child, 0)
        return answer

    return result


def fork_and_close(path: str) -> None:
    """Close in the parent while the child works: no write of the child may be lost."""
    store = opened(path)
    clone = store.clone()
    run(clone.open(ThreadRuntime()))
    woken: list[str] = []
    store.watch(ident("child 1"), lambda: woken.append("woken"))
    claim(store, "parent 1")
    begun, may_go = os.pipe(), os.pipe()

    def child() -> Any:
        before = claim(store, "child 1") is not None
        os.write(begun[1], b"x")
        os.read(may_go[0], 1)
        after = claim(store, "child 2") is not None
        run(store.forget([ident("child 1")], force=True, timeout=5))
        return {"before": before, "after": after, "taken": claim(store, "parent 1") is None, "woken": len(woken)}

    result = in_a_child(child)
    os.read(begun[0], 1)
    also = claim(store, "parent 2") is not None
    run(store.close())
    run(clone.close())
    os.write(may_go[1], b"x")
    say(parent=also, child=result())


def fork_with_a_user_connection(path: str) -> None:
    """Fork with an open user connection, which breaks the child's locks: the child must raise, not lose writes."""
    link.FILE_CHECK_INTERVAL_WRITING = -1.0
    store = opened(path)
    theirs = sqlite3.connect(path)
    theirs.execute("SELECT count(*) FROM onceward_records").fetchall()
    begun, may_go = os.pipe(), os.pipe()

    def child() -> Any:
        claim(store, "child 1")
        os.write(begun[1], b"x")
        os.read(may_go[0], 1)
        return claim(store, "child 2") is not None

    result = in_a_child(child)
    os.read(begun[0], 1)
    theirs.close()
    run(store.close())
    os.write(may_go[1], b"x")
    say(child=result())


def fork_during_a_call(path: str) -> None:
    """Another thread is inside the store when the process forks."""
    link.FORK_TIMEOUT = 0.05
    store = opened(path)
    with busy(store):
        child = in_a_child(lambda: claim(store, "child") is not None)()
    say(child=child, parent=claim(store, "parent") is not None, same=claim(store, "child") is None)
    run(store.close())


def fork_after_a_loop(path: str) -> None:
    """Open the store on an event loop, then fork; the child has its own loop."""
    store = SQLiteStore(path, synchronous="NORMAL")

    async def use(word: str, runtime: AsyncioRuntime) -> bool:
        await store.open(runtime)
        answer = (await store.claim([request(word)], timeout=5))[0]
        return answer.verdict is Verdict.ACQUIRED

    before = AsyncioRuntime()
    parent = asyncio.run(use("parent", before))
    before.close()
    child = in_a_child(
        lambda: [asyncio.run(use("child", AsyncioRuntime())), asyncio.run(use("parent", AsyncioRuntime()))]
    )()
    say(parent=parent, child=child)


def fork_with_memory(_path: str) -> None:
    store = opened(":memory:")
    parent = claim(store, "a") is not None
    say(parent=parent, child=in_a_child(lambda: claim(store, "b") is not None)(), after=claim(store, "c") is not None)


def unpickled(path: str, pickled: str) -> None:
    store: SQLiteStore = pickle.loads(bytes.fromhex(pickled))
    run(store.open(ThreadRuntime()))
    say(same=store.name == SQLiteStore(path).name, taken=claim(store, "a") is None, free=claim(store, "b") is not None)
    run(store.close())


def without_rights(path: str, uid: str) -> None:
    """Open and claim as a user with read permission only."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
    try:
        claim(opened(path), "a")
    except OncewardError as error:
        say(error=type(error).__name__, message=str(error))
        return
    say(error=None)


def with_a_small_file_limit(path: str) -> None:
    """Every write beyond the limit is an I/O error."""
    store = opened(path)
    claim(store, "small")
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    failure = None
    for word in range(1_000):
        try:
            mine = claim(store, word)
            assert mine is not None
            run(store.settle([Complete(mine.id, mine.token, mine.nonce, result=b"x" * 20_000)], timeout=5))
        except OncewardError as error:
            failure = [type(error).__name__, str(error)]
            break
    say(error=failure)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
