"""The history of a key: what operators see of earlier attempts, what it costs, and when it is deleted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError, LeaseLost, Once, PayloadMismatch, not_applied
from onceward.administration import Admin, run
from onceward.engine.history import MAX_PENDING
from onceward.protocol.history import MAX_EVENTS, HistoryEvent
from onceward.protocol.record import Record, RecordState
from onceward.runtime import background
from onceward.stores import MemoryStore
from onceward.testing import FakeClock
from tests.administration.shop import admin_of, fail, park
from tests.clients import Backend, Mode, SyncClient, make_backend
from tests.integration.processes import in_a_forked_child, work
from tests.servers.postgres import URL, schema_of
from tests.servers.redis import shared

EVENTS = int(os.environ.get("ONCEWARD_HISTORY_EVENTS", "100000"))
"""How many events one process collects in the test of the limits; `make soak` collects a million."""

SECRET = "4711-SECRET"


@pytest.fixture(
    params=["memory", "sqlite", "postgres", "valkey", *os.environ.get("ONCEWARD_TEST_BACKENDS", "").split()]
)
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    """Each store; `make soak` adds Firestore, whose emulator is slow."""
    return make_backend(request, tmp_path, clock)


@pytest.fixture(params=["blocking"] if "ONCEWARD_TEST_BACKENDS" not in os.environ else ["blocking", "async"])
def mode(request: pytest.FixtureRequest) -> Mode:
    chosen: Mode = request.param
    return chosen


def url_of(backend: Backend) -> str:
    if backend.kind == "postgres":
        return f"{os.environ[URL]}?migrate=1&schema={schema_of(backend.path.parent)}"
    if backend.kind == "valkey":
        return f"{shared().url()}&prefix=clients/{backend.path.parent.name}"
    return f"sqlite:///{backend.path}"


def write(client: SyncClient) -> None:
    assert client.once.background.write()


def stored(client: SyncClient, key: str) -> list[HistoryEvent]:
    client.read("any")  # opens the store
    found: list[HistoryEvent] = client.drive(
        client.once.store.history.read_history(client.once.key(key).id, limit=MAX_EVENTS, timeout=5)
    )
    return found


def timeline(client: SyncClient, key: str) -> list[tuple[str, str, str]]:
    """Return what the page of the key lists, without what is planned."""
    detail = admin_of(client).key(client.once.key(key).id.hex())
    return [(one.what, one.text, one.who) for one in detail.timeline if not one.planned]


def names(client: SyncClient, key: str) -> list[str]:
    return [what for what, _, _ in timeline(client, key)]


def test_a_failure_its_retry_and_three_replays_are_one_story(client: SyncClient) -> None:
    told = client.another(history="all")
    outcomes: list[Any] = [ValueError("card declined"), "done"]

    def charge() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    with pytest.raises(ValueError, match="declined"):
        told.run("order:1", charge)
    for _ in range(4):
        told.clock.advance("1s")
        assert told.run("order:1", charge) == "done"
    write(told)
    story = timeline(client, "order:1")
    [replayed] = [one for one in story if one[0] == "replayed"]  # its time is local: a fake clock does not fit it
    story.remove(replayed)
    assert [what for what, _, _ in story] == ["claimed", "failed", "claimed", "completed"]
    assert story[1][1] == "failed: ValueError: card declined"
    assert story[2][1] == "claimed again, as attempt 2"
    assert replayed[1].startswith("replayed 3 times, the last time at ")
    told.clock.advance("1s")
    told.run("order:1", charge)
    write(told)
    assert sorted(one.count for one in stored(client, "order:1")) == [1, 1, 1, 1, 4]


def test_by_default_a_call_and_its_replay_write_nothing(client: SyncClient) -> None:
    with client.calls_counted("append_history") as calls:
        for _ in range(3):
            client.run("plain", work)
        with client.claim("long"):
            client.clock.advance("150s")
            client.renew_leases()
        write(client)
        assert not client.once.background.is_running
        assert calls == []
        fail(client, "order:1", ValueError("declined"))
        assert calls == [], "nothing is written during the call"
        write(client)
        assert len(calls) == 2, "the time, and all events"
        write(client)
        assert len(calls) == 2, "there is nothing new"
    assert stored(client, "plain") == []
    assert [one.name for one in stored(client, "order:1")] == ["claimed", "failed"]
    detail = admin_of(client).key(client.once.key("plain").id.hex())
    assert any('history="all"' in gap for gap in detail.gaps)
    assert any("every 60 s" in gap for gap in detail.gaps)


def test_a_client_that_keeps_no_history_says_so(client: SyncClient) -> None:
    silent = client.another(history="off", retry_delay="0s")
    fail(silent, "order:1", ValueError("declined"))
    silent.clock.advance("1s")
    fail(silent, "order:1", ValueError("declined again"))
    write(silent)
    assert names(client, "order:1") == ["created", "claimed", "failed"]
    detail = admin_of(client).key(client.once.key("order:1").id.hex())
    assert detail.gaps[0].startswith("Events of 1 earlier attempt are not shown")


KILLED = """
import os, sys
from onceward import Once

