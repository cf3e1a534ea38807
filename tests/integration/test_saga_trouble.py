"""Sagas whose store, worker or caller fails: sync and async, every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

from onceward import AsyncOnce, RecordState, StoreUnavailable, testing
from onceward.errors import Stopping
from onceward.sagas import Step, StepContext
from onceward.sagas.journal import StepProgress
from onceward.stores import MemoryStore
from tests.clients import TOO_LONG
from tests.integration.saga_shop import Refused, Shop, backend, on_every_store, shop
from tests.moved_time import in_thread

__all__ = ["backend", "shop"]  # fixtures, re-exported so that pytest finds them


@pytest.mark.fault("F27")
@on_every_store
def test_an_interrupt_leaves_the_saga_to_the_next_worker(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        order.outcome(number=1)
    entry = order.read(number=1)
    assert entry.state is RecordState.PENDING
    assert entry.saga.entry("charge").progress is StepProgress.BEGUN
    assert shop.client.leases() == 0
    assert order.outcome(number=1).attempt == 2
    assert shop.log == ["reserve", "charge", "charge", "ship", "mail"]


@on_every_store
def test_a_half_done_saga_never_expires(shop: Shop) -> None:
    order = shop.usual(window="1h")
    shop.trouble["charge"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        order.outcome(number=1)
    shop.client.clock.advance("60d")
    assert shop.client.purge() == 0
    order(number=1)
    assert shop.log.count("reserve") == 1


@on_every_store
def test_another_worker_continues_where_the_first_stopped_responding(shop: Shop) -> None:
    """The first worker, which comes back late, is refused and calls nothing more."""
    other = Shop(shop.client.another())
    other_order = other.usual()

    def stall(step: StepContext) -> str:
        shop.log.append("stall")
        shop.client.clock.advance("11m")  # silent for longer than the lease; another worker takes over
        assert other_order.outcome(number=1).attempt == 2
        return "too late"

    order = shop.saga(
        shop.step("reserve", "seat 5"),
        Step("charge", shop.client.work(stall), undo=shop.act("undo charge"), final=Refused),
        shop.step("ship", kind="pivot"),
        shop.step("mail", kind="retriable"),
    )
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.lost) == ("unknown", True)
    assert shop.log == ["reserve", "stall"]
    assert other.log == ["charge", "ship", "mail"]
    assert order.read(number=1).value["charge"] == Decimal("9.90")


@pytest.mark.fault("F51", "F53")
def test_a_journal_that_gets_no_answer_is_written_again(shop: Shop) -> None:
    order = shop.usual()
    with shop.client.store_trouble("renew", times=3, applied=True):
        order(number=1)
    assert shop.log == ["reserve", "charge", "ship", "mail"]
    assert shop.client.events_named("settle_retried")


@contextmanager
def late_renewal(store: Any) -> Iterator[Callable[[], Any]]:
    """Delay the first journal write: it gets no answer, and arrives when the yielded function is called."""
    kind: Any = type(store)
    sound = kind.renew
    late: list[tuple[Any, Any, Any]] = []

    async def renew(store: Any, renewals: Any, **how: Any) -> Any:
        if late or not renewals[0].note:
            return await sound(store, renewals, **how)
        late.append((store, renewals, how))
        raise StoreUnavailable("no answer")

    def arrive() -> Any:
        store, renewals, how = late[0]
        return sound(store, renewals, **how)

    kind.renew = renew
    try:
        yield arrive
    finally:
        kind.renew = sound


@on_every_store
@pytest.mark.rival(1)
@pytest.mark.fault("F53")
def test_a_journal_line_that_arrives_late_does_not_take_the_saga_back(shop: Shop) -> None:
    """Otherwise the intent of the transfer would be lost, and the transfer sent twice."""
    arrivals: list[Callable[[], Any]] = []

    def wire(step: StepContext) -> None:
        shop.log.append("wire")
        if arrivals:
            shop.client.drive(arrivals.pop()())
            raise KeyboardInterrupt

    wired = Step("wire", shop.client.work(wire), kind="pivot", after_crash="park")
    order = shop.saga(shop.step("reserve"), wired)
    with late_renewal(shop.client.once.store) as arrive, pytest.raises(KeyboardInterrupt):
        arrivals.append(arrive)
        order(number=1)
    assert order.outcome(number=1).kind == "parked"
    assert shop.log == ["reserve", "wire"]


def test_a_worker_that_gets_no_answer_and_is_replaced_stops(shop: Shop) -> None:
    """A journal write was repeated; before our claim gets its new token, another worker takes the saga over."""
    other = Shop(shop.client.another())
    other_order = other.usual()
    order = shop.usual()
    kind: Any = type(shop.client.once.store)
    sound = kind.renew

    async def renew(store: Any, renewals: Any, **how: Any) -> Any:
        answers = await sound(store, renewals, **how)
        if renewals[0].lease == 0:
            in_thread(lambda: other_order.outcome(number=1)).result(TOO_LONG)
        return answers

    with shop.client.store_trouble("renew", times=1, applied=True):
        sound, kind.renew = kind.renew, renew
        outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.lost) == ("unknown", True)
    assert shop.log == []
    assert other.log == ["reserve", "charge", "ship", "mail"]


@pytest.mark.fault("F37")
def test_a_stopping_worker_does_not_wait_for_the_next_attempt(shop: Shop) -> None:
    def stop(step: StepContext) -> None:
        shop.log.append("stop")
        shop.client.once.stop()
        raise TimeoutError

    order = shop.saga(Step("stop", shop.client.work(stop), kind="pivot", retry_delay="1h"))
    with pytest.raises(Stopping, match="another one continues the saga"):
        order.outcome(number=1)
    assert shop.log == ["stop"]
    other = Shop(shop.client.another())
    assert other.saga(other.step("stop", kind="pivot")).outcome(number=1).kind == "executed"


@pytest.mark.mission("A7", "A9")
@pytest.mark.fault("F50")
def test_while_the_store_is_down_a_saga_runs_only_if_that_was_chosen_for_it(shop: Shop) -> None:
    bold = Shop(shop.client.another(on_store_down="run"))
    closed, opened = bold.usual(), bold.usual(version=2, on_store_down="run")
    with bold.client.store_trouble("claim"):
        with pytest.raises(StoreUnavailable):
            closed(number=1)
        outcome = opened.outcome(number=1)
    assert (outcome.kind, outcome.reason, outcome.value["reserve"]) == ("executed", "unprotected", "seat 5")
    assert bold.log == ["reserve", "charge", "ship", "mail"]
    assert [(one.level.name, one.key) for one in bold.client.events_named("unprotected")] == [("ERROR", "order:1")]
    assert opened.read(number=1) is None, "there is no record of it"


@pytest.mark.mission("A7")
@pytest.mark.fault("F50")
def test_a_saga_without_a_store_is_undone_from_memory_if_it_has_to_be(shop: Shop) -> None:
    order = shop.usual(on_store_down="run")
    shop.trouble["ship"] = [Refused("no")]
    with shop.client.store_trouble("claim"):
        outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.error_type) == ("failed", "Refused")
    assert shop.log == ["reserve", "charge", "ship", "undo charge", "undo reserve"]


def test_while_disabled_steps_and_compensations_run_without_a_record(shop: Shop) -> None:
    order = shop.usual()
    with testing.disabled():
        assert order.outcome(number=1).reason == "disabled"
        shop.trouble["ship"] = [Refused()]
        assert order.outcome(number=2).kind == "failed"
    assert shop.log[4:] == ["reserve", "charge", "ship", "undo charge", "undo reserve"]
    assert order.read(number=1) is None


@pytest.mark.fault("F28")
def test_a_cancelled_task_leaves_the_saga_to_the_next_worker() -> None:
    log: list[str] = []

    async def main() -> None:
        inside = asyncio.Event()

        async def first(step: StepContext) -> None:
            log.append("first")

        async def hang(step: StepContext) -> None:
            log.append("hang")
            if log.count("hang") == 1:
                inside.set()
                await asyncio.Event().wait()

        async with AsyncOnce(MemoryStore()) as once:
            saga = once.saga("s", Step("first", first, undo=first), Step("hang", hang, kind="pivot"), key="s:{n}")
            task = asyncio.create_task(saga(n=1))
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await saga.outcome(n=1)).attempt == 2

    asyncio.run(main())
    assert log == ["first", "hang", "hang"]
