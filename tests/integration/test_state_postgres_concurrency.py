"""The guard against old events on PostgreSQL, with concurrent writers."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward import Failed, Once
from onceward.errors import VersionSkew
from onceward.latest import Ordering
from onceward.stores.postgres import latest
from onceward.stores.postgres import store as postgres_store
from onceward.stores.postgres.latest import EventBatch
from tests.integration.test_state_postgres_costs import END, sent
from tests.integration.trucks import HISTORY, at, current
from tests.integration.trucks_on_postgres import (
    Event,
    _quiet,
    another,
    count,
    deliver_concurrently,
    once,
    store,
    trucks,
)
from tests.raw_postgres import batches_that_lock_first, lock_first
from tests.servers.postgres import URL, execute

__all__ = ["_quiet", "once", "sent", "store", "trucks"]  # fixtures, re-exported so that pytest finds them


pytestmark = [pytest.mark.usefixtures("postgres")]


# ── another writer was faster ──


Change = Callable[[Any], object]
RACES: dict[str, tuple[Change, list[str], Any]] = {
    "a newer state": (lambda others: others.apply("truck", at(7), "seven"), ["stale_event_ignored"] * 2, "seven"),
    "one in between": (
        lambda others: others.apply("truck", at(5, sequence=1), "between"),
        ["stale_event_ignored", "applied"],
        "six",
    ),
    "an older state": (lambda others: others.apply("truck", at(2), "two"), ["applied", "applied"], "six"),
    "a message": (
        lambda others: others.apply("truck", at(5, message_id="m5"), "five"),
        ["duplicate_message_noop", "applied"],
        "six",
    ),
    "a message with other content": (
        lambda others: others.apply("truck", at(1, message_id="m6"), "one"),
        ["applied", "mismatch"],
        "five",
    ),
    "a deleted one": (lambda others: others.delete("truck", at(7)), ["stale_event_ignored"] * 2, None),
}
HALVES = ("truck", at(5, message_id="m5"), "five"), ("truck", at(6, message_id="m6"), "six")


@pytest.mark.rival(18)
@pytest.mark.mission("E2", "E6")
@pytest.mark.parametrize("there", [True, False], ids=["known", "new"])
@pytest.mark.parametrize("race", RACES)
def test_writes_of_others_between_lookup_and_write_are_noticed(
    trucks: Any, schema: str, monkeypatch: pytest.MonkeyPatch, race: str, there: bool
) -> None:
    change, expected, end = RACES[race]
    if there:
        trucks.apply("truck", at(3), "three")
    with another(schema) as other:
        others = other.state("trucks")
        before_the_write(monkeypatch, lambda: change(others))
        assert [str(outcome) for outcome in trucks.apply_many(HALVES)] == expected
        assert [str(outcome) for outcome in others.apply_many(HALVES)] == [
            "mismatch" if one == "mismatch" else "duplicate_message_noop" for one in expected
        ]
    assert trucks.get("truck") == end


@pytest.mark.rival(18)
def test_of_two_concurrent_deliveries_of_a_stale_message_one_claims_it(
    trucks: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither changes the entity, so only the mark decides."""
    trucks.apply("truck", at(9), "nine")
    late, outcomes = at(1, message_id="late"), []
    with another(schema) as other:
        before_the_write(monkeypatch, lambda: outcomes.append(other.state("trucks").apply("truck", late, 1)))
        outcomes.append(trucks.apply("truck", late, 1))
    assert [str(outcome) for outcome in outcomes] == ["stale_event_ignored", "duplicate_message_noop"]


