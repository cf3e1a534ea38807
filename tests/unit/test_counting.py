"""Counting in a process: what each event counts as, in which hour, and what it costs."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from onceward import Once
from onceward.engine.events import LEVELS
from onceward.engine.totals import MAX_SCOPES, OTHERS, HourlyCounts, Totals
from onceward.protocol.counters import (
    COUNTER_NAMES,
    HOUR,
    CounterRow,
    CounterTotals,
    Counts,
    StoredCounts,
    add_up,
    counter_name,
    operation_of,
)
from onceward.protocol.record import RecordState
from onceward.runtime.counters import Counters
from onceward.stores import MemoryStore
from tests.collector import resting

ME = b"me"


def nothing() -> None: ...


# ── names ──


@pytest.mark.parametrize(
    ("event", "state", "name"),
    [
        ("completed", "COMPLETED", "executed"),
        ("skipped", "COMPLETED", "replayed"),
        ("skipped", "", "replayed"),
        ("skipped", "PENDING", "running"),
        ("skipped", "FAILED", "failed"),
        ("skipped", "PARKED", "parked"),
        ("mismatch", "PENDING", "mismatch"),
        ("failed", "FAILED", "failed"),
        ("parked", "PARKED", "parked"),
        ("unknown", "", "unknown"),
        ("applied", "", "applied"),
        ("stale", "", "stale"),
        ("claim_failed", "", "claim_errors"),
        ("renewal_failed", "", "renewal_failures"),
        ("unprotected", "", "unprotected"),
        ("rejected", "", "rejected"),
        ("acquired", "PENDING", None),
        ("renewed", "", None),
    ],
)
def test_each_event_counts_under_one_name_or_not_at_all(event: str, state: str, name: str | None) -> None:
    assert counter_name(event, state=state) == name
    assert event in LEVELS
    assert name is None or name in COUNTER_NAMES


def test_a_lost_lease_counts_once_where_the_work_ends_and_not_where_the_heartbeat_detects_it() -> None:
    assert counter_name("lost") is None
    assert counter_name("lost", reason="result refused") == "unknown"


def test_labels_do_not_grow_with_the_tenants() -> None:
    assert operation_of("shop/charge@acme") == "shop/charge"
    assert operation_of("shop/charge") == "shop/charge"


# ── totals ──


def test_scopes_beyond_the_limit_are_counted_by_operation_and_operations_beyond_it_together() -> None:
    totals = Totals(nothing)
    totals.add("shop/charge", "completed")
    for tenant in range(MAX_SCOPES):
        totals.add(f"shop/charge@{tenant}", "completed")
    for number in range(MAX_SCOPES + 1):
        totals.add(f"shop/made-of-data-{number}", "completed")
    counts = totals.counts()
    assert len(counts) == 2 * MAX_SCOPES + 1
    assert counts["shop/charge"] == {"executed": 2}
    assert counts[OTHERS] == {"executed": 1}
    assert sum(cell["executed"] for cell in counts.values()) == 2 * MAX_SCOPES + 2


def test_a_flood_of_tenants_leaves_each_operation_its_own_figures() -> None:
    """All calls are made for tenants, so neither operation was counted by itself before there were too many scopes."""
    totals = Totals(nothing)
    for tenant in range(2 * MAX_SCOPES):
        totals.add(f"shop/charge@{tenant}", "completed")
    for tenant in range(3):
        totals.add(f"shop/mail@{tenant}", "completed")
    found = add_up(StoredCounts([CounterRow(ME, 9, 1, totals.counts())], 9 * HOUR), 0).by_operation()
    assert found.total("executed", "shop/charge") == 2 * MAX_SCOPES
    assert found.total("executed", "shop/mail") == 3
    for operation in range(2 * MAX_SCOPES):
        totals.add(f"shop/made-of-data-{operation}@acme", "completed")
    assert len(totals.cells) == 2 * MAX_SCOPES + 1
    assert totals.counts()[OTHERS]["executed"] > 0


def test_threads_that_count_concurrently_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter switches threads every few microseconds, and still no addition is lost."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    totals = Totals(nothing)

    def count() -> None:
        for _ in range(10_000):
            totals.add("shop/charge", "completed")

    try:
        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert totals.counts() == {"shop/charge": {"executed": 80_000}}


def test_a_scope_with_no_counts_is_not_written() -> None:
    """A worker has claimed the key and is still processing it."""
    totals = Totals(nothing)
    totals.add("shop/charge", "acquired")
    assert totals.counts() == {}
    assert not HourlyCounts(ME).lacks(totals.counts())


# ── hours ──


def counts(**numbers: int) -> Counts:
    return {"shop/charge": dict(numbers)}


def test_what_is_counted_within_an_hour_is_written_again_as_a_whole() -> None:
    book = HourlyCounts(ME)
    assert book.enter(counts(executed=3), 7) == [CounterRow(ME, 7, 1, counts(executed=3))]
    book.written()
    assert book.enter(counts(executed=5), 7) == [CounterRow(ME, 7, 2, counts(executed=5))]


def test_a_new_hour_begins_at_nothing() -> None:
    book = HourlyCounts(ME)
    book.enter(counts(executed=3), 7)
    book.written()
    assert book.enter(counts(executed=5, failed=1), 8) == [CounterRow(ME, 8, 2, counts(executed=2, failed=1))]


def test_hours_that_the_store_did_not_get_are_sent_until_it_has_them() -> None:
    book = HourlyCounts(ME)
    book.enter(counts(executed=3), 7)
    book.enter(counts(executed=4), 8)
    counter_rows = book.enter(counts(executed=9), 9)
    assert [(counter_row.hour, counter_row.counts["shop/charge"]["executed"]) for counter_row in counter_rows] == [
        (7, 3),
        (8, 1),
        (9, 5),
    ]
    book.written()
    assert book.enter(counts(executed=9), 9) == []
    assert not book.lacks(counts(executed=9))


def test_a_clock_that_is_set_back_loses_nothing_that_was_written() -> None:
    """The row of the earlier hour is no longer in memory: writing it again would overwrite its counts."""
    book = HourlyCounts(ME)
    book.enter(counts(executed=3), 7)
    book.written()
    book.enter(counts(executed=5), 8)
    book.written()
    assert [(counter_row.hour, counter_row.counts) for counter_row in book.enter(counts(executed=6), 7)] == [
        (8, counts(executed=3))
    ]


def test_a_clock_that_was_a_day_ahead_does_not_take_the_next_day_along() -> None:
    """The rows get another name, so that no written row is overwritten and each count is in its own hour."""
    book = HourlyCounts(ME)
    written: dict[tuple[bytes, int], int] = {}
    for executed, hour in ((3, 7), (5, 31), (6, 7), (8, 7), (9, 8)):
        for counter_row in book.enter(counts(executed=executed), hour):
            written[counter_row.process, counter_row.hour] = counter_row.counts["shop/charge"]["executed"]
        book.written()
    by_hour = [(hour, number) for (_, hour), number in written.items()]
    assert by_hour == [(7, 3), (31, 2), (7, 3), (8, 1)]


def test_nothing_new_means_nothing_to_write() -> None:
    book = HourlyCounts(ME)
    assert not book.lacks({})
    book.enter(counts(executed=3), 7)
    assert book.lacks(counts(executed=3)), "the store does not have it yet"
    book.written()
    assert not book.lacks(counts(executed=3))
    assert book.lacks(counts(executed=4))


# ── sums ──


def tally(*counter_rows: tuple[int, str, str, int], now: int = 9 * HOUR) -> CounterTotals:
    made = [CounterRow(bytes([place]), hour, 1, {scope: {name: number}}) for place, (hour, scope, name, number) in
            enumerate(counter_rows)]  # fmt: skip
    return add_up(StoredCounts(made, now), 0)


def test_rows_of_all_processes_are_added_up() -> None:
    found = tally((8, "a/x@t", "executed", 1), (8, "a/x@u", "executed", 2), (9, "a/x@t", "replayed", 4))
    assert found.total("executed") == 3
    assert found.total("executed", "a/x@t") == 1
    assert found.total("executed", hours=1) == 0
    assert found.total("replayed", hours=1) == 4
    assert found.by_operation().scopes == ["a/x"]
    assert found.by_operation().total("executed", "a/x") == 3
    assert found.series(["executed", "replayed"])[-3:] == [0, 3, 4]
    assert (found.first_hour("a/x@t"), found.first_hour("unknown")) == (8, None)


def test_counts_in_the_future_from_a_wrong_clock_are_not_counted_as_of_today() -> None:
    found = tally((9, "a/x", "unprotected", 1), (10, "a/x", "unprotected", 1), (900_000, "a/x", "unprotected", 1))
    assert found.total("unprotected", hours=24) == 2, "an hour ahead counts as today: clocks are set back a little"
    assert found.total("unprotected") == 2


# ── what it costs ──


def steps(call: Any) -> int:
    """Count the instructions of the interpreter in all Python functions that the call runs."""
    counted = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal counted
        frame.f_trace_opcodes = True
        counted += event == "opcode"
        return trace

    with resting():
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(None)
    return counted


def emitting(*, counters: bool) -> tuple[Once, Any]:
    """Return a function that emits one event as the hot paths do."""
    once = Once(MemoryStore(), counters=counters)
    engine, key, record = once.engine, once.key("k"), None

    def emit() -> None:
        if engine.wants("completed"):
            engine.emit_wanted("completed", key, record)

    emit()  # the scope is new the first time only
    return once, emit


def test_an_event_costs_few_steps_more_where_it_is_counted_and_none_where_it_is_not() -> None:
    """A step takes some 10 to 30 ns; bench/ has the time that it takes."""
    once, plain = emitting(counters=False)
    counting, counted = emitting(counters=True)
    with once, counting:
        steps(plain), steps(counted)  # Python 3.12 counts nothing in the first traced run
        without, with_counters = steps(plain), steps(counted)
    print(f"steps of the interpreter an event: {without} without counters, {with_counters} with")
    assert 0 < with_counters - without <= 32
    assert without > 0
    assert once.engine.wants == once.engine.bus.wants
    assert once.engine.bus.totals is None


def test_counting_builds_no_event_without_a_listener() -> None:
    once = Once(MemoryStore(), counters=True)
    with once:
        made: list[object] = []
        once.engine.bus.emit = made.append  # type: ignore[method-assign,assignment]
        once.run("k", int)
        once.run("k", int)
        assert made == []
        assert isinstance(once.counters, Counters)
        assert once.counters.totals.counts() == {once.key("k").scope.text: {"executed": 1, "replayed": 1}}


def test_every_state_of_a_record_that_was_skipped_has_a_name() -> None:
    assert {counter_name("skipped", state=state.value) for state in RecordState} == {
        "replayed",
        "running",
        "failed",
        "parked",
    }
