"""Requests of every kind in one transaction, and one record written by one statement: both as the state table says."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onceward.protocol import transitions
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import (
    Answer,
    AnyRequest,
    ClaimRequest,
    Complete,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Verdict,
)
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.table import SELECT_RECORDS, compute_answers, write_if_unchanged
from onceward.testing.clock import FakeClock
from onceward.testing.conformance.histories import CLOCK_STEPS, KINDS, RANDOM
from tests.raw_sqlite import database_of
from tests.unit.sqlite_calls import HOUR, LEASE, acquire, claim, complete, ident, request

FEW, CROWD = range(8), range(150)


@contextmanager
def opened(path: Path, clock: FakeClock) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path, synchronous="NORMAL", clock=clock)
    run(store.open(ThreadRuntime()))
    try:
        yield store
    finally:
        run(store.close())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "once.db"


@pytest.fixture
def store(path: Path, clock: FakeClock) -> Iterator[SQLiteStore]:
    with opened(path, clock) as store:
        yield store


# ── several in one batch ─────────────────────────────────────────────────────────────────────────────────────────────


def some_batch(dice: Random, words: range, records: dict[bytes, Record]) -> list[AnyRequest]:
    """Claims, renewals and settlements, each for another key, most in the name of its last owner."""
    return [some_one(dice, word, records.get(ident(word))) for word in dice.sample(words, dice.randint(1, len(words)))]


def some_one(dice: Random, word: int, record: Record | None) -> AnyRequest:
    if dice.random() < 0.5:
        return replace(RANDOM.claim(dice), id=ident(word), key=str(word), nonce=b"nonce %d" % dice.randrange(4))
    token, nonce = (record.token, record.nonce) if record and dice.random() < 0.8 else (1, b"unknown")
    one = RANDOM.request(dice, dice.choice(KINDS))
    if isinstance(one, Resolve):
        return replace(one, id=ident(word), token_seen=token)
    return replace(one, id=ident(word), token=token, nonce=nonce)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from([FEW, FEW, FEW, CROWD]))
def test_any_batch_answers_in_its_order_what_the_state_table_says(seed: int, words: range) -> None:
    dice, clock = Random(seed), FakeClock()
    records: dict[bytes, Record] = {}
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "once.db", clock) as store:
        for _ in range(12):
            batch = some_batch(dice, words, records)
            answers = run(store.send(batch, 5))
            assert len(answers) == len(batch)
            for one, answer in zip(batch, answers, strict=True):
                wanted, verdict = transitions.apply(records.get(one.id), one, clock.now())
                assert answer == Answer(verdict, wanted, clock.now())
                if wanted is not None:
                    records[one.id] = wanted
            clock.advance_microseconds(dice.choice(CLOCK_STEPS))  # negative: set back
        found = run(store.read(list(records), timeout=5))
        assert {answer.record.id: answer.record for answer in found if answer.record} == records


def test_a_batch_is_one_transaction_and_wakes_waiters_of_settled_keys(store: SQLiteStore, clock: FakeClock) -> None:
    one, two = acquire(store, "one"), acquire(store, "two")
    clock.advance_microseconds(1)  # else there is nothing to renew
    woken: list[str] = []
    for word in ("one", "two", "three"):
        store.watch(ident(word), lambda word=word: woken.append(word))  # type: ignore[misc]
    statements: list[str] = []
    connection = database_of(store)
    connection.set_trace_callback(statements.append)
    batch: list[AnyRequest] = [
        request("three", b"3"),
        Complete(one.id, one.token, one.nonce, result=b"r", digest=b"r"),
        Renewal(two.id, two.token, two.nonce, LEASE),
    ]
    verdicts = [answer.verdict for answer in run(store.send(batch, 5))]
    connection.set_trace_callback(None)
    assert verdicts == [Verdict.ACQUIRED, Verdict.OK, Verdict.OK]
    assert [line for line in statements if line.startswith(("BEGIN", "COMMIT"))] == ["BEGIN IMMEDIATE", "COMMIT"]
    assert woken == ["one"]


def test_a_large_batch_takes_few_statements_and_a_replaced_owner_in_it_changes_nothing(
    store: SQLiteStore, path: Path, clock: FakeClock
) -> None:
    claims = [request(word, b"%d" % word) for word in CROWD]
    records = [answer.record for answer in run(store.send(claims, 5))]
    clock.advance_microseconds(2 * LEASE)
    with opened(path, clock) as other:
        [taken] = run(other.send([request(70, b"another worker's")], 5))
    assert taken.verdict is Verdict.ACQUIRED
    statements: list[str] = []
    connection = database_of(store)
    connection.set_trace_callback(statements.append)
    batch = [Complete(one.id, one.token, one.nonce, result=b"r", digest=b"r") for one in records if one]
    answers = run(store.send(batch, 5))
    connection.set_trace_callback(None)
    assert [number for number, answer in enumerate(answers) if answer.verdict is not Verdict.OK] == [70]
    [found] = run(store.read([ident(70)], timeout=5))
    assert found.record == taken.record
    assert len([line for line in statements if line.startswith("UPDATE")]) < 20, "150 rows, twice at the most"


# ── between the read and the write ──────────────────────────────────────────────────────────────────────────────


def takes_over(_: Record) -> ClaimRequest:
    return request("a", b"another worker's")


def renews(record: Record) -> Renewal:
    return Renewal(record.id, record.token, record.nonce, 2 * LEASE)


def completes(record: Record) -> Complete:
    return Complete(record.id, record.token, record.nonce, result=b"r", digest=b"r")


def fails(record: Record) -> Fail:
    return Fail(record.id, record.token, record.nonce, error_type="E", final=True)


def parks(record: Record) -> Park:
    return Park(record.id, record.token, record.nonce, error_type="E")


def releases(record: Record) -> Release:
    return Release(record.id, record.token, record.nonce)


def resolves(record: Record) -> Resolve:
    return Resolve(record.id, record.token, Resolution.NOT_APPLIED, state_seen=record.state, force=True)


Verb = Callable[[Record], AnyRequest]
VERBS: list[Verb] = [takes_over, renews, completes, fails, parks, releases, resolves]


@pytest.mark.fault("F40", "F41")
@pytest.mark.parametrize("theirs", VERBS, ids=lambda verb: f"another_{verb.__name__}")
@pytest.mark.parametrize("ours", VERBS, ids=lambda verb: f"while_one_{verb.__name__}")
def test_an_update_never_overwrites_a_record_that_changed_since_it_was_read(
    store: SQLiteStore, path: Path, clock: FakeClock, ours: Verb, theirs: Verb
) -> None:
    seen = acquire(store, "a", nonce=b"the owner's")
    clock.advance("1h")  # expired: every worker may change the record
    cursor = database_of(store).cursor()
    found = SELECT_RECORDS.fetch(cursor, [seen.id])
    answers, changes = compute_answers(found, transitions.apply, [ours(seen)], clock.now())
    assert changes
    clock.advance("1s")
    with opened(path, clock) as other:
        [changed] = run(other.send([theirs(seen)], 5))
    assert answers[0].record is not None
    assert not write_if_unchanged(cursor, seen, answers[0].record)
    assert SELECT_RECORDS.fetch(cursor, [seen.id]) == {seen.id: changed.record}


@pytest.mark.fault("F41")
@pytest.mark.parametrize("theirs", [completes, fails, parks, releases])
@pytest.mark.parametrize("ours", [renews, completes, fails, parks, releases])
def test_not_even_a_record_that_changed_in_the_same_microsecond(
    store: SQLiteStore, clock: FakeClock, ours: Verb, theirs: Verb
) -> None:
    seen = acquire(store, "a", nonce=b"the owner's")
    cursor = database_of(store).cursor()
    [answer], _ = compute_answers({seen.id: seen}, transitions.apply, [ours(seen)], clock.now())
    [changed] = run(store.send([theirs(seen)], 5))
    assert answer.record is not None
    assert not write_if_unchanged(cursor, seen, answer.record)
    assert SELECT_RECORDS.fetch(cursor, [seen.id]) == {seen.id: changed.record}


class Meddling(FakeClock):
    """A store reads the clock between its read and its write. At that moment another worker changes the record."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Any] | None = None

    def now(self) -> int:
        now = super().now()
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return now


