"""Holders of a lock: a task, a thread, a forked child, a client that closes. For one kind of client or store each."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AlreadyRunning,
    AsyncOnce,
    ConfigurationError,
    LeaseLost,
    Once,
    OncewardWarning,
    Replayed,
    Running,
    StoreUnavailable,
)
from onceward.errors import Reentrant
from onceward.protocol.operation_names import LOCK
from onceward.stores import MemoryStore
from onceward.testing.clock import FakeClock
from tests.cli.calls import until
from tests.clients import TOO_LONG, Backend, SyncClient
from tests.heartbeats import refuse_to_sleep
from tests.integration.lock_calls import acquire

pytestmark = pytest.mark.mission("C2")


async def test_a_task_that_holds_a_lost_lock_is_cancelled_if_asked_for(tmp_path: Path) -> None:
    once = AsyncOnce(f"sqlite:///{tmp_path}/a.db")
    entered = asyncio.Event()

    async def work() -> None:
        async with once.lock("sync", lease="1s", on_lost="cancel"):
            entered.set()
            await asyncio.sleep(30)

    task = asyncio.create_task(work())
    await entered.wait()
    await once.forget("sync", name=LOCK, force=True)
    async with once.lock("sync"):
        with pytest.raises(LeaseLost):
            await task
    assert not task.cancelled()
    await once.close()


async def test_a_cancelled_task_releases_its_lock_and_one_that_waits_takes_nothing(tmp_path: Path) -> None:
    async with AsyncOnce(f"sqlite:///{tmp_path}/a.db") as once:
        entered = asyncio.Event()

        async def work() -> None:
            async with once.lock("sync"):
                entered.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await entered.wait()
        waiting = asyncio.create_task(once.lock("sync").acquire())
        await asyncio.sleep(0.05)
        for one in (waiting, task):
            one.cancel()
            with pytest.raises(asyncio.CancelledError):
                await one
        lock = await once.try_lock("sync")
        assert lock is not None
        await lock.release()


async def test_a_task_started_inside_a_block_may_wait_for_the_lock_in_a_context_of_its_own(tmp_path: Path) -> None:
    async with AsyncOnce(f"sqlite:///{tmp_path}/a.db") as once:

        async def later() -> None:
            async with once.lock("sync"):
                pass

        async with once.lock("sync"):
            inside = asyncio.create_task(later())
            separate = asyncio.create_task(later(), context=contextvars.Context())
            with pytest.raises(Reentrant):
                await inside
        await separate


@pytest.mark.fault("F34")
def test_a_fork_does_not_inherit_a_lock(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/a.db")
    lock = once.lock("sync").acquire()
    child = os.fork()
    if child == 0:
        try:
            checks = [_raises_lease_lost(lock.check), once.try_lock("sync") is None, _raises_lease_lost(lock.release)]
        except BaseException:
            checks = [False]
        os._exit(0 if all(checks) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lock.check()
    lock.release()
    once.close()


def _raises_lease_lost(call: Any) -> bool:
    try:
        call()
    except LeaseLost:
        return True
    return False


def test_a_block_is_left_where_it_was_entered_or_by_its_only_holder() -> None:
    once = Once(MemoryStore())
    shared = once.lock("a")
    with pytest.raises(ConfigurationError, match="not entered here"):
        shared.__exit__(None, None, None)
    shared.__enter__()
    thread = threading.Thread(target=shared.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    lock = once.try_lock("a")
    assert lock is not None
    lock.release()
    once.close()


def test_a_close_neither_waits_for_a_lock_of_its_own_thread_nor_is_silent_about_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_to_sleep(monkeypatch)
    once = Once(MemoryStore())
    lock = once.try_lock("sync", lease="5s")
    assert lock is not None
    once.close()
    [warning] = [record for record in caplog.records if "still_held" in record.message]
    assert (warning.levelname, "sync" in warning.message) == ("WARNING", True)
    assert "free when its lease expires" in warning.message


def test_close_logs_what_it_waits_for_and_finishes_when_that_is_released(caplog: pytest.LogCaptureFixture) -> None:
    once = Once(MemoryStore())
    lock = contextvars.Context().run(once.try_lock, "sync")
    assert lock is not None
    closing = threading.Thread(target=once.close, args=(TOO_LONG,))
    closing.start()
    until(lambda: "close waits for it" in caplog.text)
    lock.release()
    closing.join(TOO_LONG)
    assert not closing.is_alive()
    assert "closed anyway" not in caplog.text


def test_two_holders_of_one_lock_object_are_not_mistaken_for_each_other() -> None:
    """If a caller leaves a block that it did not enter, it is unclear which of the two holders is meant."""
    stores = [MemoryStore(), MemoryStore()]
    onces = [Once(store) for store in stores]
    shared = onces[0].lock("a")
    contextvars.Context().run(shared.__enter__)
    shared._engine = onces[1].engine  # two holders at the same time, as in two tenants of one program
    contextvars.Context().run(shared.__enter__)
    with pytest.raises(ConfigurationError, match="not entered here"):
        contextvars.Context().run(shared.__exit__, None, None, None)
    for once in onces:
        once.close(timeout=0)


def test_an_interrupt_while_the_store_is_down_keeps_no_caller_for_the_rest_of_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    client = SyncClient(Backend("memory", tmp_path, clock))
    lock = acquire(client, lease="1h")
    calls: list[int] = []

    async def down(*_: Any, **__: Any) -> Any:
        calls.append(len(calls))
        assert len(calls) < 20, "it retries for the whole lease"
        if len(calls) == 1:
            raise KeyboardInterrupt
        clock.advance("4s")
        raise StoreUnavailable("down")

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(MemoryStore, "settle", down)
        lock.release()
    assert client.leases() == 0
    client.close()


def test_a_warning_about_the_settings_of_a_client_does_not_apply_to_its_locks() -> None:
    with pytest.warns(OncewardWarning, match="retry span"):
        once = Once(MemoryStore(), window="1h", retry_span="3d")
    with once.lock("sync"):
        pass
    once.close()


def test_time_spent_on_a_lock_that_a_clock_set_back_made_look_done_counts_as_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    client = SyncClient(Backend("memory", tmp_path, clock))
    waits: list[int] = []

    async def acquire_slowly(asked: Any) -> Any:
        waits.append(round(asked.job.policy.wait / 1_000_000))
        clock.advance("10s")
        return Replayed(key="sync") if len(waits) < 5 else Running(key="sync")

    monkeypatch.setattr("onceward.locks.flow.claim_one", acquire_slowly)
    with pytest.raises(AlreadyRunning):
        client.once.lock("sync", wait="30s").acquire()
    assert waits == [30, 20, 10, 0, 0]
    client.close()


def test_cycles_of_a_lock_do_not_grow_the_file(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/a.db?synchronous=NORMAL")
    sizes = []
    for _ in range(2):
        for _ in range(200):
            with once.lock("sync"):
                pass
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            rows = connection.execute("SELECT count(*) FROM onceward_records").fetchone()[0]
        assert rows == 1
        sizes.append((tmp_path / "a.db").stat().st_size)
    assert sizes[0] == sizes[1]
    once.close()
