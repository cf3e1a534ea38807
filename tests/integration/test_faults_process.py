"""Processes that stop, whose event loop is blocked, or that cannot start a thread."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once
from onceward.errors import ClaimError, ConfigurationError, Stopping
from onceward.protocol.requests import Verdict
from onceward.stores.sqlite import SQLiteStore
from tests.cli.calls import until
from tests.clients import Backend, SyncClient
from tests.heartbeats import heartbeat_threads
from tests.integration.processes import work
from tests.moved_time import TOO_LONG

# ── F33: a blocked event loop ──


@pytest.mark.fault("F33")
@pytest.mark.rival(8)
async def test_an_event_loop_that_is_blocked_for_longer_than_the_lease_keeps_its_claim(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    async with AsyncOnce(SQLiteStore(path), lease="2s") as once:
        seen: list[str] = []
        reported: list[str] = []
        once.subscribe(lambda event: reported.append(event.name))

        def intruder() -> None:
            with Once(SQLiteStore(path), on_running="raise") as other:

                def renewed_for_longer_than_the_lease() -> bool:
                    seen.append(other.outcome("order 7", work).kind)
                    return reported.count("renewed") > 5

                until(renewed_for_longer_than_the_lease)

        async def blocking() -> str:
            thread = threading.Thread(target=intruder)
            thread.start()
            thread.join()  # blocks the loop: that is the point
            return "done"

        blocking.__module__, blocking.__qualname__ = work.__module__, work.__qualname__
        outcome = await once.outcome("order 7", blocking)
        assert set(seen) == {"running"}
        assert (outcome.kind, outcome.attempt) == ("executed", 1)


# ── F37: stopping ──

STOPPED = """
    import signal, sys, threading, time
    from onceward import Once
    from onceward.errors import Stopping

    once = Once(sys.argv[1], lease="1s")
    signal.signal(signal.SIGTERM, lambda *_: once.stop())

    def slow() -> str:
        print("working", flush=True)
        time.sleep(1.5)
        return "finished"

    def refused() -> None:
        print("must not run")

    print(once.outcome("running", slow).kind, flush=True)
    try:
        once.run("next", refused)
    except Stopping:
        print("stopping", flush=True)
    once.close()
    print([one.name for one in threading.enumerate() if "onceward" in one.name], flush=True)
