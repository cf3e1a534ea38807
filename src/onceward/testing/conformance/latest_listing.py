"""Listing of latest states for operators (`store.latest`): entities, known messages and events."""

from __future__ import annotations

from msgspec.structs import replace

from .factory import StoreFactory, check
from .harness import HOUR, TIMEOUT, Harness, all_pages, assert_equal
from .latest import RETENTION, deliverer, event


class LatestListingChecks(StoreFactory):
    """For stores with `latest`; skipped for others."""

    @check(mission=("E2",))
    async def test_entities_with_a_value_are_listed_in_pages(self, harness: Harness) -> None:
        one = await deliverer(harness)
        there = [event(f"entity {n}", time=n, value=b"%d" % n) for n in range(7)]
        elsewhere = replace(event("elsewhere"), scope="kit of others")
        await one.decisions(*there, elsewhere, event("gone", time=1), event("gone", time=2, value=None))
        wanted = sorted((each.id, each.entity, each.order, each.value) for each in there)
        found = await all_pages(
            lambda cursor: one.store.entities("kit", cursor=cursor, limit=3, timeout=TIMEOUT), limit=3
        )
        shown = sorted((each.id, each.entity, each.order, each.value) for each in found)
        assert_equal(shown, wanted, "all pages together")

    @check(mission=("E2", "E4", "E7"), needs=("fake_clock",))
    async def test_marks_are_listed_until_they_expire(self, harness: Harness) -> None:
        one = await deliverer(harness)
        first = event(time=5, message="m1", event="e")
        start = harness.clock.now()
        await one.decisions(first)
        harness.move_clock(HOUR)
        await one.decisions(event(time=5, message="m2", event="e"))
        asked = [first.event, first.message, b"unknown"]
        marks = await one.store.marks(asked, timeout=TIMEOUT)
        shown = [each and (each.trace, each.created_at - start, each.expires_at - start) for each in marks]
        assert_equal(
            shown, [("m1", 0, RETENTION.marks), ("m1", 0, RETENTION.marks), None], "message, creation and expiry"
        )
        harness.move_clock(RETENTION.marks - HOUR)
        assert_equal(await one.store.marks(asked, timeout=TIMEOUT), [None, None, None], "marks after their expiry")
