"""Latest state (`store.latest`): any order and repetition of the same events must lead to the same state."""

from __future__ import annotations

from functools import partial
from itertools import pairwise, permutations

from msgspec.structs import replace

from onceward.protocol.capabilities import LatestStates
from onceward.protocol.latest import (
    APPLIED,
    DUPLICATE_EVENT,
    DUPLICATE_MESSAGE,
    EVENT_MISMATCH,
    MISMATCH,
    PARKED,
    STALE,
    EntityState,
    EventDelivery,
    LatestDecision,
    LatestResult,
    Retention,
)
from onceward.protocol.ordering import content_of, encode_position

from .factory import StoreFactory, check
from .harness import DAY, HOUR, SECOND, TIMEOUT, Harness, assert_equal, id_of

RETENTION = Retention(marks=7 * DAY, deleted=30 * DAY)
BASE = 1_700_000_000 * SECOND
ENTITIES = ("one", "two", "three")
ORDER_PREFIXES = (
    b"",
    b"\0",
    b"\0\0",
    b"\0\1",
    b"A",
    b"B",
    b"_",
    b"a",
    b"a\0",
    b"a\0b",
    b"ab",
    b"b",
    b"\x7f",
    b"\x80",
    b"\xff",
)
"""Bytes that collations, C strings and signed bytes sort incorrectly."""
DELIVERERS = 4


def event(
    entity: str = "one",
    time: int | None = 1,
    value: bytes | None = b"value",
    *,
    sequence: int | None = None,
    published: int | None = None,
    message: str | None = None,
    event: str | None = None,
    not_before: int = 0,
) -> EventDelivery:
    """Return a delivery. Times are in seconds after `BASE`; the content hash depends on the value."""
    at = None if time is None else (BASE + time * SECOND, 0)
    content = f"{at} {sequence} {value!r}"
    position = encode_position(at, sequence, None if published is None else (BASE + published * SECOND, 0), message)
    id = id_of(entity)
    return EventDelivery(
        id,
        "kit",
        entity,
        position.order(b"\1" + id_of(content)[:15]),
        value,
        b"" if message is None else id_of(message, f"message {entity}")[:16],
        b"" if event is None else id_of(event, f"event {entity}")[:16],
        message or "",
        not_before,
    )


class Deliverer:
    """A client that delivers events to its own store."""

    def __init__(self, store: LatestStates) -> None:
        self.store = store

    async def send(self, *deliveries: EventDelivery, retention: Retention = RETENTION) -> list[LatestResult]:
        answers = await self.store.apply_events(deliveries, retention, timeout=TIMEOUT)
        assert_equal(len(answers), len(deliveries), "answers")
        return answers

    async def decisions(self, *deliveries: EventDelivery) -> list[LatestDecision]:
        return [answer.decision for answer in await self.send(*deliveries)]

    async def expect(self, wanted: LatestResult | list[LatestResult], *deliveries: EventDelivery, what: str) -> None:
        """Deliver the events, and assert the results."""
        assert_equal(await self.send(*deliveries), wanted if isinstance(wanted, list) else [wanted], what)

    async def state(self, entity: str = "one") -> EntityState | None:
        [state] = await self.store.read_latest([id_of(entity)], timeout=TIMEOUT)
        return state

    async def value(self, entity: str = "one") -> bytes | None:
        state = await self.state(entity)
        return None if state is None else state.value


async def deliverer(harness: Harness) -> Deliverer:
    return Deliverer((await harness.caller()).capability("latest"))


