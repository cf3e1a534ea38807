"""States have rows of their own on SQLite: how those of older files are moved, and that they are never mixed up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceward import Once
from onceward.keys.key import make_key
from onceward.latest import Ordering, StateEvent, deleted
from onceward.protocol.ordering import position_of
from onceward.protocol.record import READER
from onceward.results.codec import PLAIN
from onceward.stores.sqlite import schema
from tests.integration.trucks import at

BEFORE = schema.MIGRATIONS.index(schema.STATES)
"""The last version in which a state was in the row of its entity."""

AS_BEFORE = """
INSERT INTO onceward_newest (id, scope, entity, ordering, value, updated_at, expires_at) VALUES (?, ?, ?, ?, ?, 1, ?)
"""
FAR = 1 << 62


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "once.db"


@pytest.fixture
def once(path: Path) -> Iterator[Once]:
    with Once(f"sqlite:///{path}?synchronous=NORMAL") as once:
        yield once


@pytest.fixture
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        yield raw


def write_as_before(raw: sqlite3.Connection, entity: str, ordering: Ordering, value: Any) -> None:
    """As version 4 did it: all in one row."""
    scope = Once("memory://").state("trucks").scope
    key = make_key(scope, entity)
    gone = value is deleted
    order = position_of(ordering).order(b"\1" + bytes(15))
    packed = None if gone else PLAIN.pack_all([value], [key.id])[0]
    raw.execute(AS_BEFORE, (key.id, scope.text, key.text, order, packed, FAR if gone else None))


def make_before(raw: sqlite3.Connection) -> None:
    for statement in "\n;\n".join(schema.MIGRATIONS[:BEFORE]).split("\n;\n"):
        raw.execute(statement)
    raw.execute(f"INSERT INTO onceward_meta VALUES ('schema_version', {BEFORE}), ('min_reader', 1)")


def where(raw: sqlite3.Connection) -> dict[str, tuple[bool, bool, int]]:
    """By entity: whether it has a number, whether its own row has a value, and which reader it needs."""
    rows = raw.execute("SELECT entity, number, value, min_reader FROM onceward_newest").fetchall()
    return {entity: (number is not None, value is not None, reader) for entity, number, value, reader in rows}


INSIDE, APART, GONE = (False, True, READER), (True, False, READER + 1), (False, False, READER)


@pytest.mark.fault("F67")
def test_states_of_the_previous_version_are_readable_protect_and_move_when_they_change(
    raw: sqlite3.Connection, path: Path
) -> None:
    make_before(raw)
    for entity in ("changed", "kept", "deleted later"):
        write_as_before(raw, entity, at(5), "five")
    write_as_before(raw, "gone", at(5), deleted)
    with Once(f"sqlite:///{path}") as once:
        trucks = once.state("trucks")
        assert [one.entity for one in trucks.entities()] == ["changed", "deleted later", "kept"]
        assert trucks.read("gone").deleted  # type: ignore[union-attr]  # it is there
        late = [(entity, at(4), "four") for entity in ("changed", "kept", "deleted later", "gone")]
        assert {str(outcome) for outcome in trucks.apply_many(late)} == {"stale_event_ignored"}
        assert where(raw) == {"changed": INSIDE, "kept": INSIDE, "deleted later": INSIDE, "gone": GONE}
        news = [("changed", at(6), "six"), ("deleted later", at(6), deleted), ("gone", at(6), "back")]
        assert all(outcome.executed for outcome in trucks.apply_many(news))
        assert where(raw) == {"changed": APART, "kept": INSIDE, "deleted later": GONE, "gone": APART}
        assert [trucks.get(name) for name in ("changed", "kept", "deleted later", "gone")] == [
            "six",
            "five",
            None,
            "back",
        ]
        assert {str(outcome) for outcome in trucks.apply_many(late)} == {"stale_event_ignored"}


@pytest.mark.fault("F67")
def test_a_client_of_the_previous_version_keeps_working_and_leaves_moved_states_alone(
    once: Once, raw: sqlite3.Connection
) -> None:
    trucks = once.state("trucks")
    trucks.apply("ours", at(5), "five")
    write_as_before(raw, "theirs", at(5), "five")
    assert where(raw) == {"ours": APART, "theirs": INSIDE}, (
        "the previous version leaves entities alone that need a newer reader"
    )
    assert trucks.get("theirs") == "five"
    assert [outcome.executed for outcome in trucks.apply_many([("theirs", at(4), 4), ("theirs", at(6), 6)])] == [
        False,
        True,
    ]
    assert where(raw)["theirs"] == APART
    assert dict(raw.execute("SELECT name, value FROM onceward_meta"))["min_reader"] == 1


def test_a_deleted_entity_gives_its_number_back_and_the_next_one_may_have_it(
    once: Once, raw: sqlite3.Connection
) -> None:
    trucks = once.state("trucks")
    for turn in range(3):
        names = [f"truck {turn} {n}" for n in range(20)]
        trucks.apply_many([(name, at(1), name) for name in names])
        trucks.apply_many([*((name, at(2), deleted) for name in names[10:]), *((name, at(2), 2) for name in names[:5])])
        assert [trucks.get(name) for name in names] == [2] * 5 + names[5:10] + [None] * 10
    assert raw.execute("SELECT count(*) FROM onceward_states").fetchone() == (30,)
    strays = (
        "SELECT count(*) FROM onceward_states WHERE number NOT IN (SELECT number FROM onceward_newest WHERE number)"
    )
    assert raw.execute(strays).fetchone() == (0,)
    twice = "SELECT number FROM onceward_newest WHERE number IS NOT NULL GROUP BY number HAVING count(*) > 1"
    assert raw.execute(twice).fetchall() == []


def test_a_file_that_was_vacuumed_has_every_state_where_it_belongs(once: Once, raw: sqlite3.Connection) -> None:
    trucks = once.state("trucks")
    names = [f"truck {n}" for n in range(40)]
    trucks.apply_many([(name, at(1), name) for name in names])
    raw.execute("DELETE FROM onceward_newest WHERE entity IN ('truck 0', 'truck 7')")  # so that rows may move up
    raw.execute("VACUUM")
    trucks.apply_many([(name, at(2), f"{name} again") for name in names[20:]])
    assert [trucks.get(name) for name in names[1:7]] == names[1:7]
    assert [trucks.get(name) for name in names[20:]] == [f"{name} again" for name in names[20:]]


def test_a_state_that_was_removed_by_hand_is_unknown_and_comes_back_with_the_next_event(
    once: Once, raw: sqlite3.Connection
) -> None:
    trucks = once.state("trucks")
    trucks.apply_many([("a", at(5), 5), ("b", at(5), 5)])
    raw.execute("DELETE FROM onceward_states WHERE number = (SELECT number FROM onceward_newest WHERE entity = 'a')")
    assert trucks.read("a") is None
    assert [one.entity for one in trucks.entities()] == ["b"]
    assert trucks.apply("a", at(1), 1).executed
    assert (trucks.get("a"), trucks.get("b")) == (1, 5)


def test_two_alternating_writers_end_in_the_same_state_as_one(once: Once, path: Path) -> None:
    dice = Random(5)
    history = [
        StateEvent(f"truck {dice.randrange(9)}", Ordering("2025-12-31T12:00Z", n), deleted if n % 7 == 0 else n)
        for n in range(600)
    ]
    dice.shuffle(history)
    with Once(f"sqlite:///{path}?synchronous=NORMAL") as other, Once("memory://") as memory:
        alone = memory.state("trucks")
        for start in range(0, 600, 20):
            batch = history[start : start + 20]
            writer = once if start // 20 % 3 else other
            outcomes = [str(outcome) for outcome in writer.state("trucks").apply_many(batch)]
            assert outcomes == [str(outcome) for outcome in alone.apply_many(batch)]
        names = [f"truck {n}" for n in range(9)]
        ends = [
            [one and (one.value, one.ordering, one.deleted) for one in map(state.read, names)]
            for state in (once.state("trucks"), other.state("trucks"), alone)
        ]
    assert ends[0] == ends[1] == ends[2]
