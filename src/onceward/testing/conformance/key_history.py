"""The history of keys: events are written once, bounded, and deleted with their record."""

from __future__ import annotations

from typing import Any

from onceward.protocol.capabilities import History
from onceward.protocol.history import MAX_EVENTS, HistoryEvent
from onceward.protocol.record import Record
from onceward.protocol.requests import Validity, Verdict

from .factory import StoreFactory, check
from .harness import DAY, SECOND, TIMEOUT, Caller, Harness, assert_equal, expect, id_of


def event_of(record: Record, name: str = "failed", at: int = 0, **more: Any) -> HistoryEvent:
    at = at or record.claimed_at
    return HistoryEvent(record.id, more.pop("token", record.token), name, at, more.pop("last_at", at), **more)


async def write(caller: Caller, *events: HistoryEvent) -> int:
    history: History = caller.capability("history")
    return await history.append_history(events, timeout=TIMEOUT)


async def written(caller: Caller, key: str = "key", limit: int = 2 * MAX_EVENTS) -> list[HistoryEvent]:
    history: History = caller.capability("history")
    return await history.read_history(id_of(key), limit=limit, timeout=TIMEOUT)


class KeyHistoryChecks(StoreFactory):
    """For stores with `history`; skipped for others."""

    @check()
    async def test_events_are_read_as_they_were_written_the_latest_last(self, harness: Harness) -> None:
        caller = await harness.caller()
        record, other = await caller.acquire(), await caller.acquire("other")
        events = [
            event_of(record, "claimed", 1_000, attempt=1, owner="worker ü\u2028'\""),
            event_of(record, "failed", 2_000, error_type="ValueError", error="x" * 500, retry_at=2**52, detail="final"),
            event_of(record, "replayed", 1_500, last_at=2**53, count=2**40),
        ]
        now = await write(caller, events[2], event_of(other, "parked", 1), events[1], events[0])
        assert_equal(await written(caller), events, "the events")
        assert_equal(await written(caller, limit=2), events[1:], "the latest two events")
        assert_equal([one.name for one in await written(caller, "other")], ["parked"], "the events of another key")
        later = await write(caller)
        assert now <= later, "without events, the call returns the store's time"
        assert abs(later - (await caller.acquire("third")).claimed_at) < 60 * SECOND, "the time is the store's"

    @check()
    async def test_an_event_written_twice_counts_once_and_summed_events_add_up(self, harness: Harness) -> None:
        caller = await harness.caller()
        record = await caller.acquire()
        first = event_of(record, "replayed", 1_000, last_at=2_000, count=3)
        for event in (first, first, event_of(record, "failed", 500), event_of(record, "failed", 500)):
            await write(caller, event)
        assert_equal([one.count for one in await written(caller)], [1, 3], "the counts, after lost replies")
        await write(caller, event_of(record, "replayed", 3_000, last_at=3_000, count=2))
        [_, summed] = await written(caller)
        assert_equal((summed.count, summed.at, summed.last), (5, 1_000, 3_000), "the count, the first and last time")

    @check()
    async def test_only_the_latest_events_of_a_key_are_kept(self, harness: Harness) -> None:
        caller = await harness.caller()
        record = await caller.acquire()
        events = [event_of(record, token=record.token + n, at=n) for n in range(1, 2 * MAX_EVENTS)]
        await write(caller, *events[:MAX_EVENTS])
        await write(caller, *events[MAX_EVENTS:])
        kept = [one.at for one in await written(caller)]
        assert_equal(kept, [one.at for one in events[-MAX_EVENTS:]], "the events of a key with many")

    @check()
    async def test_an_event_of_a_missing_or_forgotten_record_is_not_written(self, harness: Harness) -> None:
        caller = await harness.caller()
        record = await caller.acquire()
        await write(caller, event_of(record, "claimed"))
        unknown = HistoryEvent(id_of("unknown"), record.token, "failed", 1, 1)
        await write(caller, unknown)
        assert_equal(await written(caller, "unknown"), [], "the events of a key without a record")
        expect(await caller.fail(record), Verdict.OK)
        await caller.forget()
        assert_equal(await written(caller), [], "the events of a forgotten key")
        await write(caller, event_of(record))
        assert_equal(await written(caller), [], "the events of a forgotten key, after a late one")
        again = await caller.acquire()
        await write(caller, event_of(record), event_of(again, "claimed"))
        assert_equal([one.token for one in await written(caller)], [again.token], "the events of its next cycle")

    @check(needs=("fake_clock",))
    async def test_purge_deletes_the_events_with_the_record(self, harness: Harness) -> None:
        caller = await harness.caller()
        for key, lasting in (("kept", 100 * DAY), ("key", SECOND)):
            record = await caller.acquire(key)
            await write(caller, event_of(record, "claimed"))
            expect(await caller.complete(record, validity=Validity(lasting=lasting)), Verdict.OK)
        harness.move_clock(40 * DAY)
        await caller.purge(10)
        assert_equal(await written(caller), [], "the events of a purged key")
        assert_equal(len(await written(caller, "kept")), 1, "the events of a key that is kept")

    @check()
    async def test_erasure_deletes_the_events_of_a_key_that_was_free_before(self, harness: Harness) -> None:
        caller = await harness.caller()
        erasure = caller.capability("erasure")
        record = await caller.acquire()
        await write(caller, event_of(record, "claimed"))
        freed = expect(await caller.release(record), Verdict.OK)
        await write(caller, event_of(record, "released"))
        assert_equal(len(await written(caller)), 2, "the events of a released key")
        await erasure.delete_free([freed], timeout=TIMEOUT)
        await write(caller, event_of(record, "released"))
        assert_equal(await written(caller), [], "the events of an erased key")