with Once(sys.argv[1], lease="3s").claim("order:1"):
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "valkey"], indirect=True)
def test_a_killed_worker_was_taken_over_from(backend: Backend) -> None:
    """In real time: the lease of the killed worker expires while another delivery waits."""
    url = url_of(backend)
    with Once(url, lease="3s", on_running="wait", wait="60s") as once:
        once.read("any")
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        pid = child.stdout.readline().strip()
        try:
            assert once.using(on_running="raise").outcome("order:1", work).kind == "running"
        finally:
            child.send_signal(signal.SIGKILL)
            child.communicate()
        assert once.run("order:1", work) == "done"
        assert once.background.write()
        detail = run(Admin.of(once).key(once.key("order:1").id.hex()))
        assert detail is not None
        claimed, taken_over, completed = (one for one in detail.timeline if not one.planned)
        assert (claimed.what, taken_over.what, completed.what) == ("claimed", "taken_over", "completed")
        assert claimed.who.endswith(f":{pid}")
        assert f"from {claimed.who}" in taken_over.text
        assert taken_over.who == completed.who == once.engine.owner.name
        assert not any("not shown" in gap for gap in detail.gaps)


def test_a_retry_of_a_failure_is_not_a_takeover(client: SyncClient) -> None:
    """The second worker saw the first one at work. That one failed, and its lease had not expired."""
    other = client.another(on_running="raise")
    for number in (1, 2):
        with pytest.raises(ValueError, match="declined"), client.claim("order:1", retry_delay="0s"):
            assert other.outcome("order:1", work).kind == "running"
            raise ValueError(f"declined {number}")
        client.clock.advance("1s")
    with other.claim("order:1"):
        pass
    write(client)
    write(other)
    story = timeline(client, "order:1")
    assert [what for what, _, _ in story] == ["claimed", "failed", "claimed", "failed", "claimed", "completed"]
    assert story[4][1] == "claimed again, as attempt 3"


def test_a_retry_that_crashed_was_taken_over(client: SyncClient) -> None:
    other = client.another(on_running="raise")
    with pytest.raises(ValueError, match="declined"), client.claim("order:1"):
        raise ValueError("declined")
    client.clock.advance("1h")
    client.silent_owner("order:1")
    assert other.outcome("order:1", work).kind == "running"
    client.clock.advance("1h")
    with other.claim("order:1"):
        pass
    write(client)
    write(other)
    assert names(client, "order:1") == ["claimed", "failed", "claimed", "taken_over", "completed"]


def test_a_takeover_names_only_the_owner_right_before_it(client: SyncClient) -> None:
    """The first owner was seen, the second one was not: the third does not know from whom it took over."""
    first, second, third = client.another(), client.another(history="off"), client.another(on_running="raise")
    first.silent_owner("order:1")
    assert third.outcome("order:1", work).kind == "running"
    client.clock.advance("1h")
    second.silent_owner("order:1")
    client.clock.advance("1h")
    with third.claim("order:1"):
        pass
    write(third)
    [taken_over] = [text for what, text, _ in timeline(client, "order:1") if what == "taken_over"]
    assert taken_over == "taken over from another worker, whose lease had expired, as attempt 3"


def test_a_late_owner_lost_its_key(client: SyncClient) -> None:
    other = client.another()
    late = other.silent_owner("order:1")
    client.clock.advance("1h")
    with client.claim("order:1", on_running="raise"):
        pass
    client.clock.advance("1s")
    with pytest.raises(LeaseLost):
        late.complete("late")
    write(client)
    write(other)
    assert names(client, "order:1") == ["claimed", "taken_over", "completed", "lost"]


