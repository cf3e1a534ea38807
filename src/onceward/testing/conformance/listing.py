"""Listings for operators (`store.listing`): order, pages, filters, and what changes between two pages."""

from __future__ import annotations

from onceward.errors import ConfigurationError
from onceward.protocol.listing import UNFINISHED, WORK_STATES, Listing, ListingFilter
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Verdict

from .factory import StoreFactory, check
from .harness import TIMEOUT, Caller, Harness, all_pages, assert_equal, expect

EVERYTHING = ListingFilter()
SCOPES = ("kit/charge", "kit/charge@acme", "kit/refund@acme", "kit/refund@globex")


async def list_all(listing: Listing, wanted: ListingFilter, limit: int) -> list[Record]:

    async def fetch(cursor: bytes | None) -> tuple[list[Record], bytes | None]:
        page = await listing.newest(wanted, cursor=cursor, limit=limit, timeout=TIMEOUT)
        return page.records, page.cursor

    return await all_pages(fetch, limit)


async def fill(harness: Harness, caller: Caller, number: int = 12) -> list[Record]:
    """Store records in all states and several scopes, one after the other. Return them as stored, newest first."""
    records = []
    for n in range(number):
        note = {"source": f"file {n % 3}", "saga-like": '"quoted"'} if n % 2 else {}
        held = await caller.acquire(f"{'order' if n % 3 else 'Order'}:{n}", scope=SCOPES[n % 4], note=note)
        if n % 4 == 0:
            expect(await caller.complete(held, b"the result"), Verdict.OK)
        elif n % 4 == 1:
            error_type = "ValueError" if n % 8 == 1 else "KeyError"
            expect(await caller.fail(held, error_type=error_type, error="no"), Verdict.OK)
        elif n % 4 == 2:
            expect(await caller.park(held, error_type="TimeoutError", error="no answer"), Verdict.OK)
        records.append(await caller.record(id=held.id))
        await harness.elapse(1_000)
    return records[::-1]


