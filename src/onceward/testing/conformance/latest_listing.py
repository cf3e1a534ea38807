"""What a state shows to people (the port `ListsLatest`): its entities, and what it knows of messages and events."""

from __future__ import annotations

from unittest import SkipTest

from msgspec.structs import replace

from onceward.protocol.capabilities import ListsLatest
from onceward.protocol.latest import EntityState

from .factory import StoreFactory, check
from .latest import KEEP, Deliverer, deliverer, event
from .stage import HOUR, TIMEOUT, Stage, assert_equal


def shower(one: Deliverer) -> ListsLatest:
    if not isinstance(one.store, ListsLatest):
        raise SkipTest("this store does not list entities and messages")
    return one.store


MANY = 10_000  # pages: a store that walks over everything it has may find nothing on most of them


class LatestListingChecks(StoreFactory):
    """For stores with the capability; the others skip them."""

    @check(mission=("E2",))
    async def test_entities_of_the_scope_that_have_a_value_are_listed_in_pages(self, stage: Stage) -> None:
        one = await deliverer(stage)
        store = shower(one)
        there = [event(f"entity {n}", time=n, value=b"%d" % n) for n in range(7)]
        elsewhere = replace(event("elsewhere"), scope="kit of others")
        await one.told(*there, elsewhere, event("gone", time=1), event("gone", time=2, value=None))
        wanted = sorted((each.id, each.entity, each.order, each.value) for each in there)
        found: list[EntityState] = []
        cursor: bytes | None = None
        for _ in range(MANY):
            page, cursor = await store.entities("kit", cursor=cursor, limit=3, timeout=TIMEOUT)
            assert len(page) <= 3, f"three at a time were asked for, and {len(page)} came"
            found += page
            if cursor is None:
                break
        told = sorted((each.id, each.entity, each.order, each.value) for each in found)
        assert_equal(told, wanted, "all pages together")

    @check(mission=("E2", "E4", "E7"), needs=("fake_clock",))
    async def test_a_message_and_an_event_are_shown_as_long_as_they_are_known(self, stage: Stage) -> None:
        one = await deliverer(stage)
        store = shower(one)
        first = event(time=5, message="m1", event="e")
        begun = stage.clock.now()
        await one.told(first)
        stage.turn(HOUR)
        await one.told(event(time=5, message="m2", event="e"))
        asked = [first.event, first.message, b"nobody's"]
        shown = await store.marks(asked, timeout=TIMEOUT)
        told = [each and (each.trace, each.created_at - begun, each.expires_at - begun) for each in shown]
        assert_equal(told, [("m1", 0, KEEP.marks), ("m1", 0, KEEP.marks), None], "who brought it, when, until when")
        stage.turn(KEEP.marks - HOUR)
        assert_equal(await store.marks(asked, timeout=TIMEOUT), [None, None, None], "what is shown after that")