def test_parked_work_was_resolved_by_whom_and_why(client: SyncClient) -> None:
    park(client, "wire:1")
    write(client)
    client.clock.advance("1s")
    client.resolve("wire:1", not_applied, why="the bank has no such transfer")
    assert names(client, "wire:1") == ["claimed", "parked", "resolve"]
    client.clock.advance("1s")
    with client.claim("wire:1", after_crash="park"):
        pass
    write(client)
    story = timeline(client, "wire:1")
    assert [what for what, _, _ in story] == ["claimed", "parked", "resolve", "claimed", "completed"]
    assert "TimeoutError: no answer" in story[1][1]
    assert "the bank has no such transfer" in story[2][1]
    assert story[2][2] == client.audit("wire:1")[0].who


def test_a_crash_that_parks_the_record_and_a_conflict_are_problems(client: SyncClient) -> None:
    client.silent_owner("wire:1", after_crash="park")
    client.clock.advance("1h")
    for _ in range(2):
        assert client.outcome("wire:1", work).kind == "parked"
        client.clock.advance("1s")
    with client.claim("order:1", payload={"amount": 5}):
        pass
    for _ in range(3):
        with pytest.raises(PayloadMismatch), client.claim("order:1", payload={"amount": 6}):
            pass
    write(client)
    assert [one.name for one in stored(client, "wire:1")] == ["claimed", "parked"]
    owner = client.read("wire:1").owner
    assert timeline(client, "wire:1")[-1] == (
        "parked",
        f"parked by the next delivery: the lease of {owner} had expired, so the effect may have happened",
        "",
    ), "the worker that crashed did not park it"
    [conflict] = stored(client, "order:1")
    assert (conflict.name, conflict.count, conflict.detail) == ("mismatch", 3, "amount")


def test_renewals_are_one_event(client: SyncClient) -> None:
    told = client.another(history="all")
    with told.claim("order:1"):
        for _ in range(3):
            told.clock.advance("150s")
            told.renew_leases()
        write(told)
    write(told)
    [_, renewed, _] = stored(client, "order:1")
    assert (renewed.name, renewed.count) == ("renewed", 3)
    assert "renewed its lease 3 times" in timeline(client, "order:1")[1][1]


# ── deleting ──


def fail_with_secret(client: SyncClient, key: str = "order:1") -> None:
    fail(client, key, ValueError(SECRET))


@pytest.mark.finding("N28")
def test_an_erased_key_has_no_history_even_if_events_arrive_late(client: SyncClient) -> None:
    late, later = client.another(), client.another()
    fail_with_secret(client)
    write(client)
    for other in (late, later):  # they write after the erasure
        other.clock.advance("1s")
        fail_with_secret(other)
    assert len(stored(client, "order:1")) == 2
    erased = client.wait(client.once.erase(prefix="order:", dry_run=False))
    assert erased.records == 1
    assert stored(client, "order:1") == []
    write(late)
    assert stored(client, "order:1") == []
    client.clock.advance("1s")
    with client.claim("order:1"):
        pass
    write(later)
    assert stored(client, "order:1") == []
    if client.backend.kind == "sqlite":
        client.close()
        assert SECRET.encode() not in client.backend.path.read_bytes()


def test_forget_and_purge_delete_the_history(client: SyncClient) -> None:
    for key in ("order:1", "order:2", "order:3"):
        fail_with_secret(client, key)
    write(client)
    client.forget("order:1")
    assert [len(stored(client, f"order:{n}")) for n in (1, 2, 3)] == [0, 2, 2]
    client.clock.advance("40d")
    fail_with_secret(client, "order:3")
    write(client)
    client.purge()
    assert [len(stored(client, f"order:{n}")) for n in (1, 2, 3)] == [0, 0, 4]


# ── limits ──


@pytest.mark.parametrize("backend", ["memory", "sqlite", "valkey"], indirect=True)
def test_any_number_of_events_stays_bounded(client: SyncClient) -> None:
    told = client.another(history="all", retry_delay="0s")
    told.run("hot", work)
    collector, hot = told.once.engine.history, told.read("hot")
    for _ in range(EVENTS):
        collector.replayed(told.once.key("hot").id, hot)
    for n in range(2 * MAX_PENDING):
        collector.replayed(n.to_bytes(32, "big"), hot)
    assert len(collector.pending) == MAX_PENDING
    write(told)
    assert ("replayed", EVENTS) in [(one.name, one.count) for one in stored(client, "hot")]
    for _ in range(MAX_EVENTS):
        told.clock.advance("1s")
        fail(told, "failing", ValueError("again"))
    write(told)
    kept = stored(client, "failing")
    assert len(kept) == MAX_EVENTS
    assert kept[-1].attempt == MAX_EVENTS, "the oldest are dropped"
    detail = admin_of(client).key(client.once.key("failing").id.hex())
    assert f"Only the latest {MAX_EVENTS} events of a key are kept." in detail.gaps