class LatestChecks(StoreFactory):
    """For stores with `latest`; skipped for others."""

    @check(mission=("E2", "E3"), rival=(18,))
    async def test_of_concurrent_deliveries_of_a_message_one_is_applied(self, harness: Harness) -> None:
        pool = [await deliverer(harness) for _ in range(DELIVERERS)]
        for number in range(8):
            delivery = event(time=number, message=f"message {number}")
            answers = await harness.run_concurrently([partial(one.send, delivery) for one in pool])
            answers.sort(key=lambda answer: answer[0].decision)
            assert_equal(answers, [[APPLIED]] + [[DUPLICATE_MESSAGE]] * (DELIVERERS - 1), "their results")

    @check(mission=("E3", "E6"))
    async def test_a_newer_event_is_applied_and_an_older_one_is_stale(self, harness: Harness) -> None:
        one = await deliverer(harness)
        assert_equal(await one.state(), None, "the state before any event")
        await one.expect(APPLIED, event(time=5, value=b"five"), what="the first")
        await one.expect(STALE, event(time=4, value=b"four"), what="an older one")
        assert_equal(await one.value(), b"five", "the value")
        await one.expect(APPLIED, event(time=6, value=b"six"), what="a newer one")
        state = await one.state()
        assert state is not None, "the state is missing"
        assert_equal(state.order, event(time=6, value=b"six").order, "the stored order")
        assert_equal(
            (state.value, state.scope, state.entity), (b"six", "kit", "one"), "the stored value, scope and entity"
        )

    @check(mission=("E6",))
    async def test_orders_are_compared_byte_by_byte(self, harness: Harness) -> None:
        """Not by length, not as text with a collation, and not only up to the first NUL."""
        one = await deliverer(harness)
        orders = [start + b"\1" + b"content" * 2 + b"\0" for start in ORDER_PREFIXES]
        pairs = {f"{pair}": pair for pair in permutations(orders, 2)}
        for index in (0, 1):
            given = [replace(event(name), order=pair[index], value=pair[index]) for name, pair in pairs.items()]
            await one.decisions(*given)
        found = await one.store.read_latest([id_of(name) for name in pairs], timeout=TIMEOUT)
        for state, pair in zip(found, pairs.values(), strict=True):
            assert_equal(state and state.value, bytes(max(list(each) for each in pair)), f"the newer of {pair}")

    @check(mission=("E6",), fault=("F73",))
    async def test_a_tie_is_decided_by_content_whichever_comes_first(self, harness: Harness) -> None:
        one = await deliverer(harness)
        low, high = sorted((event(value=b"a"), event(value=b"b")), key=lambda each: content_of(each.order))
        for number, (first, second) in enumerate(((low, high), (high, low))):
            entity = ENTITIES[number]
            given = [replace(each, id=id_of(entity), entity=entity) for each in (first, second)]
            await one.expect(APPLIED, given[0], what="the first")
            expected = replace(APPLIED if second is high else STALE, conflict=True)
            await one.expect(expected, given[1], what="the second")
            assert_equal(await one.value(entity), high.value, "the value")

    @check(mission=("E6",))
    async def test_parts_decide_in_their_order_and_a_missing_one_is_lowest(self, harness: Harness) -> None:
        one = await deliverer(harness)
        rising = [
            partial(event, time=None, sequence=9, published=9, message="x"),
            partial(event, time=1, message="z"),
            partial(event, time=1, published=1),
            partial(event, time=1, published=2, message="a"),
            partial(event, time=1, published=2, message="b"),
            partial(event, time=1, sequence=-5),
            partial(event, time=1, sequence=3, published=9, message="z"),
            partial(event, time=1, sequence=200),
            partial(event, time=2),
        ]
        for number, (lower, higher) in enumerate(pairwise(rising)):
            ascending, descending = f"{number} ascending", f"{number} descending"
            given = lower(ascending), higher(ascending), higher(descending), lower(descending)
            await one.expect([APPLIED, APPLIED, APPLIED, STALE], *given, what=f"steps from {number} on")

    @check(mission=("E3", "E4"))
    async def test_a_known_message_is_a_duplicate_or_a_mismatch(self, harness: Harness) -> None:
        one = await deliverer(harness)
        first = event(time=5, value=b"first", message="m")
        await one.expect(APPLIED, first, what="the first delivery")
        await one.expect(DUPLICATE_MESSAGE, first, what="the second delivery")
        other = event(time=9, value=b"other", message="m")
        await one.expect(MISMATCH, other, what="the same message with other content")
        assert_equal(await one.value(), b"first", "the value")
        later = event(time=5, value=b"first", message="m", published=7)
        await one.expect(DUPLICATE_MESSAGE, later, what="the same content, published later")
        state = await one.state()
        assert state is not None, "the state is missing"
        assert_equal(state.order, first.order, "the order: a known message changes nothing")

    @check(mission=("E3",))
    async def test_a_stale_event_marks_its_message_as_known(self, harness: Harness) -> None:
        one = await deliverer(harness)
        await one.decisions(event(time=5))
        stale = event(time=4, message="late", event="late event")
        await one.expect([STALE, DUPLICATE_MESSAGE], stale, stale, what="twice the same stale message")
        await one.expect(MISMATCH, event(time=3, message="late"), what="with other content")
        await one.expect(DUPLICATE_EVENT, event(time=4, message="new", event="late event"), what="its event")

    @check(mission=("E4",))
    async def test_a_republished_event_changes_nothing_whatever_its_transport_says(self, harness: Harness) -> None:
        one = await deliverer(harness)
        first = event(time=5, value=b"v", message="m1", event="e", published=1)
        again = event(time=5, value=b"v", message="m2", event="e", published=2)
        await one.expect(APPLIED, first, what="the event")
        before = await one.state()
        await one.expect(DUPLICATE_EVENT, again, what="published again")
        assert_equal(await one.state(), before, "the state: nothing of it changes")
        await one.expect(DUPLICATE_MESSAGE, again, what="its second message, delivered again")

    @check(mission=("E4",))
    async def test_a_known_event_with_other_content_is_a_mismatch(self, harness: Harness) -> None:
        one = await deliverer(harness)
        await one.decisions(event(time=5, value=b"v", message="m1", event="e"))
        before = await one.state()
        for time in (1, 5, 9):
            other = event(time=time, value=b"other", message=f"m at {time}", event="e")
            await one.expect([EVENT_MISMATCH] * 2, other, other, what=f"other content at {time}")
        assert_equal(await one.state(), before, "the state: a mismatch changes nothing")
        await one.expect(
            APPLIED,
            event(time=9, value=b"new", message="m at 9", event="another"),
            what="the message of a mismatch is not remembered",
        )

    @check(mission=("E6",))
    async def test_events_without_an_id_are_identified_by_their_order(self, harness: Harness) -> None:
        one = await deliverer(harness)
        await one.expect([APPLIED, DUPLICATE_MESSAGE], event(), event(), what="twice the same")

    @check(mission=("E5",))
    async def test_entities_do_not_share_messages(self, harness: Harness) -> None:
        """One message may contain events of several entities."""
        one = await deliverer(harness)
        given = [event(entity, message="m", event="e", value=entity.encode()) for entity in ENTITIES]
        await one.expect([APPLIED] * len(ENTITIES), *given, what="one message with three entities")
        assert_equal([await one.value(entity) for entity in ENTITIES], [b"one", b"two", b"three"], "the values")

    @check(mission=("E6",))
    async def test_older_events_do_not_restore_a_deleted_entity(self, harness: Harness) -> None:
        one = await deliverer(harness)
        await one.decisions(event(time=1, value=b"v"))
        gone = event(time=5, value=None, message="delete")
        await one.expect(APPLIED, gone, what="the delete")
        await one.expect(STALE, event(time=4, value=b"v", message="late"), what="an older event")
        state = await one.state()
        assert state is not None, "the order of a deleted entity must remain"
        assert_equal((state.order, state.value), (gone.order, None), "the tombstone")
        await one.expect(
            [APPLIED, STALE], event("two", time=5, value=None), event("two", time=4), what="a delete that comes first"
        )
        await one.expect(APPLIED, event(time=6, value=b"back"), what="a newer event")
        assert_equal(await one.value(), b"back", "the value")

    @check(mission=("E7",), needs=("fake_clock",))
    async def test_the_tombstone_of_a_deleted_entity_expires(self, harness: Harness) -> None:
        one = await deliverer(harness)
        await one.decisions(event(time=5, value=None))
        harness.move_clock(RETENTION.deleted - SECOND)
        await one.expect(STALE, event(time=4), what="an older event, one second before the tombstone expires")
        harness.move_clock(SECOND)
        assert_equal(await one.state(), None, "the state, after it has expired")
        await one.expect(APPLIED, event(time=4), what="an older event, after it has expired")
        await one.decisions(event(time=9, value=None))
        await one.decisions(event(time=10, value=b"back"))
        harness.move_clock(RETENTION.deleted)
        await one.store.expire_latest(100, timeout=TIMEOUT)
        assert_equal(await one.value(), b"back", "an entity that was recreated before its tombstone expired")
        await one.decisions(event(time=11, value=None))
        harness.move_clock(RETENTION.deleted)
        assert_equal(await one.state(), None, "an entity that had a value, was deleted, and expired")

    @check(mission=("E7",), needs=("fake_clock",))
    async def test_marks_expire_and_are_deleted_in_batches(self, harness: Harness) -> None:
        one = await deliverer(harness)
        known = [event(time=time, message=f"m{time}", event=f"e{time}") for time in range(5)]
        await one.decisions(*known)
        harness.move_clock(RETENTION.marks - SECOND)
        await one.expect(DUPLICATE_MESSAGE, known[0], what="a message, one second before its mark expires")
        assert_equal(await one.store.expire_latest(100, timeout=TIMEOUT), 0, "marks expired before that time")
        harness.move_clock(SECOND)
        await one.expect(STALE, known[0], what="a message whose mark has expired is new")
        await one.expect(DUPLICATE_MESSAGE, known[0], what="the same message again")
        await one.decisions(event("two", time=1, value=None))
        harness.move_clock(RETENTION.deleted)
        gone = [await one.store.expire_latest(2, timeout=TIMEOUT) for _ in range(8)]
        assert max(gone) <= 2, f"expire_latest(2) deleted {max(gone)}"
        assert gone[-1] == 0, "repeated calls must delete everything that has expired"
        assert_equal(await one.value(), b"value", "the value: states never expire")

    @check(mission=("E7",), needs=("fake_clock", "expires_data"))
    async def test_a_store_in_use_expires_old_data(self, harness: Harness) -> None:
        """Expired data is deleted without a purge."""
        one = await deliverer(harness)
        for week in range(3):
            await one.decisions(*(event(time=n, message=f"{week} {n}", event=f"{week} {n}") for n in range(10)))
            harness.move_clock(RETENTION.marks)
        await one.decisions(*(event(time=n, message=f"last {n}") for n in range(10)))
        assert_equal(await one.store.expire_latest(100, timeout=TIMEOUT), 0, "expired data that is left")

    @check(fault=("F43",), needs=("fake_clock",))
    async def test_a_future_event_is_parked_and_stores_nothing(self, harness: Harness) -> None:
        one = await deliverer(harness)
        early = event(time=5, message="early", event="e", not_before=harness.clock.now() + HOUR)
        await one.expect([PARKED] * 2, early, early, what="an event of the future")
        assert_equal(await one.state(), None, "the state after it")
        await one.expect(APPLIED, event(time=1, message="m"), what="an event of the present")
        harness.move_clock(HOUR)
        await one.expect([APPLIED, DUPLICATE_MESSAGE], early, early, what="the same event, when its time has come")

    @check()
    async def test_large_and_empty_batches_work(self, harness: Harness) -> None:
        one = await deliverer(harness)
        assert_equal(await one.send(), [], "answers to an empty batch")
        entities = self.max_batch_size // 3
        many = [event(f"entity {n % entities}", time=n, message=f"m{n}", event=f"e{n}") for n in range(3 * entities)]
        assert_equal(set(await one.decisions(*many)), {LatestDecision.APPLIED}, "events in ascending order")
        assert_equal(set(await one.decisions(*many)), {LatestDecision.DUPLICATE_MESSAGE}, "the same again")
        found = await one.store.read_latest([id_of(f"entity {n}") for n in range(entities + 1)], timeout=TIMEOUT)
        newest = [each.order for each in many[2 * entities :]]
        assert_equal([each and each.order for each in found], [*newest, None], "the states")

    @check(needs=("durable",))
    async def test_states_and_marks_survive_reopening(self, harness: Harness) -> None:
        caller = await harness.caller()
        before = Deliverer(caller.capability("latest"))
        await before.decisions(event(time=5, message="m"), event("two", value=None))
        states = [await before.state(entity) for entity in ENTITIES]
        await harness.close_caller(caller)
        after = await deliverer(harness)
        found = [await after.state(entity) for entity in ENTITIES]
        assert_equal(found, states, "the states, after reopening the store")
        await after.expect(DUPLICATE_MESSAGE, event(time=5, message="m"), what="a message from before")
