"""SQLite updates a state by the number of its row: rows are never mixed up, even if another client wrote meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from onceward import Once
from onceward.latest import Ordering, StateEvent, deleted
from tests.integration.trucks import at


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


def test_entities_that_are_deleted_and_come_back_are_never_mixed_up(once: Once) -> None:
    trucks = once.state("trucks")
    for turn in range(3):
        names = [f"truck {turn % 2} {n}" for n in range(20)]
        trucks.apply_many([(name, at(10 * turn + 1), name) for name in names])
        trucks.apply_many(
            [
                *((name, at(10 * turn + 2), deleted) for name in names[10:]),
                *((name, at(10 * turn + 2), 2) for name in names[:5]),
            ]
        )
        assert [trucks.get(name) for name in names] == [2] * 5 + names[5:10] + [None] * 10


def test_a_file_that_was_vacuumed_has_every_state_where_it_belongs(once: Once, raw: sqlite3.Connection) -> None:
    trucks = once.state("trucks")
    names = [f"truck {n}" for n in range(40)]
    trucks.apply_many([(name, at(1), name) for name in names])
    raw.execute("DELETE FROM onceward_latest WHERE entity IN ('truck 0', 'truck 7')")  # so that rows may move up
    raw.execute("VACUUM")
    trucks.apply_many([(name, at(2), f"{name} again") for name in names[20:]])
    assert [trucks.get(name) for name in names[1:7]] == names[1:7]
    assert [trucks.get(name) for name in names[20:]] == [f"{name} again" for name in names[20:]]


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