def deleted(path: Path, id: bytes) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM onceward_records WHERE id = ?", (id,))
    raw.close()


@pytest.mark.fault("F40", "F41")
@pytest.mark.parametrize("theirs", [*VERBS, None], ids=lambda verb: verb.__name__ if verb else "purges")
@pytest.mark.parametrize("ours", VERBS, ids=lambda verb: verb.__name__)
def test_an_overtaken_request_is_answered_from_the_current_record(path: Path, ours: Verb, theirs: Verb | None) -> None:
    clock, real = Meddling(), FakeClock()
    with opened(path, clock) as store, opened(path, real) as other:
        seen = acquire(store, "a", nonce=b"the owner's")
        clock.advance("1h")
        real.advance("1h")
        real.advance("1s")
        after: Record | None = None

        def meddle() -> None:
            nonlocal after
            if theirs is None:
                deleted(path, seen.id)
            else:
                after = run(other.send([theirs(seen)], 5))[0].record

        clock.meanwhile = meddle
        [answer] = run(store.send([ours(seen)], 5))
        wanted, verdict = transitions.apply(after, ours(seen), answer.now)
        assert (answer.verdict, answer.record) == (verdict, wanted)
        [there] = run(other.read([seen.id], timeout=5))
        assert there.record == wanted


def test_of_two_claims_that_found_no_record_one_gets_the_key(path: Path) -> None:
    clock, real = Meddling(), FakeClock()
    with opened(path, clock) as store, opened(path, real) as other:
        theirs: list[Answer] = []
        clock.meanwhile = lambda: theirs.append(claim(other, "a", b"theirs"))
        ours = claim(store, "a", b"ours")
        assert [ours.verdict, theirs[0].verdict] == [Verdict.RUNNING, Verdict.ACQUIRED]
        assert ours.record == theirs[0].record