class ListingChecks(StoreFactory):
    """For stores with `listing`; skipped for others."""

    @check()
    async def test_a_listing_contains_each_record_once_newest_first(self, harness: Harness) -> None:
        caller = await harness.caller()
        listing = caller.capability("listing")
        assert_equal(await list_all(listing, EVERYTHING, 5), [], "the listing of an empty store")
        stored = await fill(harness, caller)
        for limit in (1, 5, 12, 100):
            found = await list_all(listing, EVERYTHING, limit)
            assert_equal([one.key for one in found], [one.key for one in stored], f"keys in pages of {limit}")
            assert_equal({one.result for one in found}, {None}, "results in a listing")
            assert_equal([one.token for one in found], [one.token for one in stored], "tokens")
            assert_equal([one.note for one in found], [one.note for one in stored], "notes")

    @check()
    async def test_unfinished_records_are_listed_by_their_last_claim(self, harness: Harness) -> None:
        caller = await harness.caller()
        listing = caller.capability("listing")
        for key in ("first", "second", "third"):
            expect(await caller.fail(await caller.acquire(key)), Verdict.OK)
            await harness.elapse(1_000)
        expect(await caller.fail(await caller.acquire("first")), Verdict.OK)  # a second attempt
        for states in ((RecordState.FAILED,), UNFINISHED):
            found = await list_all(listing, ListingFilter(states=states), 2)
            assert_equal([one.key for one in found], ["first", "third", "second"], f"records in {states}")

    @check()
    async def test_every_filter_of_a_listing_returns_what_matches(self, harness: Harness) -> None:
        caller = await harness.caller()
        listing = caller.capability("listing")
        stored = await fill(harness, caller)
        middle = stored[5]
        filters = (
            *(ListingFilter(states=(state,)) for state in (*WORK_STATES, RecordState.FREE)),
            ListingFilter(states=(RecordState.PARKED, RecordState.COMPLETED)),
            *(ListingFilter(scopes=(scope,)) for scope in (*SCOPES, "kit/refund", "kit/ref", "kit")),
            *(ListingFilter(tenants=(tenant,)) for tenant in ("acme", "", "ACME", "a%")),
            *(ListingFilter(prefix=prefix) for prefix in ("order:", "Order:1", "ORDER", "order:_", "%")),
            ListingFilter(id=middle.id.hex()[:9].upper()),
            *(ListingFilter(note=note) for note in ("source=file 1", "file", '"quoted"', "other=file 1")),
            ListingFilter(error_type="KeyError", states=(RecordState.FAILED,)),
            ListingFilter(error_type="KeyError", scopes=("kit/charge",), tenants=("acme",)),
            ListingFilter(claimed_since=middle.token),
            ListingFilter(claimed_before=middle.token),
            ListingFilter(claimed_since=middle.token, states=UNFINISHED),
            ListingFilter(claimed_before=middle.token, states=(RecordState.PARKED,)),
            ListingFilter(sagas=True),
        )
        for wanted in filters:
            for limit in (2, 100):
                found = await list_all(listing, wanted, limit)
                expected = [one.key for one in stored if wanted.matches(one)]
                assert_equal([one.key for one in found], expected, f"records that match {wanted}")

    @check()
    async def test_a_listing_shows_no_record_twice_while_records_change(self, harness: Harness) -> None:
        caller, other = await harness.callers(2)
        listing = caller.capability("listing")
        stored = await fill(harness, caller)
        for wanted in (EVERYTHING, ListingFilter(states=UNFINISHED)):
            before = [one.id for one in stored if wanted.matches(await caller.record(id=one.id))]
            page = await listing.newest(wanted, cursor=None, limit=3, timeout=TIMEOUT)
            shown = [one.id for one in page.records]
            new = await other.acquire(f"new, {len(wanted.states)} states")
            waiting = next(one for one in reversed(stored) if one.state is RecordState.FAILED)
            again = await other.acquire(waiting.key, scope=waiting.scope)  # it was on a later page
            while page.cursor is not None:
                page = await listing.newest(wanted, cursor=page.cursor, limit=3, timeout=TIMEOUT)
                shown += [one.id for one in page.records]
            assert len(shown) == len(set(shown)), "a record is on two pages"
            assert new.id not in shown, "a record that was claimed after the first page is on a later one"
            assert_equal(set(before) - set(shown) - {again.id}, set(), "records that did not change and were left out")
            expect(await other.fail(again), Verdict.OK)

    @check()
    async def test_the_oldest_claims_are_listed_and_the_unfinished_are_counted(self, harness: Harness) -> None:
        caller = await harness.caller()
        listing = caller.capability("listing")
        stored = await fill(harness, caller)
        pending = [one.key for one in reversed(stored) if one.state is RecordState.PENDING]
        page = await listing.oldest_pending(EVERYTHING, limit=2, timeout=TIMEOUT)
        assert_equal(([one.key for one in page.records], page.cursor), (pending[:2], None), "the oldest claims")
        nothing = ListingFilter(tenants=("acme",))
        page = await listing.oldest_pending(nothing, limit=2, timeout=TIMEOUT)
        assert_equal(page.records, [], "the oldest claims of a tenant without any")
        for limit, count in ((100, 3), (2, 2)):
            counts = await listing.count_unfinished(limit, timeout=TIMEOUT)
            assert_equal(counts, dict.fromkeys(UNFINISHED, count), f"counts up to {limit}")

    @check()
    async def test_what_is_not_a_cursor_of_a_listing_is_refused(self, harness: Harness) -> None:
        listing = (await harness.caller()).capability("listing")
        for cursor in (b"", b"x", b"\x92\xa1a\xa1b", bytes(40)):
            try:
                await listing.newest(EVERYTHING, cursor=cursor, limit=5, timeout=TIMEOUT)
            except ConfigurationError:
                continue
            raise AssertionError(f"the listing accepts {cursor!r} as a cursor")