@pytest.mark.fault("F67")
def test_an_entity_that_a_newer_version_writes_meanwhile_is_left_alone(
    trucks: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trucks.apply_many([("new", at(1), 1), ("old", at(1), 1)])
    taken_over = f"""UPDATE "{schema}".onceward_latest SET min_reader = 99 WHERE entity = 'new'"""
    before_the_write(monkeypatch, lambda: execute(taken_over))
    outcomes = trucks.apply_many([("new", at(2, message_id="m"), 2), ("old", at(2), 2)])
    assert isinstance(outcomes[0], Failed)
    assert isinstance(outcomes[0].exception, VersionSkew)
    assert outcomes[1].executed
    with pytest.raises(VersionSkew, match="newer Onceward"):
        trucks.apply("new", at(3), 3)
    assert count(schema, "marks") == 0


def before_the_write(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let another writer make this change between the lookup and the write of the next batch."""
    sound = latest._write

    async def late(context: Any, batch: EventBatch) -> bool:
        latest._write = sound
        other = threading.Thread(target=change)
        other.start()
        other.join(60)
        return await sound(context, batch)

    monkeypatch.setattr(latest, "_write", late)


def test_after_a_race_batches_lock_their_entities_first_and_leave_no_empty_rows(
    once: Once, trucks: Any, schema: str, sent: list[list[str]]
) -> None:
    lock_first(once.store, 1)
    future = Ordering("2999-01-01T00:00Z")
    many = [(f"truck {n}", at(1, message_id=f"m{n}"), n) for n in range(20)]
    outcomes = trucks.apply_many([*many, ("early", future, 1)])
    assert [str(outcome) for outcome in outcomes] == ["applied"] * 20 + ["future_event_parked"]
    lock = ["begin", "set", "latest_lock", "latest_lookup"]
    assert sent == [lock, ["latest_update", "latest_insert_marks"], END], (
        "a batch that has locked its entities knows that they exist"
    )
    assert execute(f"""SELECT entity FROM "{schema}".onceward_latest WHERE expires_at IS NOT NULL""") == []
    assert batches_that_lock_first(once.store) == 0
    lock_first(once.store, 1)
    sent.clear()
    assert {str(outcome) for outcome in trucks.apply_many(many)} == {"duplicate_message_noop"}
    assert sent == [lock, END]


# ── many concurrent clients ──

ENTITIES, ROUNDS, CLIENTS = 40, 12, 6


def batch_of(number: int, round_number: int) -> list[Event]:
    """Return the batch of this client in this round: known and new entities, some of them also in other batches."""
    some = [(f"truck {n + 5 * round_number}", (n * 7 + number) % 11) for n in range(ENTITIES)]
    return [
        (name, at(round_number, sequence=place, message_id=f"{round_number} {place}"), 100 * round_number + place)
        for name, place in some
    ]


@pytest.mark.rival(18)
@pytest.mark.mission("E2", "E6")
@pytest.mark.parametrize("lock_first", [False, True], ids=["lookup first", "lock first"])
def test_batches_that_overlap_in_every_order_lose_nothing_and_never_deadlock(
    trucks: Any, schema: str, monkeypatch: pytest.MonkeyPatch, lock_first: bool
) -> None:
    monkeypatch.setattr(postgres_store, "RETRYABLE", frozenset())  # a deadlock is an error
    sound, failed_writes = EventBatch.all_written, []

    def took(batch: EventBatch, replies: Any) -> bool:
        done = sound(batch, replies)
        failed_writes.extend([batch] * (not done))
        return done

    monkeypatch.setattr(EventBatch, "all_written", took)

    def shuffled(number: int, round_number: int, dice: Random) -> list[Event]:
        return dice.sample(batch_of(number, round_number), ENTITIES)

    lock_first_batches = 5 if lock_first else 0  # as after a race, or before
    outcomes = deliver_concurrently(CLIENTS, range(ROUNDS), partial(another, schema), shuffled, lock_first_batches)
    fresh = [(name, value) for (name, _, value), one in outcomes if not one.replayed]
    assert not (lock_first and failed_writes), "a batch that has locked its entities is written at the first try"
    all_of_it = [
        event for number in range(CLIENTS) for round_number in range(ROUNDS) for event in batch_of(number, round_number)
    ]
    assert sorted(fresh) == sorted({(name, value) for name, _, value in all_of_it}), "each message was new to one"
    wanted = {name: value for name, _, value in sorted(all_of_it, key=lambda event: event[2])}
    assert {name: trucks.get(name) for name in wanted} == wanted


LIVES = itertools.count()


@pytest.mark.mission("E6")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORY, dice=st.randoms(use_true_random=False))
def test_any_permutation_and_repetition_by_concurrent_clients_ends_in_the_same_state(
    once: Once, schema: str, history: list[tuple[Any, ...]], dice: Random
) -> None:
    events = [
        (entity, Ordering(time, sequence, published, f"m{n}" if has_id or not (time or sequence) else None), value, id)
        for n, (entity, time, sequence, published, has_id, value, id) in enumerate(history)
    ]
    with Once("memory://") as alone:
        alone.state("trucks").apply_many(events)
        wanted = [current(alone.state("trucks"), entity) for entity in ("a", "b")]
    life = once.state(f"life {next(LIVES)}")

    def deliver(mine: list[Any]) -> None:
        for start in range(0, len(mine), 3):
            life.apply_many(mine[start : start + 3])

    pool = [threading.Thread(target=deliver, args=(dice.sample(events, len(events)),)) for _ in range(3)]
    for one in pool:
        one.start()
    for one in pool:
        one.join(60)
    assert [current(life, entity) for entity in ("a", "b")] == wanted


DELIVER = """
import sys
from random import Random
from onceward import Once
from onceward.latest import Ordering
url, number = sys.argv[1], int(sys.argv[2])
history = [(f"truck {n % 7}", Ordering("2025-12-31T12:00Z", n % 13, None, f"m{n}"), n) for n in range(400)]
Random(number).shuffle(history)
with Once(url) as once:
    state = once.state("trucks")
    outcomes = [outcome for start in range(0, 400, 20) for outcome in state.apply_many(history[start : start + 20])]
    print(sum(not outcome.replayed for outcome in outcomes))
"""


@pytest.mark.rival(18)
@pytest.mark.mission("E2", "E6")
def test_processes_that_deliver_one_history_end_in_its_state(once: Once, trucks: Any, schema: str) -> None:
    command = [sys.executable, "-c", DELIVER, f"{os.environ[URL]}?schema={schema}"]
    pool = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(3)]
    assert sum(int(one.communicate(timeout=60)[0]) for one in pool) == 400, "each message was new to exactly one"
    history = [(f"truck {n % 7}", Ordering("2025-12-31T12:00Z", n % 13, None, f"m{n}"), n) for n in range(400)]
    alone = once.state("alone")
    alone.apply_many(Random(9).sample(history, 400))
    assert [current(trucks, f"truck {n}") for n in range(7)] == [current(alone, f"truck {n}") for n in range(7)]
