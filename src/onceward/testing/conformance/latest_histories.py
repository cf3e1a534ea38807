"""Histories of events: any order, repetition and concurrency must lead to the same state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from multiprocessing.synchronize import Barrier
from random import Random
from typing import Any

from msgspec.structs import replace

from onceward.protocol.latest import EventDelivery, LatestDecision
from onceward.protocol.ordering import Ordering, content_of, decode_ordering, position_of

from .factory import StoreFactory, check
from .harness import TIMEOUT, Harness, assert_equal, id_of
from .latest import ENTITIES, Deliverer, deliverer, event
from .processes import Report, spawn
from .runtimes import DEADLOCK_TIMEOUT

DELIVERERS = 4
States = dict[str, tuple[bytes, bytes | None] | None]

REPUBLISHED = 1_000
"""Sequence numbers from this on belong to events that are published several times."""


def expected_states(history: Sequence[EventDelivery]) -> States:
    """Return the expected state of each entity: that with the highest order, compared byte by byte."""
    states: States = dict.fromkeys(ENTITIES)
    for one in history:
        before, order = states[one.entity], comparable(one.order)
        if before is None or list(order) > list(before[0]):
            states[one.entity] = (order, one.value)
    return states


def comparable(order: bytes) -> bytes:
    """Return the order without publish time and message id if its event is published several times.

    Of such an event, the message that arrives first is accepted, so its transport fields depend on the arrival.
    """
    parts = decode_ordering(order)
    if parts.sequence is None or parts.sequence < REPUBLISHED:
        return order
    return position_of(Ordering(parts.event_time, parts.sequence)).order(content_of(order))


def random_events(rng: Random, size: int) -> list[EventDelivery]:
    """Return events that make convergence hard: ties, missing parts, deletions, republished messages."""
    return [_random_event(rng, number) for number in range(size)]


def _random_event(rng: Random, number: int) -> EventDelivery:
    message = None if rng.random() < 0.5 else f"message {number}"
    published = rng.choice((None, None, 1, 2))
    if rng.random() < 0.2:  # an event with an id, which has the same content in each of its messages
        kind = rng.randrange(4)
        value = None if kind == 0 else b"%d" % kind
        return event(
            rng.choice(ENTITIES), 2 if kind == 3 else 1, value, sequence=REPUBLISHED + kind, published=published,
            message=message, event=f"event {kind}",
        )  # fmt: skip
    return event(
        rng.choice(ENTITIES),
        rng.choice((None, 1, 2, 2, 2)),
        None if rng.random() < 0.2 else rng.choice((b"", b"a", b"b", b"\0\xff")),
        sequence=rng.choice((None, -1, 128, 256, 256)),
        published=published,
        message=message,
    )


def shuffled_with_repeats(rng: Random, history: Sequence[EventDelivery]) -> list[EventDelivery]:
    """Return the events in another order, some of them several times."""
    again = [*history, *rng.choices(history, k=len(history))]
    rng.shuffle(again)
    return again


def batches(rng: Random, history: Sequence[EventDelivery]) -> list[Sequence[EventDelivery]]:
    chunks, start = [], 0
    while start < len(history):
        size = rng.choice((1, 1, 2, 5, 40))
        chunks.append(history[start : start + size])
        start += size
    return chunks


async def deliver(source: Deliverer, history: Sequence[EventDelivery], rng: Random) -> None:
    for batch in batches(rng, history):
        mismatches = {LatestDecision.MISMATCH, LatestDecision.EVENT_MISMATCH} & set(await source.decisions(*batch))
        assert not mismatches, "no message and no event of this history has two different contents"


async def states(source: Deliverer, namespace: Any = None) -> States:
    found = await source.store.read_latest([_id(entity, namespace) for entity in ENTITIES], timeout=TIMEOUT)
    return {
        entity: None if one is None else (comparable(one.order), one.value)
        for entity, one in zip(ENTITIES, found, strict=True)
    }


class LatestHistoryChecks(StoreFactory):
    """For stores with `latest`; skipped for others."""

    @check(mission=("E6",))
    async def test_any_order_and_repetition_of_a_history_ends_in_the_same_state(self, harness: Harness) -> None:
        one = await deliverer(harness)
        for seed in range(16):
            rng = Random(seed)
            history = [_renamed(delivery, seed) for delivery in random_events(rng, 20)]
            await deliver(one, shuffled_with_repeats(rng, history), rng)
            assert_equal(await states(one, seed), expected_states(history), f"the state after history {seed}")

    @check(mission=("E2", "E6"), rival=(18,))
    async def test_concurrent_deliveries_of_a_history_end_in_the_same_state(self, harness: Harness) -> None:
        pool = [await deliverer(harness) for _ in range(DELIVERERS)]
        history = random_events(Random(1), 60)
        jobs = [
            partial(deliver, one, shuffled_with_repeats(Random(n), history), Random(n)) for n, one in enumerate(pool)
        ]
        await harness.run_concurrently(jobs)
        assert_equal(await states(pool[0]), expected_states(history), "the state after all callers are done")

    @check(mission=("E2", "E6"), rival=(18,))
    async def test_of_concurrent_events_the_newest_wins(self, harness: Harness) -> None:
        pool = [await deliverer(harness) for _ in range(DELIVERERS)]
        for number in range(10):
            given = [event(f"entity {number}", time, b"%d" % time, message=f"m {time}") for time in range(DELIVERERS)]
            Random(number).shuffle(given)
            await harness.run_concurrently(
                [partial(one.decisions, each) for one, each in zip(pool, given, strict=True)]
            )
            assert_equal(await pool[0].value(f"entity {number}"), b"%d" % (DELIVERERS - 1), "the value")

    @check()
    async def test_a_batch_equals_single_deliveries(self, harness: Harness) -> None:
        one = await deliverer(harness)
        for seed in range(4):
            rng = Random(seed)
            history = shuffled_with_repeats(rng, random_events(rng, 40))
            history.append(replace(history[0], order=event(time=99, value=b"other").order, message=b"m" * 16))
            history.append(replace(history[0], order=event(time=98, value=b"more").order, message=b"m" * 16))
            batched = await one.send(*[_renamed(delivery, f"{seed} batched") for delivery in history])
            single = [(await one.send(_renamed(delivery, f"{seed} single")))[0] for delivery in history]
            assert_equal(batched, single, "the answers, in the order of the deliveries")
            assert len({answer.decision for answer in batched}) >= 4, (
                "the history must lead to at least four different decisions"
            )

    @check(mission=("E2", "E6"), rival=(18,), needs=("shared",))
    async def test_processes_that_deliver_a_history_end_in_the_same_state(self, harness: Harness) -> None:
        harness.use_wall_clock()
        parent = await deliverer(harness)
        reports = spawn(self, harness, deliver_in_child)
        history = random_events(Random(1), 60)
        assert_equal(await states(parent), expected_states(history), "the state after all processes are done")
        applied = [message for report in reports for message in report["applied"]]
        assert_equal(
            len(applied), len(set(applied)), "number of applied deliveries, compared with the number of messages"
        )


async def deliver_in_child(harness: Harness, number: int, start: Barrier) -> Report:
    """Deliver the whole history in this child's own order. Runs in each child process."""
    source = await deliverer(harness)
    start.wait(DEADLOCK_TIMEOUT)
    applied = []
    rng = Random(number)
    for batch in batches(rng, shuffled_with_repeats(rng, random_events(Random(1), 60))):
        named = zip(batch, await source.decisions(*batch), strict=True)
        applied += [one.trace for one, decision in named if one.trace and decision is LatestDecision.APPLIED]
    return {"applied": applied}


def _id(entity: str, namespace: Any) -> bytes:
    return id_of(entity) if namespace is None else id_of(entity, f"namespace {namespace}")


def _renamed(one: EventDelivery, namespace: Any) -> EventDelivery:
    """Return the same delivery for other entities with the same names."""
    mark = {
        name: getattr(one, name) and id_of(getattr(one, name).hex(), f"namespace {namespace}")[:16]
        for name in ("message", "event")
    }
    return replace(one, id=_id(one.entity, namespace), **mark)
