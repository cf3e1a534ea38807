"""Newest wins (the port `KeepsLatest`): whatever the order in which events arrive, and however often, one state."""

from __future__ import annotations

from functools import partial
from itertools import pairwise, permutations
from unittest import SkipTest

from msgspec.structs import replace

from onceward.protocol.capabilities import KeepsLatest
from onceward.protocol.latest import EntityState, EventDelivery, LatestDecision, LatestResult, Retention
from onceward.protocol.ordering import content_of, encode_position

from .factory import StoreFactory, check
from .stage import DAY, HOUR, SECOND, TIMEOUT, Stage, assert_equal, id_of

KEEP = Retention(marks=7 * DAY, deleted=30 * DAY)
BASE = 1_700_000_000 * SECOND
ENTITIES = ("one", "two", "three")
STARTS = (b"", b"\0", b"\0\0", b"\0\1", b"A", b"B", b"_", b"a", b"a\0", b"a\0b", b"ab", b"b", b"\x7f", b"\x80", b"\xff")
"""What collations, C strings and signed bytes get wrong."""
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
    """A delivery. Times are seconds after some day; the content is the value's."""
    at = None if time is None else (BASE + time * SECOND, 0)
    said = f"{at} {sequence} {value!r}"
    place = encode_position(at, sequence, None if published is None else (BASE + published * SECOND, 0), message)
    id = id_of(entity)
    return EventDelivery(
        id,
        "kit",
        entity,
        place.order(b"\1" + id_of(said)[:15]),
        value,
        b"" if message is None else id_of(message, f"message {entity}")[:16],
        b"" if event is None else id_of(event, f"event {entity}")[:16],
        message or "",
        not_before,
    )


class Deliverer:
    """Somebody who hands events to a store of their own."""

    def __init__(self, store: KeepsLatest) -> None:
        self.store = store

    async def send(self, *deliveries: EventDelivery, keep: Retention = KEEP) -> list[LatestResult]:
        answers = await self.store.apply_events(deliveries, keep, timeout=TIMEOUT)
        assert_equal(len(answers), len(deliveries), "answers")
        return answers

    async def told(self, *deliveries: EventDelivery) -> list[LatestDecision]:
        return [answer.decision for answer in await self.send(*deliveries)]

    async def state(self, entity: str = "one") -> EntityState | None:
        [standing] = await self.store.latest([id_of(entity)], timeout=TIMEOUT)
        return standing

    async def value(self, entity: str = "one") -> bytes | None:
        standing = await self.state(entity)
        return None if standing is None else standing.value

    async def states(self) -> dict[str, tuple[bytes, bytes | None] | None]:
        found = await self.store.latest([id_of(entity) for entity in ENTITIES], timeout=TIMEOUT)
        return {
            entity: None if one is None else (one.order, one.value) for entity, one in zip(ENTITIES, found, strict=True)
        }


async def deliverer(stage: Stage) -> Deliverer:
    caller = await stage.caller()
    if not isinstance(caller.store, KeepsLatest):
        raise SkipTest("this store does not keep the newest state of entities")
    return Deliverer(caller.store)


