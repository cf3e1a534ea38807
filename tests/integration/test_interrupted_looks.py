"""Interrupts while `find` runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceward import AsyncOnce, RecordState, applied, inconclusive, not_applied, verify
from tests.clients import Backend, SyncClient
from tests.heartbeats import stop_renewing


def a_crash(client: SyncClient, **settings: Any) -> None:
    client.silent_owner("order 7", after_crash=verify(lambda: inconclusive), **settings)
    client.clock.advance("2h")


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
