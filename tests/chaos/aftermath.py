"""Checks after every delivery, whether it was killed in the middle or not. They read only the raw files."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from tests.chaos.cycles import RECEIPT, RunFiles


class Promise(Enum):
    """The row of the table of promises that a cycle belongs to."""

    EXACTLY_ONCE = "rows in the database where the record lives"
    AT_LEAST_ONCE = "anything else, rerun"
    AT_MOST_ONCE = "anything else, park"


class Snapshot(NamedTuple):
    """The contents of the files: state (empty: no record) and attempt of the record, and the number of effects."""

    integrity: str = "ok"
    state: str = ""
    attempt: int = 0
    rows: int = 0
    entries: int = 0

    @property
    def effects(self) -> int:
        return self.rows + self.entries


class Step(NamedTuple):
    """One delivery: the files before and after it, and the outcome that it reported. Empty: it reported none."""

    before: Snapshot
    killed: bool
    reported: tuple[str, ...]
    after: Snapshot


STATE_AND_ATTEMPT = "SELECT coalesce(state, 'COMPLETED'), coalesce(attempt, 1) FROM onceward_records"


def take_snapshot(files: RunFiles) -> Snapshot:
    """Read the files as a new process would find them. This recovers the log, so pass a copy."""
    entries = len(files.ledger.read_text().splitlines()) if files.ledger.exists() else 0
    if not files.database.exists():
        return Snapshot(entries=entries)
    with contextlib.closing(sqlite3.connect(files.database)) as connection:
        try:
            integrity = "; ".join(line for (line,) in connection.execute("PRAGMA integrity_check"))
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            records = connection.execute(STATE_AND_ATTEMPT).fetchall() if "onceward_records" in tables else []
            rows = connection.execute("SELECT count(*) FROM ledger").fetchall()[0][0] if "ledger" in tables else 0
        except sqlite3.DatabaseError as error:
            return Snapshot(integrity=str(error), entries=entries)
    if len(records) > 1:
        return Snapshot(integrity=f"{len(records)} records for one key", rows=rows, entries=entries)
    state, attempt = records[0] if records else ("", 0)
    return Snapshot(integrity, state, attempt, rows, entries)


def last_outcome(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last outcome that was reported, if any: kind, value, attempt."""
    return next((tuple(line.split()[1:]) for line in reversed(lines) if line.startswith("reported ")), ())


def violations(promise: Promise, steps: Sequence[Step]) -> list[str]:
    """Return everything that is wrong with this history."""
    found = [f"delivery {number}: {what}" for number, step in enumerate(steps, 1) for what in _wrong(promise, step)]
    end = steps[-1].after
    if promise is Promise.AT_MOST_ONCE:
        if end.effects != 1 and end.state != "PARKED":
            found.append(
                f"lost: {end.effects} effects, and no operator is notified (the record is {end.state or 'missing'})"
            )
    elif end.effects == 0:
        found.append("lost: it never happened")
    return found


def _wrong(promise: Promise, step: Step) -> Iterator[str]:
    if step.after.integrity != "ok":
        yield f"the file is damaged: {step.after.integrity}"
        return
    yield from _record(promise, step)
    yield from _answer(promise, step)
    yield from _effects(promise, step)


def _record(promise: Promise, step: Step) -> Iterator[str]:
    before, after = step.before, step.after
    legal = {"", "PENDING", "COMPLETED", *(("PARKED",) if promise is Promise.AT_MOST_ONCE else ())}
    if after.state not in legal:
        yield f"the record is {after.state}"
    if before.state and not after.state:
        yield "the record is gone"


def _answer(promise: Promise, step: Step) -> Iterator[str]:
    before, after, kind = step.before, step.after, step.reported[0] if step.reported else ""
    if not kind and not step.killed:
        yield "it was not killed, and reported nothing"
    if kind in {"executed", "replayed"}:
        if after.state != "COMPLETED":
            yield f"reported {kind}, but the record is {after.state or 'missing'}"
        if step.reported[1] != RECEIPT:
            yield f"reported another result: {step.reported[1]}"
    if before.state == "COMPLETED":
        yield from _done_before(step, kind)
    elif promise is Promise.AT_MOST_ONCE and before.state:
        yield from _parked(step, kind)
    elif kind and (kind != "executed" or int(step.reported[2]) != before.attempt + 1):
        yield f"reported {' '.join(step.reported)} where it had to run as attempt {before.attempt + 1}"


def _done_before(step: Step, kind: str) -> Iterator[str]:
    if step.after.state != "COMPLETED":
        yield f"it was completed, and now it is {step.after.state}"
    if step.after.effects != step.before.effects:
        yield "it was completed, and happened again"
    if kind not in {"", "replayed"}:
        yield f"it was completed, and reported {kind}"


def _parked(step: Step, kind: str) -> Iterator[str]:
    if step.after.effects != step.before.effects:
        yield "its outcome was unknown, and it ran again"
    if kind not in {"", "parked"}:
        yield f"its outcome was unknown, and it reported {kind}"


def _effects(promise: Promise, step: Step) -> Iterator[str]:
    before, after = step.before, step.after
    if after.effects < before.effects:
        yield "an effect is gone"
    if after.state == "COMPLETED" and after.effects == 0:
        yield "recorded, but it did not happen"
    if promise is Promise.EXACTLY_ONCE and after.effects != (after.state == "COMPLETED"):
        yield f"{after.effects} rows, and the record is {after.state or 'missing'}"
    if promise is Promise.AT_MOST_ONCE and after.effects > 1:
        yield f"it happened {after.effects} times"
    if after.effects > before.effects + 1:
        yield "one delivery, two effects"
