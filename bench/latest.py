"""The latest state from a stream of events out of order, in batches, compared with a handwritten upsert.

Both get the same events (a name, an aware time, a number, a dict) and commit once per batch. The handwritten code
stores the value as JSON and the time as an integer, with one `INSERT … ON CONFLICT … WHERE` for all rows of a batch;
with messages, it also inserts the ids into a table. That is less than Onceward does (content does not decide ties,
mismatches are not detected, stale rows are not reported), so the ratio is the cost of the rest. Two files per side,
alternating.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from bench.bare import SETTINGS
from bench.case import Case, Cases, Plan
from bench.paired import ORDER_OF_A, ORDER_OF_B, Block, Run, alternate
from onceward import Once
from onceward.latest import Ordering, StateEvent

ENTITIES = 10_000
BATCH = 1_000
LATE = 3_600  # seconds by which an event may be late; the clock of the producers advances by one second per batch
SHARE_LATE = 0.3
START = datetime(2026, 1, 1, tzinfo=UTC)
DURABILITIES = ("FULL", "NORMAL")

Event = StateEvent[dict[str, object]]
Apply = Callable[[Sequence[Event]], object]

CREATE = (
    "CREATE TABLE newest (entity TEXT PRIMARY KEY, at INTEGER, number INTEGER, value TEXT)",
    "CREATE TABLE seen (message TEXT PRIMARY KEY, expires_at INTEGER) WITHOUT ROWID",
)
UPSERT = (
    "INSERT INTO newest VALUES (?, ?, ?, ?) ON CONFLICT (entity) DO UPDATE"
    " SET at = excluded.at, number = excluded.number, value = excluded.value"
    " WHERE (excluded.at, excluded.number) > (newest.at, newest.number)"
)
SEE = "INSERT INTO seen VALUES (?, ?) ON CONFLICT DO NOTHING"
WEEK = 7 * 86_400 * 1_000_000


def cases(plan: Plan) -> Cases:
    for durability in DURABILITIES:
        for messages in (False, True):
            what = "events with message ids" if messages else "events"
            name = f"sqlite {durability}, newest of {what}, against a bare upsert"
            if not plan.wants(name):
                continue
            with tempfile.TemporaryDirectory(dir=plan.folder) as folder, ExitStack() as stack:
                ours = [with_onceward(Path(folder) / f"ours-{n}.db", durability) for n in (0, 1)]
                bares = [by_hand(Path(folder) / f"bare-{n}.db", durability, messages=messages) for n in (0, 1)]
                a, b = ([stream(stack.enter_context(one), messages=messages) for one in side] for side in (ours, bares))
                yield Case(name, alternate(ORDER_OF_A, *a), alternate(ORDER_OF_B, *b), plan.effort.stream)


def stream(apply: Apply, *, messages: bool) -> Block:
    """Return a block of prepared events. Each block continues where the previous one ended."""
    numbers, rng = count(), random.Random(1)

    def block(times: int) -> Run:
        events = [event(next(numbers), rng, messages=messages) for _ in range(times)]

        def run() -> None:
            for start in range(0, times, BATCH):
                apply(events[start : start + BATCH])

        return run

    return block


def event(number: int, rng: random.Random, *, messages: bool) -> Event:
    late = rng.randrange(LATE) if rng.random() < SHARE_LATE else 0
    at = START + timedelta(seconds=number // BATCH - late)
    truck = rng.randrange(ENTITIES)
    position = {"lat": 52.5 + truck / 1e4, "lon": 13.4 + number % 97 / 1e3}
    value: dict[str, object] = {**position, "speed": number % 130, "ok": True}
    return StateEvent(f"truck {truck}", Ordering(at, number, None, f"message {number}" if messages else None), value)


@contextmanager
def with_onceward(path: Path, durability: str) -> Iterator[Apply]:
    with Once(f"sqlite:///{path}?synchronous={durability}") as once:
        yield once.state("trucks", max_clock_skew=None).apply_many


@contextmanager
def by_hand(path: Path, durability: str, *, messages: bool) -> Iterator[Apply]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in (*SETTINGS, f"PRAGMA synchronous = {durability}", *CREATE):
            connection.execute(statement).fetchall()

        def apply(events: Sequence[Event]) -> None:
            rows = []
            for one in events:
                ordering = one.ordering
                assert isinstance(ordering, Ordering)
                assert isinstance(ordering.event_time, datetime)
                at = int(ordering.event_time.timestamp() * 1e6)
                rows.append((one.entity, at, ordering.sequence, json.dumps(one.value)))
            connection.execute("BEGIN IMMEDIATE")
            if messages:
                connection.executemany(SEE, [(one.ordering.message_id, WEEK) for one in events])  # type: ignore[union-attr]  # as above
            connection.executemany(UPSERT, rows)
            connection.execute("COMMIT")

        yield apply
