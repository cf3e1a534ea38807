"""The audit trail in the file: one transaction with the change, and small."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.errors import ConfigurationError, StoreBroken
from onceward.protocol.audit import MAX_REASON_LENGTH, AuditFilter, signature
from onceward.protocol.record import RecordState
from onceward.protocol.requests import ExpectedRecord, Park, Release, Resolution, Resolve, Verdict
from onceward.runtime.threads import run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.maintenance import CHUNK
from onceward.testing.clock import FakeClock
from tests.unit.sqlite_calls import acquire, change, look
from tests.unit.sqlite_fixtures import path, store

__all__ = ["path", "store"]  # fixtures, imported here so that pytest finds them


SIGNED = signature("forget", "ann@host", "because")


def test_a_change_whose_entry_cannot_be_written_does_not_happen(store: SQLiteStore, path: Path) -> None:
    mine = acquire(store, "a")
    run(store.settle([Park(mine.id, mine.token, mine.nonce)], timeout=5))
    before = look(path, "SELECT * FROM onceward_records")
    change(path, "ALTER TABLE onceward_audit RENAME TO elsewhere")
    with pytest.raises(StoreBroken):
        run(store.settle([Resolve(mine.id, mine.token, Resolution.APPLIED)], timeout=5, signed=SIGNED))
    for force in (False, True):
        with pytest.raises(StoreBroken):
            run(store.forget([mine.id], force=force, timeout=5, signed=SIGNED))
    assert look(path, "SELECT * FROM onceward_records") == before
    change(path, "ALTER TABLE elsewhere RENAME TO onceward_audit")
    assert run(store.forget([mine.id], force=True, timeout=5, signed=SIGNED))[0].verdict is Verdict.OK
    assert look(path, "SELECT verb, who, why, state_before, state_after FROM onceward_audit") == [
        ("forget", "ann@host", "because", "PARKED", "FREE")
    ]


def test_a_purge_in_several_transactions_is_one_entry(store: SQLiteStore, path: Path, clock: FakeClock) -> None:
    many = CHUNK + 20
    for number in range(many):
        mine = acquire(store, f"key {number}")
        run(store.settle([Release(mine.id, mine.token, mine.nonce)], timeout=5))
    clock.advance("2h")
    assert run(store.purge(many, timeout=30, signed=SIGNED)) == many
    assert look(path, "SELECT count(*), sum(count) FROM onceward_audit") == [(1, many)]


def test_a_record_that_cannot_be_read_is_forgotten_by_force_only_as_it_was_seen(store: SQLiteStore, path: Path) -> None:
    mine = acquire(store, "a")
    change(path, "UPDATE onceward_records SET state = 'NONSENSE'")
    seen = {mine.id: ExpectedRecord(mine.token + 1, RecordState.COMPLETED)}
    assert run(store.forget([mine.id], force=True, timeout=5, seen=seen, signed=SIGNED))[0].verdict is Verdict.LOST
    assert run(store.forget([mine.id], force=True, timeout=5, signed=SIGNED))[0].verdict is Verdict.OK
    assert len(run(store.audit(AuditFilter(id=mine.id), limit=9, timeout=5))) == 1


def test_a_reason_is_a_sentence_and_not_a_book() -> None:
    assert signature("forget", "me", "x" * MAX_REASON_LENGTH).why
    with pytest.raises(ConfigurationError, match="too long"):
        signature("forget", "me", "x" * (MAX_REASON_LENGTH + 1))
    with pytest.raises(ConfigurationError, match="why must be text"):
        signature("forget", "me", 5)  # type: ignore[arg-type]  # what a careless caller does
    assert signature("forget", "me", "\udcff").why == "\\udcff", "what no store can hold is spelled out"