def test_create_writes_nothing_over_a_record(store: SQLiteStore, clock: FakeClock) -> None:
    cursor = database_of(store).cursor()
    first, _ = transitions.claim(None, request("a", b"first"), clock.now())
    second, _ = transitions.claim(None, request("a", b"second"), clock.now())
    assert [write_if_unchanged(cursor, None, first), write_if_unchanged(cursor, None, second)] == [True, False]
    assert SELECT_RECORDS.fetch(cursor, [first.id]) == {first.id: first}


# ── what changes nothing ────────────────────────────────────────────────────────────────────────────────────────


def test_what_changes_nothing_takes_no_lock_and_writes_nothing(store: SQLiteStore, path: Path) -> None:
    done, running = acquire(store, "done"), acquire(store, "running")
    complete(store, done)
    connection = database_of(store)
    before, log = connection.total_changes, Path(f"{path}-wal").stat().st_size
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    stranger = Renewal(running.id, running.token + 1, b"?", LEASE)
    batch = [request("done", b"2"), request("running", b"2")]
    assert [answer.verdict for answer in run(store.send(batch, 0.5))] == [Verdict.REPLAY, Verdict.RUNNING]
    assert claim(store, "done", b"3").verdict is Verdict.REPLAY
    assert complete(store, done).verdict is Verdict.OK, "settled twice with the same content"
    assert run(store.renew([stranger], timeout=0.5))[0].verdict is Verdict.LOST
    assert store.lookup(ident("done"), b"") is not None
    writer.execute("ROLLBACK")
    writer.close()
    assert connection.total_changes == before
    assert Path(f"{path}-wal").stat().st_size == log


def test_one_that_cannot_be_written_is_spelled_out_and_spoils_no_other(store: SQLiteStore) -> None:
    one, two = acquire(store, "one"), acquire(store, "two")
    batch: list[AnyRequest] = [
        Fail(one.id, one.token, one.nonce, error_type="E", error="\ud800", final=True),
        Complete(two.id, two.token, two.nonce, result=b"r", digest=b"r"),
    ]
    assert [answer.verdict for answer in run(store.send(batch, 5))] == [Verdict.OK, Verdict.OK]
    states = [answer.record.state for answer in run(store.read([one.id, two.id], timeout=5)) if answer.record]
    assert states == [RecordState.FAILED, RecordState.COMPLETED]


def test_a_window_that_slid_meanwhile_is_not_taken_for_over(path: Path) -> None:
    """The read saw an expired window; a worker whose clock is behind had extended it before the write."""
    clock, behind = Meddling(), FakeClock()
    with opened(path, clock) as store, opened(path, behind) as other:
        mine = acquire(store, "a")
        sliding = Complete(mine.id, mine.token, mine.nonce, result=b"r", digest=b"r")
        sliding = replace(sliding, validity=replace(sliding.validity, lasting=HOUR, slide=HOUR))
        run(store.settle([sliding], timeout=5))
        clock.advance("1h")
        behind.advance("59m")
        clock.meanwhile = lambda: claim(other, "a", b"theirs")
        assert claim(store, "a", b"ours").verdict is Verdict.REPLAY


async def test_a_memory_store_never_waits_on_a_loop_either() -> None:
    """`inline` promises it, and such a call is not shielded: it must end before its caller can be cancelled."""
    store = SQLiteStore(":memory:")
    await store.open(AsyncioRuntime())
    with pytest.raises(StopIteration):
        store.claim([request("a")], timeout=5).send(None)
    await store.close()
