"""When `find` is called, and interrupts while it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceward import AsyncOnce, RecordState, applied, inconclusive, not_applied, verify
from tests.cli.calls import until
from tests.clients import TOO_LONG, Backend, SyncClient
from tests.heartbeats import stop_renewing


def a_crash(client: SyncClient, **settings: Any) -> None:
    client.silent_owner("order 7", after_crash=verify(lambda: inconclusive), **settings)
    client.clock.advance("2h")


@pytest.mark.finding("N27")
def test_find_is_not_called_while_an_earlier_attempt_may_still_take_effect(
    client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease minus one heartbeat has passed when a new owner has the key: 8 of the 20 minutes. It waits for 12."""
    asked: list[int] = []
    slept: list[float] = []

    def find() -> Any:
        asked.append(client.clock.elapsed)
        return applied("sent")

    sure = client.another(after_crash=verify(find, after="20m"), lease="600s", heartbeat="120s", on_running="raise")
    runtime = sure.once.engine.runtime
    sleep = runtime.sleep

    async def count_sleeps(seconds: float) -> None:
        slept.append(seconds)
        await sleep(min(seconds, 0.01))

    a_crash(client)
    monkeypatch.setattr(runtime, "sleep", count_sleeps)
    since = client.clock.elapsed
    answer = sure.start(sure.outcome, "order 7", lambda: pytest.fail("must not run"))
    until(lambda: (bool(slept or asked) and sure.leases() == 1) or answer.done())
    for minutes in ("6m", "5m"):  # the heartbeat keeps the key meanwhile
        client.clock.advance(minutes)
        sure.renew_leases()
        seen = len(slept)
        until(lambda seen=seen: len(slept) > seen + 1 or bool(asked))  # type: ignore[misc]  # mypy knows no such default
        assert asked == []
    client.clock.advance("1m")
    outcome = answer.result(TOO_LONG)
    assert (outcome.kind, outcome.reason, outcome.value) == ("replayed", "verified", "sent")
    assert asked == [since + 12 * 60 * 1_000_000]


@pytest.mark.fault("F27", "F28")
@pytest.mark.parametrize("way", ["run", "block"])
def test_an_interrupt_while_verify_looks_gives_the_key_back_unverified(client: SyncClient, way: str) -> None:
    answers: list[Any] = [KeyboardInterrupt(), applied("sent")]

    def find() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    a_crash(client)
    sure = client.another(after_crash=verify(find), lease="1h", on_running="raise")
    with pytest.raises(KeyboardInterrupt):
        if way == "run":
            sure.run("order 7", lambda: pytest.fail("must not run"))
        else:
            with sure.claim("order 7"):
                pytest.fail("must not enter")
    assert not sure.heartbeat.held()
    entry = sure.read("order 7")
    assert (entry.state, entry.attempt) == (RecordState.PENDING, 1)
    outcome = sure.outcome("order 7", lambda: pytest.fail("must not run"))
    assert (outcome.kind, outcome.reason, outcome.value) == ("replayed", "verified", "sent")


@pytest.mark.fault("F28")
async def test_a_cancellation_while_verify_looks_gives_the_key_back_unverified(backend: Backend) -> None:
    begun = asyncio.Event()

    async def find() -> Any:
        begun.set()
        await asyncio.sleep(60)

    async def never() -> None:
        pytest.fail("must not run")

    once = AsyncOnce(backend.open(), after_crash=verify(find), lease="1h")
    await asyncio.create_task(once.claim("order 7").__aenter__())  # in a separate context
    stop_renewing(once.heartbeat)  # its owner never renews it again
    backend.clock.advance("2h")
    task = asyncio.create_task(once.run("order 7", never))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    entry = await once.read("order 7")
    assert entry is not None
    assert (entry.state, entry.attempt, entry.record.released) == (RecordState.PENDING, 1, True)
    assert not once.heartbeat.held()
    await once.close()


@pytest.mark.fault("F27")
def test_an_interrupt_while_a_failure_is_looked_up_lets_the_next_claimant_ask_immediately(client: SyncClient) -> None:
    answers: list[Any] = [KeyboardInterrupt(), not_applied]
    done: list[str] = []

    def find() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def work() -> str:
        done.append("begun")
        if len(done) == 1:
            raise ConnectionError
        return "done"

    sure = client.another(after_crash=verify(find), lease="1h", on_running="raise")
    with pytest.raises(KeyboardInterrupt):
        sure.run("order 7", work)
    assert answers == [not_applied], "the next claimant asks again"
    assert not sure.heartbeat.held()
    assert sure.run("order 7", work) == "done"
    assert answers == []