def test_waiting_events_keep_no_results_and_no_long_names(client: SyncClient) -> None:
    """If the store is down, thousands of events wait in memory."""
    told = client.another(history="all")
    result = random.Random(1).randbytes(200_000).hex()
    tracemalloc.start()
    try:
        for number in range(20):
            with told.claim(f"order:{number}", payload={"a" * 10_000: 1}) as claim:
                claim.complete(result)
            with pytest.raises(PayloadMismatch), told.claim(f"order:{number}", payload={"a" * 10_000: 2}):
                pass
        before = tracemalloc.get_traced_memory()[0]
        waiting = told.once.engine.history.take()
        count = len(waiting)
        del waiting
        freed = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert count == 60
    assert freed < count * 5_000


def test_events_that_could_not_be_written_are_written_later(client: SyncClient) -> None:
    fail(client, "order:1", ValueError("declined"))
    with client.store_trouble("append_history", times=1):
        assert not client.once.background.write()
    assert client.events_named("counting_failed")
    write(client)
    assert [one.name for one in stored(client, "order:1")] == ["claimed", "failed"]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_the_rest_is_written_at_close_and_a_forked_child_writes_nothing_of_its_parent(client: SyncClient) -> None:
    other = client.another()
    fail(other, "order:1", ValueError("declined"))
    in_a_forked_child(lambda: _assert_nothing_collected(other))
    assert stored(client, "order:1") == []
    other.close()
    assert len(stored(client, "order:1")) == 2


def test_a_store_that_does_not_answer_delays_close_once_and_never_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit closes every client a second time. It must not write in the main thread, without a limit."""
    answers, writers = threading.Event(), []

    class Silent(MemoryStore):
        def clone(self) -> Silent:
            writers.append(threading.current_thread())
            assert answers.wait(60)
            return self

    monkeypatch.setattr(background, "TIMEOUT", 0.01)
    once = Once(Silent())
    with pytest.raises(ValueError, match="declined"), once.claim("order:1"):
        raise ValueError("declined")
    once.close()
    timer = threading.Timer(5, answers.set)  # ends a close that waits, so that the test fails instead of hanging
    timer.start()
    once.background.close()
    was_silent = not answers.is_set()
    timer.cancel()
    answers.set()
    assert was_silent
    assert threading.main_thread() not in writers


def _assert_nothing_collected(client: SyncClient) -> None:
    assert not client.once.engine.history.has_events()


def test_an_unknown_mode_and_a_store_without_history_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no history mode 'some'"):
        Once("memory://", history="some")  # type: ignore[arg-type]  # the mistake

    class Plain(MemoryStore):
        history = None  # type: ignore[assignment]  # as a store that keeps none

    with pytest.raises(ConfigurationError, match="cannot keep the history"):
        Once(Plain(), history="all")
    with Once(Plain()) as once:
        assert once.run("key", work) == "done"
        assert once.engine.history is None
        detail = run(Admin.of(once).key(once.key("key").id.hex()))
        assert detail is not None
        assert detail.gaps == ["This store keeps no history of keys: only the current attempt is shown."]
        assert [one.what for one in detail.timeline if not one.planned] == ["claimed", "completed"]


def test_a_record_of_another_cycle_takes_no_late_event() -> None:
    """The rule that every store applies, for each state."""
    from onceward.protocol.history import belongs_to

    record = Record(b"id", "scope", "key", RecordState.COMPLETED, 20, cycle=10)
    assert [belongs_to(HistoryEvent(b"id", token, "failed", 1), record) for token in (9, 10, 20)] == [False, True, True]
    free = Record(b"id", "scope", "key", RecordState.FREE, 20, cycle=10)
    assert [belongs_to(HistoryEvent(b"id", token, "released", 1), free) for token in (10, 20)] == [False, True]