class LatestChecks(StoreFactory):
    """For stores with the capability; the others skip them."""

    @check(mission=("E2", "E3"), rival=(18,))
    async def test_of_many_who_bring_the_same_message_one_applies_it(self, stage: Stage) -> None:
        pool = [await deliverer(stage) for _ in range(DELIVERERS)]
        for number in range(8):
            bring = event(time=number, message=f"message {number}")
            answers = await stage.together([partial(one.told, bring) for one in pool])
            told = sorted(ruling for [ruling] in answers)
            assert_equal(
                told,
                [LatestDecision.APPLIED] + [LatestDecision.DUPLICATE_MESSAGE] * (DELIVERERS - 1),
                "what they are told",
            )

    @check(mission=("E3", "E6"))
    async def test_a_newer_event_is_applied_and_an_older_one_is_stale(self, stage: Stage) -> None:
        one = await deliverer(stage)
        assert_equal(await one.state(), None, "the state before any event")
        assert_equal(
            await one.send(event(time=5, value=b"five")),
            [LatestResult(LatestDecision.APPLIED, applied=True)],
            "the first",
        )
        assert_equal(await one.send(event(time=4, value=b"four")), [LatestResult(LatestDecision.STALE)], "an older one")
        assert_equal(await one.value(), b"five", "the value")
        assert_equal(await one.told(event(time=6, value=b"six")), [LatestDecision.APPLIED], "a newer one")
        standing = await one.state()
        assert standing is not None, "the state is not there"
        assert_equal(standing.order, event(time=6, value=b"six").order, "the order that is kept")
        assert_equal((standing.value, standing.scope, standing.entity), (b"six", "kit", "one"), "what is kept")

    @check(mission=("E6",))
    async def test_orders_are_compared_byte_by_byte(self, stage: Stage) -> None:
        """Not by length, not as text of any language, and without an end at a NUL."""
        one = await deliverer(stage)
        orders = [start + b"\1" + b"content" * 2 + b"\0" for start in STARTS]
        pairs = {f"{pair}": pair for pair in permutations(orders, 2)}
        for turn in (0, 1):
            given = [replace(event(name), order=pair[turn], value=pair[turn]) for name, pair in pairs.items()]
            await one.told(*given)
        found = await one.store.latest([id_of(name) for name in pairs], timeout=TIMEOUT)
        for standing, pair in zip(found, pairs.values(), strict=True):
            assert_equal(standing and standing.value, bytes(max(list(each) for each in pair)), f"the newer of {pair}")

    @check(mission=("E6",), fault=("F73",))
    async def test_a_tie_is_decided_by_content_whichever_comes_first(self, stage: Stage) -> None:
        one = await deliverer(stage)
        low, high = sorted((event(value=b"a"), event(value=b"b")), key=lambda each: content_of(each.order))
        for number, (first, second) in enumerate(((low, high), (high, low))):
            entity = ENTITIES[number]
            given = [replace(each, id=id_of(entity), entity=entity) for each in (first, second)]
            assert_equal(await one.told(given[0]), [LatestDecision.APPLIED], "the first")
            ruled = (
                LatestResult(LatestDecision.APPLIED, applied=True, conflict=True)
                if second is high
                else LatestResult(LatestDecision.STALE, conflict=True)
            )
            assert_equal(await one.send(given[1]), [ruled], "the second")
            assert_equal(await one.value(entity), high.value, "the value")

    @check(mission=("E6",))
    async def test_parts_decide_in_their_order_and_a_missing_one_is_lowest(self, stage: Stage) -> None:
        one = await deliverer(stage)
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
            there, back = f"{number} there", f"{number} back"
            told = await one.told(lower(there), higher(there), higher(back), lower(back))
            assert_equal(
                told,
                [LatestDecision.APPLIED, LatestDecision.APPLIED, LatestDecision.APPLIED, LatestDecision.STALE],
                f"steps from {number} on",
            )

    @check(mission=("E3", "E4"))
    async def test_a_message_that_is_known_is_a_duplicate_and_with_other_content_a_mismatch(self, stage: Stage) -> None:
        one = await deliverer(stage)
        first = event(time=5, value=b"first", message="m")
        assert_equal(await one.told(first), [LatestDecision.APPLIED], "the first delivery")
        assert_equal(await one.send(first), [LatestResult(LatestDecision.DUPLICATE_MESSAGE)], "the second delivery")
        other = event(time=9, value=b"other", message="m")
        assert_equal(
            await one.send(other), [LatestResult(LatestDecision.MISMATCH)], "the same message with other content"
        )
        assert_equal(await one.value(), b"first", "the value")
        later = event(time=5, value=b"first", message="m", published=7)
        assert_equal(
            await one.send(later), [LatestResult(LatestDecision.DUPLICATE_MESSAGE)], "the same content, published later"
        )
        standing = await one.state()
        assert standing is not None, "the state is not there"
        assert_equal(standing.order, later.order, "the order: the highest of all deliveries")

    @check(mission=("E3",))
    async def test_a_stale_event_claims_its_message_too(self, stage: Stage) -> None:
        one = await deliverer(stage)
        await one.told(event(time=5))
        stale = event(time=4, message="late", event="late event")
        assert_equal(
            await one.told(stale, stale),
            [LatestDecision.STALE, LatestDecision.DUPLICATE_MESSAGE],
            "twice the same stale message",
        )
        assert_equal(await one.told(event(time=3, message="late")), [LatestDecision.MISMATCH], "with other content")
        assert_equal(
            await one.told(event(time=9, message="new", event="late event")),
            [LatestDecision.DUPLICATE_EVENT],
            "its event",
        )

    @check(mission=("E4",))
    async def test_an_event_that_is_published_again_is_a_duplicate_and_still_passes_the_guard(
        self, stage: Stage
    ) -> None:
        one = await deliverer(stage)
        first = event(time=5, value=b"v", message="m1", event="e", published=1)
        again = event(time=5, value=b"v", message="m2", event="e", published=2)
        assert_equal(await one.told(first), [LatestDecision.APPLIED], "the event")
        assert_equal(await one.send(again), [LatestResult(LatestDecision.DUPLICATE_EVENT)], "published again")
        assert_equal((await one.states())["one"], (again.order, b"v"), "the state: of the highest order")
        assert_equal(
            await one.send(again),
            [LatestResult(LatestDecision.DUPLICATE_MESSAGE)],
            "its second message, delivered again",
        )
        changed = event(time=6, value=b"w", message="m3", event="e")
        assert_equal(
            await one.send(changed),
            [LatestResult(LatestDecision.DUPLICATE_EVENT, applied=True)],
            "newer, with other content",
        )
        assert_equal(await one.value(), b"w", "the value: dedupe names the outcome, it never decides the state")
        assert_equal(
            await one.send(event(time=1, message="m4", event="e")),
            [LatestResult(LatestDecision.DUPLICATE_EVENT)],
            "older",
        )

    @check(mission=("E6",))
    async def test_events_without_any_id_are_known_by_their_order(self, stage: Stage) -> None:
        one = await deliverer(stage)
        assert_equal(
            await one.told(event(), event()),
            [LatestDecision.APPLIED, LatestDecision.DUPLICATE_MESSAGE],
            "twice the same",
        )

    @check(mission=("E5",))
    async def test_entities_do_not_share_messages(self, stage: Stage) -> None:
        """One message may carry the events of many."""
        one = await deliverer(stage)
        given = [event(entity, message="m", event="e", value=entity.encode()) for entity in ENTITIES]
        assert_equal(
            await one.told(*given), [LatestDecision.APPLIED] * len(ENTITIES), "one message with three entities"
        )
        assert_equal([await one.value(entity) for entity in ENTITIES], [b"one", b"two", b"three"], "the values")

    @check(mission=("E6",))
    async def test_a_deleted_entity_is_not_brought_back_by_older_events(self, stage: Stage) -> None:
        one = await deliverer(stage)
        await one.told(event(time=1, value=b"v"))
        gone = event(time=5, value=None, message="delete")
        assert_equal(await one.send(gone), [LatestResult(LatestDecision.APPLIED, applied=True)], "the delete")
        assert_equal(
            await one.told(event(time=4, value=b"v", message="late")), [LatestDecision.STALE], "an older event"
        )
        standing = await one.state()
        assert standing is not None, "of a deleted entity its order must stay"
        assert_equal((standing.order, standing.value), (gone.order, None), "what is left of it")
        assert_equal(await one.told(event("two", time=5, value=None), event("two", time=4)),
                     [LatestDecision.APPLIED, LatestDecision.STALE], "a delete that comes first")  # fmt: skip
        assert_equal(await one.told(event(time=6, value=b"back")), [LatestDecision.APPLIED], "a newer event")
        assert_equal(await one.value(), b"back", "the value")

    @check(mission=("E7",), needs=("fake_clock",))
    async def test_what_is_left_of_a_deleted_entity_expires(self, stage: Stage) -> None:
        one = await deliverer(stage)
        await one.told(event(time=5, value=None))
        stage.turn(KEEP.deleted - SECOND)
        assert_equal(await one.told(event(time=4)), [LatestDecision.STALE], "an older event, a second before")
        stage.turn(SECOND)
        assert_equal(await one.state(), None, "the state, after that")
        assert_equal(await one.told(event(time=4)), [LatestDecision.APPLIED], "an older event, after that")
        await one.told(event(time=9, value=None))
        await one.told(event(time=10, value=b"back"))
        stage.turn(KEEP.deleted)
        await one.store.expire_latest(100, timeout=TIMEOUT)
        assert_equal(await one.value(), b"back", "an entity that came back before it expired")
        await one.told(event(time=11, value=None))
        stage.turn(KEEP.deleted)
        assert_equal(await one.state(), None, "an entity that had a value, was deleted, and expired")

    @check(mission=("E7",), needs=("fake_clock",))
    async def test_marks_expire_and_are_deleted_in_batches(self, stage: Stage) -> None:
        one = await deliverer(stage)
        known = [event(time=time, message=f"m{time}", event=f"e{time}") for time in range(5)]
        await one.told(*known)
        stage.turn(KEEP.marks - SECOND)
        assert_equal(await one.told(known[0]), [LatestDecision.DUPLICATE_MESSAGE], "a message, a second before")
        assert_equal(await one.store.expire_latest(100, timeout=TIMEOUT), 0, "how many have expired by then")
        stage.turn(SECOND)
        assert_equal(await one.told(known[0]), [LatestDecision.STALE], "a message, after that: judged like a new one")
        assert_equal(await one.told(known[0]), [LatestDecision.DUPLICATE_MESSAGE], "which is known from then on")
        await one.told(event("two", time=1, value=None))
        stage.turn(KEEP.deleted)
        gone = [await one.store.expire_latest(2, timeout=TIMEOUT) for _ in range(8)]
        assert max(gone) <= 2, f"at most two at a time were asked for, and {max(gone)} went"
        assert gone[-1] == 0, "in the end nothing is left to expire"
        assert_equal(await one.value(), b"value", "the value: states never expire")

    @check(mission=("E7",), needs=("fake_clock", "tidies"))
    async def test_a_store_in_use_does_not_only_grow(self, stage: Stage) -> None:
        """Nobody calls for a purge; what has expired goes by the way."""
        one = await deliverer(stage)
        for week in range(3):
            await one.told(*(event(time=n, message=f"{week} {n}", event=f"{week} {n}") for n in range(10)))
            stage.turn(KEEP.marks)
        await one.told(*(event(time=n, message=f"last {n}") for n in range(10)))
        assert_equal(await one.store.expire_latest(100, timeout=TIMEOUT), 0, "what is left to expire")

    @check(fault=("F43",), needs=("fake_clock",))
    async def test_an_event_of_the_future_is_parked_and_leaves_nothing_behind(self, stage: Stage) -> None:
        one = await deliverer(stage)
        early = event(time=5, message="early", event="e", not_before=stage.clock.now() + HOUR)
        assert_equal(await one.send(early, early), [LatestResult(LatestDecision.PARKED)] * 2, "an event of the future")
        assert_equal(await one.state(), None, "the state after it")
        assert_equal(await one.told(event(time=1, message="m")), [LatestDecision.APPLIED], "an event of the present")
        stage.turn(HOUR)
        assert_equal(
            await one.told(early, early),
            [LatestDecision.APPLIED, LatestDecision.DUPLICATE_MESSAGE],
            "when its time has come",
        )

    @check()
    async def test_large_batches_and_none_at_all(self, stage: Stage) -> None:
        one = await deliverer(stage)
        assert_equal(await one.send(), [], "answers to nothing")
        entities = self.many // 3
        many = [event(f"entity {n % entities}", time=n, message=f"m{n}", event=f"e{n}") for n in range(3 * entities)]
        assert_equal(set(await one.told(*many)), {LatestDecision.APPLIED}, "rising events")
        assert_equal(set(await one.told(*many)), {LatestDecision.DUPLICATE_MESSAGE}, "the same again")
        found = await one.store.latest([id_of(f"entity {n}") for n in range(entities + 1)], timeout=TIMEOUT)
        newest = [each.order for each in many[2 * entities :]]
        assert_equal([each and each.order for each in found], [*newest, None], "the states")

    @check(needs=("durable",))
    async def test_states_and_marks_outlive_the_store(self, stage: Stage) -> None:
        caller = await stage.caller()
        if not isinstance(caller.store, KeepsLatest):
            raise SkipTest("this store does not keep the newest state of entities")
        before = Deliverer(caller.store)
        await before.told(event(time=5, message="m"), event("two", value=None))
        states = await before.states()
        await stage.dismiss(caller)
        after = await deliverer(stage)
        assert_equal(await after.states(), states, "the states, after closing and opening again")
        assert_equal(
            await after.told(event(time=5, message="m")), [LatestDecision.DUPLICATE_MESSAGE], "a message of before"
        )
