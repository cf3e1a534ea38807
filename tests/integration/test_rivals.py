"""Ownership bugs of other libraries: late owners, dying owners, renewals, waiting."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from onceward import (
    AlreadyRunning,
    Executed,
    LeaseLost,
    OutcomeParked,
    RecordState,
    Replayed,
    Unknown,
    current_async_claim,
    current_claim,
)
from tests.cli.calls import until
from tests.clients import AsyncClient, Pause, RealClock, SyncClient

# ── 1: a late owner does harm ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(1)
@pytest.mark.mission("A7")
def test_a_late_owner_cannot_overwrite_the_winners_result(client: SyncClient) -> None:
    pause, names = Pause(), iter(["late", "winner"])

    def work() -> str:
        name = next(names)
        if name == "late":
            pause.here()
        return name

    late = client.start(client.outcome, "k", work)
    pause.reached()
    client.clock.advance("601s")
    assert client.another().outcome("k", work).value == "winner"
    pause.go()
    outcome = late.result()
    assert (type(outcome), outcome.lost, outcome.value) == (Unknown, True, "late")
    with pytest.raises(LeaseLost):
        outcome.unwrap()
    assert client.run("k", work) == "winner"
    assert len(client.events_named("lost")) == 1


@pytest.mark.rival(1)
@pytest.mark.mission("A7")
def test_a_late_owners_failure_does_not_delete_a_live_claim_so_no_third_worker_runs(client: SyncClient) -> None:
    pauses = {"late": Pause(), "winner": Pause()}
    names = iter(pauses)
    ran = []

    def work() -> str:
        name = next(names)
        ran.append(name)
        pauses[name].here()
        if name == "late":
            raise OSError("the network is gone")
        return name

    other = client.another(on_running="raise")
    late = client.start(client.outcome, "k", work)
    pauses["late"].reached()
    client.clock.advance("601s")
    winner = client.start(other.outcome, "k", work)
    pauses["winner"].reached()
    pauses["late"].go()
    assert isinstance(late.result().exception, OSError)
    with pytest.raises(AlreadyRunning):
        other.run("k", work)
    pauses["winner"].go()
    assert winner.result().value == "winner"
    assert ran == ["late", "winner"]


@pytest.mark.rival(1)
@pytest.mark.mission("A7")
@pytest.mark.parametrize("verb", ["complete", "annotate", "check"])
def test_a_replaced_owner_learns_it_from_whatever_it_does_next(client: SyncClient, verb: str) -> None:
    late = client.silent_owner("k")
    client.clock.advance("601s")
    with client.another().claim("k") as winner:
        assert winner.token > late.token
        client.renew_leases()  # the late owner's heartbeat finds the other owner
        arguments: dict[str, Any] = {"annotate": {"by": "late"}}.get(verb, {})
        with pytest.raises(LeaseLost):
            getattr(late, verb)(**arguments)
        winner.complete("winner's")
    entry = client.read("k")
    assert (entry.value, entry.note) == ("winner's", {})


@pytest.mark.rival(1)
def test_a_late_owner_that_was_not_replaced_may_still_record_its_result(client: SyncClient) -> None:
    """Refusing it would only cause a second effect."""
    late = client.silent_owner("k")
    client.clock.advance("1h")
    late.complete("done after all")
    assert client.read("k").value == "done after all"


# ── 7: a dying owner leaves the key locked ──────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(7)
@pytest.mark.parametrize("death", [SystemExit, KeyboardInterrupt])
def test_an_owner_that_exits_or_is_interrupted_does_not_leave_the_key_locked(
    client: SyncClient, death: type[BaseException]
) -> None:
    deaths = [death("told to stop")]

    def work() -> str:
        if deaths:
            raise deaths.pop()
        return "done"

    with pytest.raises(death):
        client.run("k", work)
    assert client.leases() == 0
    second = client.another(on_running="raise").outcome("k", work)
    assert (second.value, second.attempt) == ("done", 2)


@pytest.mark.rival(7)
@pytest.mark.parametrize("death", [SystemExit, KeyboardInterrupt])
def test_a_block_that_exits_or_is_interrupted_does_not_leave_the_key_locked(
    client: SyncClient, death: type[BaseException]
) -> None:
    with pytest.raises(death), client.claim("k"):
        raise death("told to stop")
    entry = client.read("k")
    assert (entry.state, entry.error) == (RecordState.FAILED, f"{death.__name__}: told to stop")
    with client.claim("k", on_running="raise") as claim:
        assert claim.attempt == 2


@pytest.mark.rival(7)
def test_an_interrupted_owner_whose_effect_must_not_be_repeated_is_parked_and_not_locked(client: SyncClient) -> None:
    with pytest.raises(KeyboardInterrupt), client.claim("k", after_crash="park"):
        raise KeyboardInterrupt
    assert client.read("k").state is RecordState.PARKED
    with pytest.raises(OutcomeParked), client.claim("k"):
        pass


@pytest.mark.rival(7)
@pytest.mark.parametrize("mode", ["async"])
def test_a_cancelled_task_does_not_leave_the_key_locked(client: AsyncClient) -> None:
    calls, begun = [], asyncio.Event()

    async def send(to: str) -> str:
        calls.append(to)
        begun.set()
        if len(calls) == 1:
            await asyncio.Event().wait()
        return "sent"

    async def story() -> tuple[str, Any]:
        guarded = client.once(on_running="raise")(send)
        task = asyncio.create_task(guarded("ada"))
        await begun.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        return await guarded("ada"), await guarded.outcome("ada")

    value, again = client.wait(story())
    assert (value, again.replayed, again.attempt, calls) == ("sent", True, 2, ["ada", "ada"])


@pytest.mark.rival(7)
@pytest.mark.parametrize("mode", ["async"])
def test_a_task_that_is_cancelled_while_it_claims_does_not_leave_the_key_locked(client: AsyncClient) -> None:
    """Whenever the cancellation arrives, the key is free immediately: no lease has to lapse."""

    async def send() -> str:
        await asyncio.sleep(0)
        return "sent"

    async def story() -> None:
        for steps in range(12):
            task = asyncio.create_task(client.once.outcome(f"k{steps}", send))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            other = client.once.using(on_running="raise")
            assert await other.run(f"k{steps}", send) == "sent"

    client.wait(story())


# ── 10 and 12: renewals ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(10)
@pytest.mark.mission("A4")
def test_one_failed_renewal_does_not_cancel_the_handler(client: SyncClient) -> None:
    pause = Pause()
    checked: list[str] = []

    def work() -> str:
        claim = current_claim() if client.mode == "blocking" else current_async_claim()
        pause.here()
        claim.check()
        checked.append("still ours")
        return "done"

    worker = client.another(on_lost="cancel")
    running = client.start(worker.outcome, "k", work)
    pause.reached()
    client.clock.advance("121s")
    with client.store_trouble("renew", times=1) as failed:
        worker.renew_leases()
        assert failed == ["renew"]
        assert len(worker.events_named("renewal_failed")) == 1
        client.clock.advance("60s")  # sooner than the next regular one: a failed renewal is retried quickly
        worker.renew_leases()
    assert len(worker.events_named("renewed")) == 1
    pause.go()
    assert isinstance(running.result(), Executed)
    assert checked == ["still ours"]


@pytest.mark.rival(10)
@pytest.mark.mission("A4")
def test_renewals_that_all_failed_do_not_make_a_finished_effect_raise(client: SyncClient) -> None:
    pause = Pause()

    def work() -> str:
        pause.here()
        return "done"

    running = client.start(client.run, "k", work)
    pause.reached()
    with client.store_trouble("renew"):
        for _ in range(6):
            client.clock.advance("121s")
            client.renew_leases()
    assert len(client.events_named("overdue")) == 1
    pause.go()
    assert running.result() == "done"
    assert client.outcome("k", work).replayed


@pytest.mark.rival(10)
def test_a_lease_that_is_overdue_recovers_when_the_store_answers_again(client: SyncClient) -> None:
    with client.claim("k") as claim:
        with client.store_trouble("renew"):
            client.clock.advance("601s")
            client.renew_leases()
        with pytest.raises(LeaseLost, match="a later renewal may succeed"):
            claim.check()
        client.clock.advance("60s")
        client.renew_leases()
        claim.check()
        with pytest.raises(AlreadyRunning):
            client.another().silent_owner("k", on_running="raise")


@pytest.mark.rival(12)
@pytest.mark.mission("A4")
def test_work_of_twenty_leases_runs_once_for_three_callers(client: SyncClient) -> None:
    pause, ran = Pause(), []

    def work() -> str:
        ran.append("work")
        pause.here()
        return "done"

    workers = [client, client.another(wait="7d"), client.another(wait="7d")]
    callers = [client.start(workers[0].outcome, "k", work)]
    pause.reached()
    callers += [client.start(worker.outcome, "k", work) for worker in workers[1:]]
    for _ in range(100):
        client.clock.advance("120s")
        client.renew_leases()
    pause.go()
    outcomes = [caller.result() for caller in callers]
    assert [type(outcome) for outcome in outcomes] == [Executed, Replayed, Replayed]
    assert [outcome.value for outcome in outcomes] == ["done"] * 3
    assert ran == ["work"]


@pytest.mark.rival(12)
@pytest.mark.mission("A4")
@pytest.mark.parametrize("clock", [RealClock()])
def test_the_heartbeat_thread_renews_a_lease_that_is_far_shorter_than_the_work(client: SyncClient) -> None:
    """In real time: the test does not trigger renewals itself."""
    with client.claim("k", lease="2s") as claim:
        until(lambda: len(client.events_named("renewed")) > 5)
        claim.check()
        with pytest.raises(AlreadyRunning):
            client.another().silent_owner("k", on_running="raise")


# ── 11 and 24: the owner fails ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(11)
def test_a_waiter_whose_owner_raises_takes_over_instead_of_getting_a_conflict(client: SyncClient) -> None:
    pause, attempts = Pause(), iter([1, 2])

    def work() -> str:
        if next(attempts) == 1:
            pause.here()
            raise OSError("first one fails")
        return "second one did it"

    owner = client.start(client.outcome, "k", work)
    pause.reached()
    waiter = client.start(client.another().outcome, "k", work)
    pause.go()
    assert isinstance(owner.result().exception, OSError)
    outcome = waiter.result()
    assert (type(outcome), outcome.value, outcome.attempt) == (Executed, "second one did it", 2)


@pytest.mark.rival(11)
def test_a_waiter_whose_owner_falls_silent_takes_over_when_the_lease_lapses(client: SyncClient) -> None:
    client.silent_owner("k", name="job")
    waiter = client.another(wait="1h")

    def take_over() -> int:
        with waiter.claim("k", name="job") as claim:
            attempt: int = claim.attempt
            return attempt

    waiting = client.start(take_over)
    client.clock.advance("601s")
    assert waiting.result() == 2


@pytest.mark.rival(24)
@pytest.mark.mission("B5")
def test_a_message_whose_handler_failed_is_not_marked_as_seen_so_its_retry_is_not_dropped(client: SyncClient) -> None:
    handled: list[str] = []

    @client(key="message:{id}", window="forever")
    def handle(id: str) -> str:
        if not handled:
            handled.append("failed")
            raise ValueError("cannot yet")
        handled.append("handled")
        return "ok"

    with pytest.raises(ValueError, match="cannot yet"):
        handle("m-1")
    assert handle.read("m-1").state is RecordState.FAILED
    assert handle("m-1") == "ok"
    assert handle.outcome("m-1").replayed
    assert handled == ["failed", "handled"]


@pytest.mark.rival(24)
def test_a_message_whose_handler_died_silently_is_handled_by_the_retry(client: SyncClient) -> None:
    client.silent_owner("m-1")
    client.clock.advance("601s")
    with client.another().claim("m-1") as claim:
        assert claim.attempt == 2  # the crash counts
