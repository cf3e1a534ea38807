"""Handlers that are interrupted, cancelled, or out of time: settled by policy, and the interrupt propagates."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from onceward import AsyncOnce, Once, OutcomeParked, RecordState, applied, not_applied, verify
from onceward.protocol.ports import Store
from onceward.stores import MemoryStore
from tests.clients import Backend, SyncClient
from tests.faulty import FaultyNetwork, FaultyStore
from tests.integration.processes import INTERRUPTS, store, work

__all__ = ["store"]  # a fixture, listed here so that pytest finds it

# ── F27: interrupts ──


@pytest.mark.fault("F27")
@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_an_interrupt_is_settled_as_a_failure_that_may_be_repeated_and_raised_again(
    client: SyncClient, interrupt: type[BaseException]
) -> None:
    def interrupted() -> None:
        raise interrupt("stop")

    with pytest.raises(interrupt, match="stop"):
        client.run("order 7", interrupted)
    entry = client.read("order 7")
    assert (entry.state, entry.record.final, entry.attempt) == (RecordState.FAILED, False, 1)
    assert not client.heartbeat.held()
    client.clock.advance("1h")
    with pytest.raises(interrupt, match="stop"):
        client.run("order 7", interrupted)
    assert client.read("order 7").attempt == 2


def settled(client: SyncClient, interrupt: type[BaseException]) -> RecordState:
    """Return the state after a block. A coroutine that is being closed cannot wait for the store: its lease expires."""
    return RecordState.PENDING if client.mode == "async" and interrupt is GeneratorExit else RecordState.FAILED


@pytest.mark.fault("F27")
@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_under_park_an_interrupt_parks_because_the_outcome_is_unknown(
    client: SyncClient, interrupt: type[BaseException]
) -> None:
    careful = client.another(after_crash="park")

    def interrupted() -> None:
        raise interrupt

    with pytest.raises(interrupt):
        careful.run("order 7", interrupted)
    with pytest.raises((OutcomeParked, interrupt)) as again:  # a Ctrl-C that gets out would end the whole test run
        careful.run("order 7", interrupted)
    assert type(again.value) is OutcomeParked
    careful.resolve("order 7", not_applied)
    with pytest.raises(interrupt):
        careful.run("order 7", interrupted)


@pytest.mark.fault("F27")
def test_under_verify_an_interrupt_is_looked_up_and_raised_again(client: SyncClient) -> None:
    asked: list[str] = []

    def find() -> applied:
        asked.append("asked")
        return applied("sent")

    def interrupted() -> str:
        raise KeyboardInterrupt

    sure = client.another(after_crash=verify(find))
    with pytest.raises(KeyboardInterrupt):
        sure.run("order 7", interrupted)
    assert asked == ["asked"]
    assert sure.run("order 7", interrupted) == "sent"


@pytest.mark.fault("F27")
def test_naming_every_exception_as_final_does_not_make_an_interrupt_final(client: SyncClient) -> None:
    """`final=BaseException` cannot have meant that pressing Ctrl-C decides about the order."""
    strict = client.another(final=(Exception, BaseException))

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        strict.run("order 7", interrupted)
    assert not strict.read("order 7").record.final


@pytest.mark.fault("F27")
def test_an_interrupt_that_is_named_itself_is_what_it_was_named(client: SyncClient) -> None:
    strict = client.another(final=SystemExit)

    def interrupted() -> None:
        raise SystemExit(2)

    with pytest.raises(SystemExit):
        strict.run("order 7", interrupted)
    assert strict.read("order 7").record.final


@pytest.mark.fault("F27")
@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_an_interrupt_inside_a_block_is_settled_and_raised_again(
    client: SyncClient, interrupt: type[BaseException]
) -> None:
    with pytest.raises(interrupt), client.claim("order 7"):
        raise interrupt
    assert client.read("order 7").state is RecordState.FAILED


@pytest.mark.fault("F27")
def test_a_generator_that_is_closed_inside_its_claim_settles_it(store: Store) -> None:
    with Once(store) as once:

        def steps() -> Generator[int, None, None]:
            with once.claim("order 7"):
                yield 1
                yield 2

        running = steps()
        next(running)
        running.close()
        entry = once.read("order 7")
        assert entry is not None
        assert entry.state is RecordState.FAILED


@pytest.mark.fault("F27")
async def test_an_async_generator_that_is_closed_inside_its_claim_settles_it(store: Store) -> None:
    async with AsyncOnce(store) as once:

        async def steps() -> AsyncGenerator[int, None]:
            async with once.claim("order 7"):
                yield 1
                yield 2

        running = steps()
        await anext(running)
        await running.aclose()
        entry = await once.read("order 7")
        assert entry is not None
        assert entry.state is RecordState.FAILED


@pytest.mark.fault("F27")
def test_work_whose_loop_was_torn_down_is_not_kept_alive_forever(backend: Backend) -> None:
    """No task can settle it any more, so its lease must expire; after that `after_crash` decides."""
    once = AsyncOnce(backend.open(), fingerprint="none")

    async def begin() -> None:
        begun = asyncio.Event()
        once.waiting = asyncio.create_task(once.run("order 7", forever, begun))  # type: ignore[attr-defined]
        await begun.wait()

    async def forever(begun: asyncio.Event) -> None:
        begun.set()
        await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    assert len(once.heartbeat.held()) == 1
    loop.call_exception_handler = lambda _context: None  # type: ignore[method-assign,assignment]
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr("sys.unraisablehook", lambda _: None)
        loop.close()
        del once.waiting  # type: ignore[attr-defined]
        gc.collect()
    assert not once.heartbeat.held()
    once.heartbeat.close()
    once.engine.runtime.close()  # type: ignore[attr-defined]


class Interrupting(MemoryStore):
    """Ctrl-C arrives while the result is being written."""

    async def settle(self, *args: Any, **kwargs: Any) -> Any:
        await super().settle(*args, **kwargs)
        raise KeyboardInterrupt


@pytest.mark.fault("F27")
def test_an_interrupt_while_completing_leaves_no_lease_that_is_renewed_forever() -> None:
    once = Once(Interrupting())
    with pytest.raises(KeyboardInterrupt):
        once.run("order 7", work)
    assert not once.heartbeat.held()
    with pytest.raises(KeyboardInterrupt), once.claim("order 8"):
        pass
    assert not once.heartbeat.held()
    assert once.run("order 7", work) == "done"
    once.close()


# ── F28: cancellation ──


async def cancelled_at(begun: asyncio.Event, call: Any) -> None:
    """Start the call, cancel it once it has begun, and see the cancellation come out."""
    task = asyncio.ensure_future(call)
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.fault("F28")
@pytest.mark.parametrize(("after_crash", "state"), [("rerun", RecordState.FAILED), ("park", RecordState.PARKED)])
async def test_work_that_is_cancelled_is_settled_by_policy_and_the_cancellation_propagates(
    store: Store, after_crash: Any, state: RecordState
) -> None:
    async with AsyncOnce(store, after_crash=after_crash) as once:
        begun = asyncio.Event()

        async def slow() -> None:
            begun.set()
            await asyncio.sleep(60)

        await cancelled_at(begun, once.run("order 7", slow))
        entry = await once.read("order 7")
        assert entry is not None
        assert (entry.state, entry.error.rstrip(": ")) == (state, "CancelledError")
        assert not once.heartbeat.held()


@pytest.mark.fault("F28")
async def test_a_block_that_is_cancelled_is_settled_and_the_cancellation_propagates(store: Store) -> None:
    async with AsyncOnce(store) as once:
        begun = asyncio.Event()

        async def block() -> None:
            async with once.claim("order 7"):
                begun.set()
                await asyncio.sleep(60)

        await cancelled_at(begun, block())
        entry = await once.read("order 7")
        assert entry is not None
        assert entry.state is RecordState.FAILED


class Slow(FaultyStore):
    """Calls of one verb wait until the test releases them. Waits on the loop, as a network store does."""

    def __init__(self, store: Store, verb: str, network: FaultyNetwork | None = None) -> None:
        super().__init__(store, network or FaultyNetwork())
        self.inline = False
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self._verb = verb

    async def _through(self, verb: Any, *args: Any) -> Any:
        if verb == self._verb:
            self.reached.set()
            await self.go.wait()
        return await super()._through(verb, *args)


async def cancel_and_let_go(slow: Slow, call: Any, times: int = 1) -> None:
    task = asyncio.ensure_future(call)
    await slow.reached.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done(), "the store's answer is still to come"
    slow.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@pytest.mark.fault("F28")
@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancellation_while_completing_waits_for_the_result_to_be_recorded(store: Store, times: int) -> None:
    slow = Slow(store, "settle")
    async with AsyncOnce(slow) as once:
        calls: list[int] = []

        async def counted() -> str:
            calls.append(1)
            return "done"

        await cancel_and_let_go(slow, once.run("order 7", counted), times)
        assert await once.run("order 7", counted) == "done"
        assert calls == [1]
        assert not once.heartbeat.held()


@pytest.mark.fault("F28")
async def test_a_cancellation_while_claiming_gives_the_key_back_and_runs_nothing(store: Store) -> None:
    slow = Slow(store, "claim")
    async with AsyncOnce(slow) as once:
        calls: list[int] = []

        async def counted() -> str:
            calls.append(1)
            return "done"

        await cancel_and_let_go(slow, once.run("order 7", counted))
        assert calls == []
        assert await once.read("order 7") is None
        outcome = await once.outcome("order 7", counted)
        assert (outcome.kind, outcome.attempt) == ("executed", 1)


@pytest.mark.fault("F28", "F50")
async def test_a_cancellation_while_claiming_is_not_swallowed_by_a_store_that_fails(store: Store) -> None:
    network = FaultyNetwork()
    network.lose_requests("claim", 1)
    slow = Slow(store, "claim", network)
    async with AsyncOnce(slow) as once:

        async def never() -> None:
            pytest.fail("cancelled work must not run")

        await cancel_and_let_go(slow, once.run("order 7", never))


@pytest.mark.fault("F28", "F51")
async def test_a_cancellation_while_completing_is_not_swallowed_by_a_store_that_fails(store: Store) -> None:
    network = FaultyNetwork()
    network.lose_requests("settle")
    slow = Slow(store, "settle", network)
    async with AsyncOnce(slow, settle_timeout="50ms") as once:
        event_names: list[str] = []
        once.subscribe(lambda event: event_names.append(event.name))

        async def quick() -> str:
            return "done"

        await cancel_and_let_go(slow, once.run("order 7", quick))
        assert not once.heartbeat.held(), "it must not be renewed: its outcome is unknown, so its lease must expire"
        assert event_names[-1] == "unknown"


@pytest.mark.fault("F28")
async def test_a_timeout_around_the_call_is_still_a_timeout_when_it_hits_the_completion(store: Store) -> None:
    slow = Slow(store, "settle")
    async with AsyncOnce(slow) as once:

        async def quick() -> str:
            return "done"

        async def time_is_up(limit: asyncio.Timeout) -> None:
            await slow.reached.wait()
            limit.reschedule(asyncio.get_running_loop().time())
            while not limit.expired():  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0)
            slow.go.set()

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                watch = asyncio.create_task(time_is_up(limit))
                await once.run("order 7", quick)
        await watch
        assert (await once.outcome("order 7", quick)).replayed


# ── F29: timeouts ──


@pytest.mark.fault("F29")
@pytest.mark.parametrize(
    ("settings", "state", "final"),
    [
        ({}, RecordState.FAILED, False),
        ({"after_crash": "park"}, RecordState.PARKED, False),
        ({"after_crash": "park", "final": Exception}, RecordState.PARKED, False),
        ({"after_crash": "park", "not_applied": (Exception, OSError)}, RecordState.PARKED, False),
        ({"final": Exception}, RecordState.FAILED, False),
        ({"retry": ConnectionError}, RecordState.FAILED, False),
        ({"final": TimeoutError}, RecordState.FAILED, True),
        ({"after_crash": "park", "not_applied": TimeoutError}, RecordState.FAILED, False),
    ],
    ids=str,
)
def test_a_timeout_inside_the_effect_is_unknown_unless_it_is_named_itself(
    client: SyncClient, settings: dict[str, Any], state: RecordState, final: bool
) -> None:
    chosen = client.another(**settings)

    def slow() -> None:
        raise TimeoutError("the remote did not answer")

    with pytest.raises(TimeoutError):
        chosen.run("order 7", slow)
    entry = chosen.read("order 7")
    assert (entry.state, entry.record.final) == (state, final)


@pytest.mark.fault("F29")
@pytest.mark.parametrize(
    ("finding", "kind"), [(applied("sent"), "executed"), (not_applied, "failed"), (None, "parked")]
)
def test_under_verify_a_timeout_asks_whether_the_effect_happened(client: SyncClient, finding: Any, kind: str) -> None:
    sure = client.another(after_crash=verify(lambda: finding), final=Exception)

    def slow() -> str:
        raise TimeoutError

    outcome = sure.outcome("order 7", slow)
    assert outcome.kind == kind
    if kind == "executed":
        assert outcome.value == "sent"
