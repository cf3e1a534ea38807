"""Histories of events, in any order, any number of times, from anywhere: all end in the same state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from onceward.protocol.latest import EventDelivery, LatestDecision
from onceward.stores.clock import WallClock

from .factory import StoreFactory, check
from .latest import ENTITIES, Deliverer, deliverer, event
from .processes import kit_of, spawn
from .runtimes import COLOURS, PATIENCE
from .stage import TIMEOUT, Stage, assert_equal, id_of

DELIVERERS = 4
States = dict[str, tuple[bytes, bytes | None] | None]


def wanted(history: Sequence[EventDelivery]) -> States:
    """What must be left of a history: by entity the highest order, compared byte by byte."""
    states: States = dict.fromkeys(ENTITIES)
    for one in history:
        before = states[one.entity]
        if before is None or list(one.order) > list(before[0]):
            states[one.entity] = (one.order, one.value)
    return states


def made_up(dice: Random, size: int) -> list[EventDelivery]:
    """A history with all that makes convergence hard: ties, missing parts, deletes, messages published again."""
    return [
        event(
            dice.choice(ENTITIES),
            dice.choice((None, 1, 2, 2, 2)),
            None if dice.random() < 0.2 else dice.choice((b"", b"a", b"b", b"\0\xff")),
            sequence=dice.choice((None, -1, 128, 256, 256)),
            published=dice.choice((None, None, 1, 2)),
            message=None if dice.random() < 0.5 else f"message {number}",
            event=f"event {dice.randrange(4)}" if dice.random() < 0.3 else None,
        )
        for number in range(size)
    ]


def delivered(dice: Random, history: Sequence[EventDelivery]) -> list[EventDelivery]:
    """In another order, some of it several times."""
    again = [*history, *dice.choices(history, k=len(history))]
    dice.shuffle(again)
    return again


def batches(dice: Random, history: Sequence[EventDelivery]) -> list[Sequence[EventDelivery]]:
    chunks, start = [], 0
    while start < len(history):
        size = dice.choice((1, 1, 2, 5, 40))
        chunks.append(history[start : start + size])
        start += size
    return chunks


async def deliver(whom: Deliverer, history: Sequence[EventDelivery], dice: Random) -> None:
    for batch in batches(dice, history):
        assert LatestDecision.MISMATCH not in await whom.told(*batch), (
            "no message of this history came with other content"
        )


async def states(whom: Deliverer, life: Any = None) -> States:
    found = await whom.store.latest([_id(entity, life) for entity in ENTITIES], timeout=TIMEOUT)
    return {
        entity: None if one is None else (one.order, one.value) for entity, one in zip(ENTITIES, found, strict=True)
    }


class LatestHistoryChecks(StoreFactory):
    """For stores with the capability `KeepsNewest`; the others skip them."""

    @check(mission=("E6",))
    async def test_any_order_and_repetition_of_a_history_ends_in_the_same_state(self, stage: Stage) -> None:
        one = await deliverer(stage)
        for seed in range(12):
            dice = Random(seed)
            history = [_renamed(delivery, seed) for delivery in made_up(dice, 20)]
            await deliver(one, delivered(dice, history), dice)
            assert_equal(await states(one, seed), wanted(history), f"the state after history {seed}")

    @check(mission=("E2", "E6"), rival=(18,))
    async def test_concurrent_deliveries_of_a_history_end_in_the_same_state(self, stage: Stage) -> None:
        pool = [await deliverer(stage) for _ in range(DELIVERERS)]
        history = made_up(Random(1), 60)
        jobs = [partial(deliver, one, delivered(Random(n), history), Random(n)) for n, one in enumerate(pool)]
        await stage.together(jobs)
        assert_equal(await states(pool[0]), wanted(history), "the state after all have delivered all of it")

    @check(mission=("E2", "E6"), rival=(18,))
    async def test_of_different_events_at_once_the_newest_stays(self, stage: Stage) -> None:
        pool = [await deliverer(stage) for _ in range(DELIVERERS)]
        for number in range(10):
            given = [event(f"entity {number}", time, b"%d" % time, message=f"m {time}") for time in range(DELIVERERS)]
            Random(number).shuffle(given)
            await stage.together([partial(one.told, each) for one, each in zip(pool, given, strict=True)])
            assert_equal(await pool[0].value(f"entity {number}"), b"%d" % (DELIVERERS - 1), "the value")

    @check()
    async def test_a_batch_is_the_same_as_one_after_the_other(self, stage: Stage) -> None:
        one = await deliverer(stage)
        for seed in range(4):
            dice = Random(seed)
            history = delivered(dice, made_up(dice, 40))
            history.append(replace(history[0], order=event(time=99, value=b"other").order, message=b"m" * 16))
            history.append(replace(history[0], order=event(time=98, value=b"more").order, message=b"m" * 16))
            batched = await one.send(*[_renamed(delivery, f"{seed} batched") for delivery in history])
            single = [(await one.send(_renamed(delivery, f"{seed} single")))[0] for delivery in history]
            assert_equal(batched, single, "the answers, in the order of the deliveries")
            assert len({answer.decision for answer in batched}) >= 4, "a history in which little happens shows little"

    @check(mission=("E2", "E6"), rival=(18,), needs=("shared",))
    async def test_processes_that_deliver_a_history_end_in_the_same_state(self, stage: Stage) -> None:
        stage.clock = WallClock()
        stage.fake = None
        parent = await deliverer(stage)
        reports = spawn(self, stage, deliver_in_child)
        history = made_up(Random(1), 60)
        assert_equal(await states(parent), wanted(history), "the state after all children have delivered all of it")
        applied = [message for report in reports for message in report["applied"]]
        assert_equal(len(applied), len(set(applied)), "how often messages were applied, and how many there were")


def deliver_in_child(factory: str, mode: str, place: str, number: int, start: Barrier) -> dict[str, list[str]]:
    """What each child does: deliver all of the history in an order of its own."""
    chosen = COLOURS[mode]

    async def work() -> dict[str, list[str]]:
        stage = Stage(kit_of(factory), chosen, Path(place))
        stage.clock = WallClock()
        stage.fake = None
        whom = await deliverer(stage)
        start.wait(PATIENCE)
        applied = []
        dice = Random(number)
        for batch in batches(dice, delivered(dice, made_up(Random(1), 60))):
            told = await whom.told(*batch)
            named = zip(batch, told, strict=True)
            applied += [one.trace for one, ruling in named if one.trace and ruling is LatestDecision.APPLIED]
        await stage.end()
        return {"applied": applied}

    return chosen.run(work())


def _id(entity: str, life: Any) -> bytes:
    return id_of(entity) if life is None else id_of(entity, f"life {life}")


def _renamed(one: EventDelivery, life: Any) -> EventDelivery:
    """The same delivery to other entities of the same names."""
    mark = {
        name: getattr(one, name) and id_of(getattr(one, name).hex(), f"life {life}")[:16]
        for name in ("message", "event")
    }
    return replace(one, id=_id(one.entity, life), **mark)
