"""Reading, scanning, counting, watching, and what outlives a store."""

from __future__ import annotations

import threading
from collections import Counter
from unittest import SkipTest

from onceward.protocol.capabilities import NotifiesChanges, SortsRecords
from onceward.protocol.ports import Filter, SortOrder
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Verdict
from onceward.protocol.transitions import CLOCK_MARGIN

from .factory import StoreFactory, check
from .stage import SECOND, TIMEOUT, Caller, Stage, assert_equal, assert_same, expect, id_of, wanting


class ReadingChecks(StoreFactory):
    """What an operator, a waiter and a restarted process need."""

    @check()
    async def test_answers_come_in_the_order_of_the_questions(self, stage: Stage) -> None:
        caller = await stage.caller()
        keys = [f"key {number}" for number in range(12)]
        answers = await caller.store.claim([wanting(key) for key in keys], timeout=TIMEOUT)
        assert_equal([expect(one, Verdict.ACQUIRED).key for one in answers], keys, "answers to claims")
        ids = [id_of(key) for key in (*reversed(keys), "never claimed")]
        found = await caller.store.read(ids, timeout=TIMEOUT)
        assert_equal([one.record.id for one in found if one.record], ids[:-1], "answers to a read")
        assert_equal((found[-1].verdict, found[-1].record), (Verdict.ABSENT, None), "a key that was never claimed")

    @check()
    async def test_nothing_asked_nothing_answered(self, stage: Stage) -> None:
        store = (await stage.caller()).store
        assert_equal(await store.claim([], timeout=TIMEOUT), [], "claim of nothing")
        assert_equal(await store.renew([], timeout=TIMEOUT), [], "renewal of nothing")
        assert_equal(await store.settle([], timeout=TIMEOUT), [], "settlement of nothing")
        assert_equal(await store.read([], timeout=TIMEOUT), [], "read of nothing")
        assert_equal(await store.forget([], force=False, timeout=TIMEOUT), [], "forget of nothing")
        assert_equal(await store.purge(10, timeout=TIMEOUT), 0, "purge of an empty store")
        assert_equal(sum((await store.counts(timeout=TIMEOUT)).values()), 0, "counts of an empty store")
        page = await store.scan(Filter(), cursor=None, limit=10, timeout=TIMEOUT)
        assert_equal((page.records, page.cursor), ([], None), "scan of an empty store")

    @check()
    async def test_pages_of_any_size_show_each_record_once(self, stage: Stage) -> None:
        caller = await stage.caller()
        await fill(caller, 12)
        for limit in (1, 5, 6, 12, 100):
            found = await scan_all(caller, Filter(), limit)
            keys = sorted(record.key for record in found)
            assert keys == sorted(f"key {number}" for number in range(12)), f"pages of {limit} show {keys}"
            for record in found:
                assert_same(await caller.record(record.key), record, "in a page")

    @check()
    async def test_a_scan_survives_what_others_do_meanwhile(self, stage: Stage) -> None:
        caller, other = await stage.callers(2)
        await fill(caller, 12)
        page = await caller.store.scan(Filter(), cursor=None, limit=5, timeout=TIMEOUT)
        for record in page.records:
            expect(await other.forget(record.key, force=True), Verdict.OK)
        await other.acquire("a new one")
        seen = {record.key for record in page.records}
        rest = await scan_all(caller, Filter(), 5, page.cursor)
        wanted = {f"key {number}" for number in range(12)}
        assert wanted <= seen | {record.key for record in rest}, "the scan skipped records that were there all the time"
        assert not seen & {record.key for record in rest}, "the scan shows records twice"

    @check(needs=("fake_clock",))
    async def test_a_scan_goes_on_where_it_was_although_what_it_saw_last_is_gone_or_came_back(
        self, stage: Stage
    ) -> None:
        """With keys that were first claimed together, and with such that were claimed one after the other."""
        caller, other = await stage.callers(2)
        for together in (True, False):
            for come_back in (True, False):
                name = f"{together} {come_back}"
                keys = [f"{name} {number}" for number in range(12)]
                for key in keys:
                    expect(await caller.complete(await caller.acquire(key, scope=name)), Verdict.OK)
                    stage.turn(0 if together else SECOND)
                stage.turn(2 * CLOCK_MARGIN)
                page = await caller.store.scan(Filter(scope=name), cursor=None, limit=5, timeout=TIMEOUT)
                seen = [record.key for record in page.records]
                await other.store.forget([page.records[-1].id], force=True, timeout=TIMEOUT)
                stage.turn(2 * CLOCK_MARGIN)
                assert_equal(await other.purge(), 1, "what is purged of what was forgotten")
                if come_back:
                    await other.acquire(seen[-1], scope=name)
                rest = [record.key for record in await scan_all(caller, Filter(scope=name), 4, page.cursor)]
                wanted = sorted({*keys} - {*seen})
                assert sorted(rest) in (wanted, sorted([*wanted, seen[-1]] if come_back else wanted)), (
                    f"after {seen} the rest should be {wanted}, and is {rest}"
                )

    @check()
    async def test_filters_choose_by_state_scope_key_and_age(self, stage: Stage) -> None:
        caller = await stage.caller()
        await fill(caller, 9)
        await stage.lapse(SECOND if stage.fake else 5_000)
        young = expect(await caller.send(wanting("key 1", scope="other")), Verdict.ACQUIRED)

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
            (Filter(updated_before=young.updated_at), old),
            (Filter(updated_before=young.updated_at + 1), old | {"other/key 1"}),
        ]
        for filtered, names in wanted:
            found = [f"{one.scope}/{one.key}" for one in await scan_all(caller, filtered, 4)]
            assert_equal(sorted(found), sorted(names), f"{filtered}")

    @check()
    async def test_the_first_of_an_order_are_found_whatever_their_ids(self, stage: Stage) -> None:
        caller = await stage.caller()
        store = caller.store
        if not isinstance(store, SortsRecords):
            raise SkipTest("this store does not sort")
        keys = [f"key {number}" for number in (5, 3, 1, 4, 2, 0)]
        for key in keys:
            await caller.acquire(key)
            await stage.lapse(SECOND if stage.fake else 2_000)
        expect(await caller.complete(await caller.record("key 3")), Verdict.OK)
        wanted = {
            SortOrder.CREATED: [*reversed(keys)],
            SortOrder.UPDATED: ["key 3", *(key for key in reversed(keys) if key != "key 3")],
            SortOrder.KEY: sorted(keys),
        }
        for order, names in wanted.items():
            for limit in (1, 4, 100):
                page = await store.first(Filter(), order=order, limit=limit, timeout=TIMEOUT)
                assert_equal([one.key for one in page.records], names[:limit], f"the first {limit} by {order}")
        page = await store.first(
            Filter(states=(RecordState.COMPLETED,)), order=SortOrder.KEY, limit=100, timeout=TIMEOUT
        )
        assert_equal([one.key for one in page.records], ["key 3"], "the first that are completed")
        assert_same(await caller.record("key 3"), page.records[0], "in a page")

    @check(mission=("A8",))
    async def test_counts_are_by_scope_and_state(self, stage: Stage) -> None:
        caller = await stage.caller()
        await fill(caller, 9)
        await caller.send(wanting("key 1", scope="other"))
        counted = await caller.store.counts(timeout=TIMEOUT)
        wanted = {
            ("kit", RecordState.PENDING): 3,
            ("kit", RecordState.COMPLETED): 3,
            ("kit", RecordState.FAILED): 3,
            ("other", RecordState.PENDING): 1,
        }
        assert Counter(counted) == Counter(wanted), f"{counted}"
        assert all(isinstance(state, RecordState) for _, state in counted), f"states must be States: {counted}"

    @check(mission=("B2",), fault=("F69",))
    async def test_a_watcher_is_woken_when_the_owner_settles(self, stage: Stage) -> None:
        caller = await stage.caller()
        store = caller.store
        if not isinstance(store, NotifiesChanges):
            raise SkipTest("this store does not notify")
        held, bell, ghost = await caller.acquire(), threading.Event(), threading.Event()
        stop = store.watch(held.id, bell.set)
        store.watch(held.id, ghost.set)()
        other = store.watch(id_of("another key"), ghost.set)
        expect(await caller.complete(held), Verdict.OK)
        for _ in range(400):
            if bell.is_set():
                break
            await stage.pause(0.005)
        assert bell.is_set(), "nobody woke the watcher"
        assert not ghost.is_set(), "somebody was woken who had stopped watching, or watches another key"
        stop()
        stop()
        other()

    @check()
    async def test_a_twin_has_the_same_data_and_a_life_of_its_own(self, stage: Stage) -> None:
        caller = await stage.caller()
        clone = await stage.caller(caller.store.clone())
        held = await caller.acquire()
        expect(await clone.renew(held), Verdict.OK)
        await stage.dismiss(clone)
        expect(await caller.complete(held), Verdict.OK)

    @check()
    async def test_two_stores_on_one_place_see_each_other(self, stage: Stage) -> None:
        first, second = await stage.callers(2)
        held = await first.acquire()
        assert_same(held, await second.record(), "seen by the other")
        expect(await second.complete(held, b"it"), Verdict.OK)
        assert_equal((await first.record()).result, b"it", "the result, seen by the first")

    @check(fault=("F30",), needs=("durable",))
    async def test_what_was_written_outlives_the_store(self, stage: Stage) -> None:
        caller = await stage.caller()
        await fill(caller, 6)
        before = {record.key: record for record in await scan_all(caller, Filter(), 10)}
        await stage.dismiss(caller)
        reopened = await stage.caller()
        for key, record in before.items():
            assert_same(record, await reopened.record(key), "after closing and opening again")
        expect(await reopened.complete(before["key 0"]), Verdict.OK)

    @check()
    async def test_a_store_has_a_name_for_people(self, stage: Stage) -> None:
        store = (await stage.caller()).store
        assert isinstance(store.name, str), f"a name is text, not {store.name!r}"
        assert store.name, "an empty name helps nobody"
        assert isinstance(store.inline, bool), f"inline is True or False, not {store.inline!r}"


async def fill(caller: Caller, number: int) -> None:
    """Keys that run, are completed, and failed, in turn."""
    for one in range(number):
        held = await caller.acquire(f"key {one}")
        if one % 3 == 1:
            expect(await caller.complete(held), Verdict.OK)
        elif one % 3 == 2:
            expect(await caller.fail(held), Verdict.OK)


async def scan_all(caller: Caller, wanted: Filter, limit: int, cursor: bytes | None = None) -> list[Record]:
    records: list[Record] = []
    for _ in range(100):
        page = await caller.store.scan(wanted, cursor=cursor, limit=limit, timeout=TIMEOUT)
        assert len(page.records) <= limit, f"a page of {limit} has {len(page.records)} records"
        records += page.records
        cursor = page.cursor
        if cursor is None:
            return records
    raise AssertionError("the scan never ends")