"""


@pytest.mark.fault("F37")
def test_sigterm_stops_claiming_finishes_what_runs_and_joins_the_heartbeat(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'once.db'}"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STOPPED), url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "working\n"
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=TOO_LONG)
    assert out.splitlines() == ["executed", "stopping", "[]"], err
    assert child.returncode == 0
    assert err == ""


@pytest.mark.fault("F37")
def test_a_stopped_client_claims_nothing_but_lets_running_work_record_its_result(client: SyncClient) -> None:
    with client.claim("order 7") as claim:
        client.once.stop()
        with pytest.raises(Stopping):
            client.run("order 8", work)
        claim.complete("done")
    assert len(client.events_named("completed")) == 1


@pytest.mark.fault("F37")
def test_a_caller_that_waits_for_another_worker_stops_waiting(client: SyncClient) -> None:
    client.silent_owner("order 7")
    waiting = client.another(wait="1h")
    with waiting.calls_counted("claim") as claims:
        answer = waiting.start(lambda: waiting.claim("order 7").__enter__())
        until(lambda: len(claims) > 1)  # it waits: it has claimed again
        waiting.once.stop()
        with pytest.raises(Stopping):
            answer.result(TOO_LONG)


@pytest.mark.finding("N69")
@pytest.mark.parametrize("waits", [False, True])
def test_a_claim_that_is_granted_after_the_stop_is_released_and_its_work_does_not_begin(
    client: SyncClient, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = client.another(wait="1h")
    if waits:
        client.silent_owner("order 7")
    kind: Any = type(worker.once.store)
    claim = kind.claim

    async def claim_and_stop(store: Any, *args: Any, **kwargs: Any) -> Any:
        answers = await claim(store, *args, **kwargs)
        if answers[0].verdict is Verdict.ACQUIRED:
            worker.once.stop()  # while the answer is on its way
        else:
            client.clock.advance("1h")  # the owner has crashed, and its lease expires
        return answers

    ran: list[int] = []
    monkeypatch.setattr(kind, "claim", claim_and_stop)
    with pytest.raises(Stopping):
        worker.run("order 7", ran.append, 1)
    assert (ran, worker.leases()) == ([], 0)
    monkeypatch.undo()
    client.run("order 7", ran.append, 1)
    assert ran == [1]


@pytest.mark.fault("F37")
def test_closing_waits_for_running_work_and_then_joins_the_heartbeat(backend: Backend) -> None:
    before = heartbeat_threads()
    once = Once(backend.open(), lease="300ms")
    begun = threading.Event()
    kinds: list[str] = []

    def slow() -> str:
        begun.set()
        time.sleep(0.4)
        return "done"

    thread = threading.Thread(target=lambda: kinds.append(once.outcome("order 7", slow).kind))
    thread.start()
    assert begun.wait(TOO_LONG)
    [heartbeat] = heartbeat_threads() - before
    once.close()
    assert not heartbeat.is_alive()
    thread.join(TOO_LONG)
    assert kinds == ["executed"]


# ── F38: no thread ──


@pytest.mark.fault("F38")
def test_without_a_thread_to_renew_it_the_claim_is_given_back_before_the_effect(
    client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.read("order 7") is None  # connected; the event loop's helpers are started
    start = threading.Thread.start

    def cannot_start(thread: threading.Thread) -> None:
        if thread.name == "onceward-heartbeat":
            raise RuntimeError("can't start new thread")
        start(thread)

    calls: list[int] = []

    def counted() -> str:
        calls.append(1)
        return "done"

    monkeypatch.setattr(threading.Thread, "start", cannot_start)
    with pytest.raises(ClaimError, match="can't start"):
        client.run("order 7", counted)
    with pytest.raises(ClaimError, match="can't start"), client.claim("order 8"):
        calls.append(2)
    outcomes = client.start(lambda: client.map(counted_item, [1, 2], key=lambda item: f"item {item}"))
    with pytest.raises(ClaimError, match="can't start"):
        outcomes.result(TOO_LONG)
    assert calls == []
    assert not client.heartbeat.held()
    monkeypatch.setattr(threading.Thread, "start", start)
    outcome = client.another(on_running="raise").outcome("order 7", counted)
    assert (outcome.kind, outcome.attempt) == ("executed", 1)
    items = client.another(on_running="raise").map(counted_item, [1, 2], key=lambda item: f"item {item}")
    assert [one.kind for one in items] == ["executed", "executed"], "each key of the batch was given back"


def counted_item(item: int) -> int:
    return item


# ── F39: batches in different orders ──


@pytest.mark.fault("F39")
def test_batches_in_opposite_orders_neither_deadlock_nor_run_anything_twice(client: SyncClient) -> None:
    runs: list[int] = []

    def counted(item: int) -> int:
        runs.append(item)
        time.sleep(0.001)
        return item * item

    items = list(range(40))
    workers = [client, client.another(), client.another(), client.another()]
    orders = [items, items[::-1], items[20:] + items[:20], items[::2] + items[1::2]]
    answers = [worker.start(worker.map, counted, order) for worker, order in zip(workers, orders, strict=True)]
    for answer, order in zip(answers, orders, strict=True):
        assert [outcome.unwrap() for outcome in answer.result(TOO_LONG)] == [item * item for item in order]
    assert sorted(runs) == items


def test_a_client_that_was_closed_says_so(backend: Backend) -> None:
    once = Once(backend.open())
    once.close()
    with pytest.raises((Stopping, ConfigurationError)):
        once.run("order 7", work)
