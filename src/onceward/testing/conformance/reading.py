"""Reading, scanning, counting, watching, and data that survives reopening."""

from __future__ import annotations

import threading
from collections import Counter

from onceward.protocol.capabilities import CAPABILITIES
from onceward.protocol.ports import Filter, SortOrder
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Verdict
from onceward.protocol.transitions import CLOCK_MARGIN

from .factory import StoreFactory, check
from .harness import (
    SECOND,
    TIMEOUT,
    Caller,
    Harness,
    all_pages,
    assert_equal,
    assert_same,
    claim_request,
    expect,
    id_of,
)


class ReadingChecks(StoreFactory):
    """What operators, waiting callers and restarted processes need."""

    @check()
    async def test_answers_are_in_request_order(self, harness: Harness) -> None:
        caller = await harness.caller()
        keys = [f"key {number}" for number in range(12)]
        answers = await caller.store.claim([claim_request(key) for key in keys], timeout=TIMEOUT)
        assert_equal([expect(one, Verdict.ACQUIRED).key for one in answers], keys, "answers to claims")
        ids = [id_of(key) for key in (*reversed(keys), "never claimed")]
        found = await caller.store.read(ids, timeout=TIMEOUT)
        assert_equal([one.record.id for one in found if one.record], ids[:-1], "answers to a read")
        assert_equal((found[-1].verdict, found[-1].record), (Verdict.ABSENT, None), "a key that was never claimed")

    @check()
    async def test_empty_requests_get_empty_answers(self, harness: Harness) -> None:
        store = (await harness.caller()).store
        assert_equal(await store.claim([], timeout=TIMEOUT), [], "an empty claim")
        assert_equal(await store.renew([], timeout=TIMEOUT), [], "an empty renewal")
        assert_equal(await store.settle([], timeout=TIMEOUT), [], "an empty settlement")
        assert_equal(await store.read([], timeout=TIMEOUT), [], "an empty read")
        assert_equal(await store.forget([], force=False, timeout=TIMEOUT), [], "an empty forget")
        assert_equal(await store.purge(10, timeout=TIMEOUT), 0, "purge of an empty store")
        assert_equal(sum((await store.counts(timeout=TIMEOUT)).values()), 0, "counts of an empty store")
        page = await store.scan(Filter(), cursor=None, limit=10, timeout=TIMEOUT)
        assert_equal((page.records, page.cursor), ([], None), "scan of an empty store")

    @check()
    async def test_pages_of_any_size_show_each_record_once(self, harness: Harness) -> None:
        caller = await harness.caller()
        await fill(caller, 12)
        for limit in (1, 5, 6, 12, 100):
            found = await scan_all(caller, Filter(), limit)
            keys = sorted(record.key for record in found)
            assert keys == sorted(f"key {number}" for number in range(12)), f"pages of {limit} contain {keys}"
            for record in found:
                assert_same(await caller.record(record.key), record, "in a page")

    @check()
    async def test_a_scan_survives_concurrent_changes(self, harness: Harness) -> None:
        caller, other = await harness.callers(2)
        await fill(caller, 12)
        page = await caller.store.scan(Filter(), cursor=None, limit=5, timeout=TIMEOUT)
        for record in page.records:
            expect(await other.forget(record.key, force=True), Verdict.OK)
        await other.acquire("a new one")
        seen = {record.key for record in page.records}
        rest = await scan_all(caller, Filter(), 5, page.cursor)
        wanted = {f"key {number}" for number in range(12)}
        assert wanted <= seen | {record.key for record in rest}, "the scan skipped records that existed all the time"
        assert not seen & {record.key for record in rest}, "the scan returned records twice"

    @check(needs=("fake_clock",))
    async def test_a_scan_continues_although_its_last_record_was_purged_or_recreated(self, harness: Harness) -> None:
        """Checked with keys that were first claimed at the same time, and with keys claimed at different times."""
        caller, other = await harness.callers(2)
        for together in (True, False):
            for recreated in (True, False):
                name = f"{together} {recreated}"
                keys = [f"{name} {number}" for number in range(12)]
                for key in keys:
                    expect(await caller.complete(await caller.acquire(key, scope=name)), Verdict.OK)
                    harness.move_clock(0 if together else SECOND)
                harness.move_clock(2 * CLOCK_MARGIN)
                page = await caller.store.scan(Filter(scope=name), cursor=None, limit=5, timeout=TIMEOUT)
                seen = [record.key for record in page.records]
                await other.store.forget([page.records[-1].id], force=True, timeout=TIMEOUT)
                harness.move_clock(2 * CLOCK_MARGIN)
                assert_equal(await other.purge(), 1, "forgotten records that were purged")
                if recreated:
                    await other.acquire(seen[-1], scope=name)
                rest = [record.key for record in await scan_all(caller, Filter(scope=name), 4, page.cursor)]
                wanted = sorted({*keys} - {*seen})
                assert sorted(rest) in (wanted, sorted([*wanted, seen[-1]] if recreated else wanted)), (
                    f"after {seen} the rest should be {wanted}, but is {rest}"
                )

    @check()
    async def test_filters_choose_by_state_scope_key_and_age(self, harness: Harness) -> None:
        caller = await harness.caller()
        await fill(caller, 9)
        await harness.elapse(SECOND if harness.fake_clock else 5_000)
        young = expect(await caller.send(claim_request("key 1", scope="other")), Verdict.ACQUIRED)

        old = {f"kit/key {number}" for number in range(9)}
        done = {"kit/key 1", "kit/key 4", "kit/key 7"}
        wanted: list[tuple[Filter, set[str]]] = [
            (Filter(states=(RecordState.COMPLETED,)), done),
            (
                Filter(states=(RecordState.COMPLETED, RecordState.FAILED)),
                done | {"kit/key 2", "kit/key 5", "kit/key 8"},
            ),
            (Filter(scope="other"), {"other/key 1"}),
            (Filter(key="key 1"), {"kit/key 1", "other/key 1"}),
            (Filter(scope="kit", key="key 1", states=(RecordState.COMPLETED,)), {"kit/key 1"}),
            (Filter(scope="kit", key="key 1", states=(RecordState.PENDING,)), set()),
            (Filter(prefix="key"), old | {"other/key 1"}),
            (Filter(prefix="key 1"), {"kit/key 1", "other/key 1"}),
            (Filter(scope="kit", prefix="ey"), set()),
            (Filter(updated_before=young.updated_at), old),
            (Filter(updated_before=young.updated_at + 1), old | {"other/key 1"}),
        ]
        for filtered, names in wanted:
            found = [f"{one.scope}/{one.key}" for one in await scan_all(caller, filtered, 4)]
            assert_equal(sorted(found), sorted(names), f"{filtered}")

    @check()
    async def test_sorted_pages_do_not_depend_on_ids(self, harness: Harness) -> None:
        caller = await harness.caller()
        sorting = caller.capability("sorting")
        keys = [f"key {number}" for number in (5, 3, 1, 4, 2, 0)]
        for key in keys:
            await caller.acquire(key)
            await harness.elapse(SECOND if harness.fake_clock else 2_000)
        expect(await caller.complete(await caller.record("key 3")), Verdict.OK)
        wanted = {
            SortOrder.CREATED: [*reversed(keys)],
            SortOrder.UPDATED: ["key 3", *(key for key in reversed(keys) if key != "key 3")],
            SortOrder.KEY: sorted(keys),
        }
        for order, names in wanted.items():
            for limit in (1, 4, 100):
                page = await sorting.first(Filter(), order=order, limit=limit, timeout=TIMEOUT)
                assert_equal([one.key for one in page.records], names[:limit], f"the first {limit} by {order}")
        page = await sorting.first(
            Filter(states=(RecordState.COMPLETED,)), order=SortOrder.KEY, limit=100, timeout=TIMEOUT
        )
        assert_equal([one.key for one in page.records], ["key 3"], "the first that are completed")
        assert_same(await caller.record("key 3"), page.records[0], "in a page")

    @check(mission=("A8",))
    async def test_counts_are_by_scope_and_state(self, harness: Harness) -> None:
        caller = await harness.caller()
        await fill(caller, 9)
        await caller.send(claim_request("key 1", scope="other"))
        counted = await caller.store.counts(timeout=TIMEOUT)
        wanted = {
            ("kit", RecordState.PENDING): 3,
            ("kit", RecordState.COMPLETED): 3,
            ("kit", RecordState.FAILED): 3,
            ("other", RecordState.PENDING): 1,
        }
        assert Counter(counted) == Counter(wanted), f"{counted}"
        assert all(isinstance(state, RecordState) for _, state in counted), (
            f"states must be RecordState members: {counted}"
        )

    @check(mission=("B2",), fault=("F69",))
    async def test_a_watcher_is_notified_when_the_owner_settles(self, harness: Harness) -> None:
        caller = await harness.caller()
        notifications = caller.capability("notifications")
        held, notified, unexpected = await caller.acquire(), threading.Event(), threading.Event()
        stop = notifications.watch(held.id, notified.set)
        notifications.watch(held.id, unexpected.set)()
        other = notifications.watch(id_of("another key"), unexpected.set)
        expect(await caller.complete(held), Verdict.OK)
        for _ in range(400):
            if notified.is_set():
                break
            await harness.sleep(0.005)
        assert notified.is_set(), "the watcher was not notified"
        assert not unexpected.is_set(), "a watcher that had stopped, or that watches another key, was notified"
        stop()
        stop()
        other()

    @check()
    async def test_a_clone_shares_the_data_and_is_closed_separately(self, harness: Harness) -> None:
        caller = await harness.caller()
        clone = await harness.caller(caller.store.clone())
        held = await caller.acquire()
        expect(await clone.renew(held), Verdict.OK)
        await harness.close_caller(clone)
        expect(await caller.complete(held), Verdict.OK)

    @check()
    async def test_two_stores_on_the_same_data_see_each_other(self, harness: Harness) -> None:
        first, second = await harness.callers(2)
        held = await first.acquire()
        assert_same(held, await second.record(), "seen by the second store")
        expect(await second.complete(held, b"it"), Verdict.OK)
        assert_equal((await first.record()).result, b"it", "the result, seen by the first store")

    @check(fault=("F30",), needs=("durable",))
    async def test_records_survive_reopening(self, harness: Harness) -> None:
        caller = await harness.caller()
        await fill(caller, 6)
        before = {record.key: record for record in await scan_all(caller, Filter(), 10)}
        await harness.close_caller(caller)
        reopened = await harness.caller()
        for key, record in before.items():
            assert_same(record, await reopened.record(key), "after reopening the store")
        expect(await reopened.complete(before["key 0"]), Verdict.OK)

    @check()
    async def test_a_store_has_a_readable_name(self, harness: Harness) -> None:
        store = (await harness.caller()).store
        assert isinstance(store.name, str), f"name must be a string, not {store.name!r}"
        assert store.name, "name must not be empty"
        assert isinstance(store.inline, bool), f"inline must be True or False, not {store.inline!r}"

    @check()
    async def test_a_store_declares_every_capability(self, harness: Harness) -> None:
        store = (await harness.caller()).store
        missing = [name for name in CAPABILITIES if not hasattr(store, name)]
        assert not missing, f"without {missing}: inherit from onceward.protocol.capabilities.Capabilities"


async def fill(caller: Caller, number: int) -> None:
    """Create keys that are alternately running, completed and failed."""
    for one in range(number):
        held = await caller.acquire(f"key {one}")
        if one % 3 == 1:
            expect(await caller.complete(held), Verdict.OK)
        elif one % 3 == 2:
            expect(await caller.fail(held), Verdict.OK)


async def scan_all(caller: Caller, wanted: Filter, limit: int, cursor: bytes | None = None) -> list[Record]:
    async def fetch(following: bytes | None) -> tuple[list[Record], bytes | None]:
        page = await caller.store.scan(wanted, cursor=following or cursor, limit=limit, timeout=TIMEOUT)
        return page.records, page.cursor

    return await all_pages(fetch, limit)
