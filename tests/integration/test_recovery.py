"""Recovery workers finish work that is not redelivered: sync and async, every store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onceward import ConfigurationError, Once, RecordState, applied, verify
from onceward.engine.attempt import Attempt
from onceward.protocol.record import AfterCrash, Record
from onceward.protocol.requests import Fail
from onceward.recovery import Recovered, Recovery
from onceward.recovery.decision import (
    MAX_RETRY_DELAY,
    SECOND,
    RecoveryStatus,
    belongs_to,
    next_attempt_at,
    recovery_status,
)
from onceward.sagas import Step, StepContext
from onceward.stores import MemoryStore
from onceward.testing import FakeClock
from tests.clients import Backend, SyncClient, make_backend

on_every_store = pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres", "valkey"], indirect=True)


@pytest.fixture(params=["memory", *os.environ.get("ONCEWARD_TEST_BACKENDS", "").split()])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    return make_backend(request, tmp_path, clock)


class Work:
    """A function that records its runs, and crashes or raises on request."""

    def __init__(self, client: SyncClient, **choices: Any) -> None:
        self.client = client
        self.ran: list[int] = []
        self.trouble: list[BaseException] = []
        choices.setdefault("store_input", True)
        self.fn = client(key="work:{n}", name="work", **choices)(self._work)

    def _work(self, n: int) -> str:
        self.ran.append(n)
        if self.trouble:
            raise self.trouble.pop(0)
        return f"done {n}"

    def die(self, *numbers: int) -> None:
        """Claim these as owners that crash."""
        self.client.read("opens the store")
        for number in numbers:
            job = self.fn.fn.job((number,), {})
            request = replace(Attempt(self.client.once.engine, job).claim_request(), owner="another worker")
            self.client.drive(self.client.once.store.claim([request], timeout=5))


def recover(client: SyncClient, on_result: Callable[[Recovered], None] | None = None) -> Recovery:
    found: Recovery = client.wait(client.once.recover(on_result=on_result))
    return found


@on_every_store
def test_lapsed_and_failed_work_is_finished_without_a_redelivery(client: SyncClient) -> None:
    work = Work(client)
    work.die(1, 2)
    work.trouble = [ConnectionError("reset")]
    assert work.fn.outcome(3).kind == "failed"
    results: list[Recovered] = []
    found = recover(client, results.append)
    assert (found.done, found.running, found.waiting) == (0, 2, 1), (
        "leases are alive, and a failure waits for its retry delay"
    )
    assert not found.needs_attention
    client.clock.advance("11m")
    found = recover(client, results.append)
    assert found.done == 3
    assert sorted(work.ran[1:]) == [1, 2, 3]
    assert sorted(one.key for one in results) == ["work:1", "work:2", "work:3"]
    assert {one.outcome.attempt for one in results if one.outcome is not None} == {2}
    assert [work.fn.outcome(n).kind for n in (1, 2, 3)] == ["replayed"] * 3
    assert recover(client) == Recovery()


def test_crashed_work_is_parked_or_verified_as_declared(client: SyncClient) -> None:
    parked = Work(client, after_crash="park")
    parked.die(1)
    client.clock.advance("11m")
    found = recover(client)
    assert (found.parked, found.waiting_for_a_person) == (1, 1)
    assert found.needs_attention
    assert parked.ran == []

    looked_up = client.another()
    sought = Work(looked_up, after_crash=verify(looked_up.work(lambda n: applied("found"))))
    sought.die(2)
    client.clock.advance("11m")
    assert recover(looked_up).done == 1
    assert sought.ran == []
    assert sought.fn(2) == "found"


def test_work_without_stored_input_needs_a_redelivery_and_is_listed(client: SyncClient) -> None:
    Work(client).die(1)
    client.silent_owner("block")
    forgetful = client(key="plain:{n}", name="plain")(lambda n: 1 / 0)
    forgetful.outcome(5)
    stranger = client.another(app="other")
    stranger.silent_owner("not ours")
    locked = client.once.try_lock("a lock")
    client.wait(locked)
    client.clock.advance("11m")
    found = recover(client)
    assert found.done == 1
    assert found.needing_redelivery == 2
    assert {(one.key, one.scope, one.state) for one in found.needs_redelivery} == {
        ("block", "default/shared", "PENDING"),
        ("plain:5", "default/plain", "FAILED"),
    }
    assert found.needs_attention


def test_work_that_keeps_failing_is_paced_and_given_up_as_declared(client: SyncClient) -> None:
    work = Work(client, max_attempts=3, retry_delay="1m")
    work.trouble = [ConnectionError()] * 5
    work.fn.outcome(1)
    assert recover(client).waiting == 1
    client.clock.advance("1m")
    found = recover(client)
    assert (found.again, found.waiting) == (1, 1)
    client.clock.advance("1m")
    assert recover(client).failed == 1
    client.clock.advance("1h")
    assert recover(client) == Recovery()
    assert len(work.ran) == 3


@on_every_store
@pytest.mark.fault("F74")
def test_a_half_done_saga_is_continued(client: SyncClient) -> None:
    log: list[str] = []
    trouble: list[BaseException] = [KeyboardInterrupt()]

    def act(step: StepContext) -> str:
        log.append(f"{step.name} {step.input['n']}")
        if step.name == "b" and trouble:
            raise trouble.pop()
        return step.name

    work = client.work(act)
    saga = client.once.saga("s", Step("a", work, undo=work), Step("b", work, kind="pivot"), key="s:{n}")
    with pytest.raises(KeyboardInterrupt):
        client.wait(saga.outcome(n=1))
    other = client.another()
    other_work = other.work(act)
    other.once.saga("s", Step("a", other_work, undo=other_work), Step("b", other_work, kind="pivot"), key="s:{n}")
    assert recover(other).done == 1
    assert log == ["a 1", "b 1", "b 1"]
    assert client.wait(saga(n=1)) == {"a": "a", "b": "b"}


def test_a_saga_that_a_person_resumes_is_taken_by_the_worker_immediately(client: SyncClient) -> None:
    log: list[str] = []

    def wire(step: StepContext) -> str:
        log.append("wire")
        raise TimeoutError

    def mail(step: StepContext) -> None:
        log.append(f"mail {step.results['wire']}")

    saga = client.once.saga(
        "s",
        Step("wire", client.work(wire), kind="pivot", after_crash="park"),
        Step("mail", client.work(mail), kind="retriable"),
        key="s:{n}",
    )
    client.wait(saga.outcome(n=1))
    assert recover(client).waiting_for_a_person == 1
    client.wait(saga.resolve(applied("yes"), n=1))
    assert recover(client).done == 1
    assert log == ["wire", "mail yes"]


def test_work_that_cannot_be_tried_is_reported_and_stops_no_other(client: SyncClient) -> None:
    """Its input cannot be read, or its steps have changed."""
    work = Work(client)
    work.die(1, 2)
    client.clock.advance("11m")
    codec = work.fn.fn.operation.input
    sound = codec.call

    def call(id: bytes, note: Any) -> Any:
        return sound(id, {"onceward:input": "broken!"} if id == work.fn.key(1).id else note)

    codec.call = call
    results: list[Recovered] = []
    found = recover(client, results.append)
    assert (found.done, found.unclear) == (1, 1)
    assert found.needs_attention
    assert "ResultCorrupt" in next(one.error for one in results if one.key == "work:1")


def test_a_lowered_max_attempts_ends_the_work_and_the_worker_does_not_loop(client: SyncClient) -> None:
    work = Work(client)
    work.trouble = [OSError("down"), OSError("still down")]
    for _ in range(2):
        with pytest.raises(OSError, match="down"):
            work.fn(1)
        client.clock.advance("1h")
    other = client.another()
    limited = Work(other, max_attempts=2)
    passes: list[Recovered] = []

    def on_result(result: Recovered) -> None:
        passes.append(result)
        if len(passes) == 3:
            other.once.stop()

    found = recover(other, on_result)
    assert len(passes) == 1, "reported once, and no pass after it"
    assert passes[0].error.startswith("no attempt is left")
    assert (found.unclear, found.again, found.needs_attention, limited.ran) == (1, 0, True, [])


@pytest.mark.parametrize("mode", ["blocking"])  # on a loop, the owner would wait for the worker
def test_work_that_a_late_owner_reports_as_failed_is_tried_again_later(client: SyncClient) -> None:
    """The worker has seen the lapsed lease; before it claims, the owner comes back and reports a failure."""
    work = Work(client)
    work.die(1)
    client.clock.advance("11m")
    codec = work.fn.fn.operation.input
    sound = codec.call

    def call(id: bytes, note: Any) -> Any:
        record = work.fn.read(1).record
        failure = Fail(record.id, record.token, record.nonce, "OSError", "late", final=False, retry_in=3_600_000_000)
        client.drive(client.once.store.settle([failure], timeout=5))
        return sound(id, note)

    codec.call = call
    found = recover(client)
    assert (found.again, found.unclear, work.ran) == (1, 0, [])


def test_a_function_whose_parameters_have_changed_is_reported_and_stops_no_other(client: SyncClient) -> None:
    """Work that an older version of the program started must not block the worker."""
    Work(client).die(1, 2)
    client.clock.advance("11m")
    other = client.another()
    ran: list[int] = []

    def work(n: int, cents: int) -> None:
        ran.append(n)

    def more(n: int) -> None:
        if not ran:
            raise KeyboardInterrupt
        ran.append(n)

    other(key="work:{n}", name="work", store_input=True)(work)
    more_work = other(key="more:{n}", name="more", store_input=True)(more)
    with pytest.raises(KeyboardInterrupt):
        more_work(n=7)
    ran.append(0)
    other.clock.advance("11m")
    results: list[Recovered] = []
    found = recover(other, results.append)
    assert (found.done, found.unclear, ran) == (1, 2, [0, 7])
    assert "TypeError" in next(one.error for one in results if one.key == "work:1")


def test_work_whose_key_template_has_changed_is_not_run_under_another_key(client: SyncClient) -> None:
    Work(client).die(1)
    client.clock.advance("11m")
    other = client.another()
    ran: list[int] = []

    def work(n: int) -> None:
        ran.append(n)

    other(key="job:{n}", name="work", store_input=True)(work)
    found = recover(other)
    assert (found.done, found.needing_redelivery) == (0, 1)
    assert ran == []


@on_every_store
def test_several_workers_share_the_work(client: SyncClient) -> None:
    """Each piece is done once, by the worker that claims it; no worker waits for another."""
    work = Work(client)
    work.die(*range(40))
    client.clock.advance("11m")
    pools = [client, *(client.another() for _ in range(3))]
    works = [work, *(Work(pool) for pool in pools[1:])]
    barrier = threading.Barrier(len(pools))

    def one(pool: SyncClient) -> int:
        barrier.wait(60)
        return recover(pool).done

    done = [each.result(60) for each in [client.start(one, pool) for pool in pools]]
    assert sum(done) == 40
    assert sorted(n for one in works for n in one.ran) == list(range(40))
    assert [work.fn.outcome(n).attempt for n in range(40)] == [2] * 40


def test_a_worker_runs_until_it_is_stopped(client: SyncClient) -> None:
    work = Work(client)
    work.die(1)
    client.clock.advance("11m")
    results: list[Recovered] = []

    def on_result(one: Recovered) -> None:
        results.append(one)
        client.once.stop()

    found = client.wait(client.once.recover(every="1ms", on_result=on_result))
    assert (found.done, len(results)) == (1, 1)


def test_a_store_that_is_down_is_asked_again(client: SyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(client)
    work.die(1)
    client.clock.advance("11m")
    results: list[Recovered] = []

    def on_result(one: Recovered) -> None:
        results.append(one)
        if one.outcome is not None:
            client.once.stop()

    monkeypatch.setattr("onceward.recovery.sweeper.STORE_RETRY_DELAY", 0.001)
    with client.store_trouble("scan", times=1):
        found = client.wait(client.once.recover(every="1ms", on_result=on_result))
    assert found.done == 1
    assert "StoreUnavailable" in results[0].error


def test_a_client_without_work_that_stores_its_input_cannot_recover() -> None:
    with Once(MemoryStore()) as once:
        with pytest.raises(ConfigurationError, match="no work that stores its input"):
            once.recover()

        @once(store_input=True)
        async def work(n: int) -> None: ...

        with pytest.raises(ConfigurationError, match=r"has declared no a?sync work"):
            once.recover()


def test_tenants_are_recovered_as_themselves() -> None:
    clock = FakeClock()
    with Once(MemoryStore(clock=clock)) as once:
        ran: list[str] = []

        @once(key="k:{n}", tenant="{org}", store_input=True, name="work")
        def work(n: int, org: str) -> None:
            ran.append(org)
            if len(ran) < 3:
                raise ConnectionError

        work.outcome(1, "acme")
        work.outcome(1, "umbrella")
        clock.advance("1s")
        assert once.recover().done == 2
        assert ran == ["acme", "umbrella", "acme", "umbrella"] or ran[2:] == ["umbrella", "acme"]


# ── pure functions ──

NOW = 1_000_000 * SECOND


def record(**fields: Any) -> Record:
    given = {
        "id": b"i",
        "scope": "shop/charge",
        "key": "k",
        "state": RecordState.PENDING,
        "token": 1,
        "nonce": b"n",
        **fields,
    }
    return Record(**given)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"lease_until": NOW + 1}, RecoveryStatus.RUNNING),
        ({"lease_until": None}, RecoveryStatus.RUNNING),
        ({"lease_until": NOW}, RecoveryStatus.DUE),
        ({"lease_until": NOW, "after_crash": AfterCrash.PARK}, RecoveryStatus.DUE),
        ({"lease_until": NOW, "released": True}, RecoveryStatus.DUE),
        ({"state": RecordState.PARKED}, RecoveryStatus.PARKED),
        ({"state": RecordState.COMPLETED}, RecoveryStatus.OVER),
        ({"state": RecordState.FREE}, RecoveryStatus.OVER),
        ({"state": RecordState.FAILED, "final": True}, RecoveryStatus.OVER),
        ({"state": RecordState.FAILED, "attempt": 3, "max_attempts": 3}, RecoveryStatus.OVER),
        ({"state": RecordState.FAILED, "attempt": 1, "updated_at": NOW - SECOND}, RecoveryStatus.DUE),
        ({"state": RecordState.FAILED, "attempt": 2, "updated_at": NOW - SECOND}, RecoveryStatus.WAITING),
        ({"state": RecordState.FAILED, "attempt": 9, "updated_at": NOW, "nonce": b""}, RecoveryStatus.DUE),
        ({"state": RecordState.FAILED, "attempt": 1, "retry_at": NOW + 1}, RecoveryStatus.WAITING),
        ({"min_reader": 99}, RecoveryStatus.OVER),
    ],
)
def test_recovery_status_says_which_records_are_due(fields: dict[str, Any], status: RecoveryStatus) -> None:
    assert recovery_status(record(**fields), NOW) is status


def test_retry_delays_double_up_to_a_limit() -> None:
    delays = [next_attempt_at(record(state=RecordState.FAILED, attempt=n)) for n in (1, 2, 3, 4, 60)]
    assert delays == [SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND, MAX_RETRY_DELAY]


def test_a_record_belongs_to_the_app_in_its_scope() -> None:
    assert belongs_to("shop", record())
    assert not belongs_to("sho", record())
    assert not belongs_to("shop", record(scope="shop/schedule:nightly"))
    assert belongs_to("a/b", record(scope="a%2Fb/charge@acme"))
