"""The guard against old events on PostgreSQL, in few statements."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from onceward import Once, StoreUnavailable
from onceward.latest import StateEvent
from onceward.latest import deleted as gone
from onceward.stores.postgres import PostgresStore, latest
from onceward.stores.postgres.connection import PostgresConnection
from onceward.stores.postgres.statements import statements
from onceward.testing import FakeClock
from tests.integration.postgres_connections import make_effects, with_psycopg
from tests.integration.trucks import at
from tests.integration.trucks_on_postgres import _quiet, another, count, once, store, trucks
from tests.raw_postgres import connections_of, lock_first
from tests.servers.postgres import URL, execute

__all__ = ["_quiet", "once", "store", "trucks"]  # fixtures, re-exported so that pytest finds them


pytestmark = [pytest.mark.usefixtures("postgres")]


@pytest.fixture
def sent(trucks: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Each round trip with the statements in it, from here on."""
    names = {
        statement.raw: name for name, statement in vars(statements(_schema())).items() if hasattr(statement, "raw")
    }
    names |= {
        one.raw: word
        for one, word in ((latest.BEGIN, "begin"), (latest.BATCH_SETTINGS, "set"), (latest.COMMIT, "commit"))
    }
    trips: list[list[str]] = []

    def traced(verb: str, named: Callable[..., list[str]]) -> None:
        sound = getattr(PostgresConnection, verb)

        def call(connection: PostgresConnection, *what: Any) -> Any:
            trips.append(named(*what))
            return sound(connection, *what)

        monkeypatch.setattr(PostgresConnection, verb, call)

    for n in range(20):  # so that everything is prepared
        trucks.apply(f"before {n}", at(1, message_id=f"before {n}"), 1)
    traced("run", lambda _deadline, *calls: [names.get(statement.raw, "greeting") for statement, _ in calls])
    traced("command", lambda text, _deadline: [text.lower()])
    return trips


def _schema() -> str:
    return f"test_{os.getpid()}"


END = ["latest_expire", "commit"]


def test_a_batch_is_three_round_trips_and_a_duplicate_one(trucks: Any, sent: list[list[str]]) -> None:
    plain = [(f"truck {n}", at(1), n) for n in range(1_000)]
    trucks.apply_many(plain)
    assert sent == [["latest_lookup"], ["begin", "set", "latest_upsert"], END]
    sent.clear()
    messages = [StateEvent(f"truck {n % 500}", at(2, message_id=f"m{n}"), n, event_id=n) for n in range(1_000)]
    trucks.apply_many(messages)
    assert sent == [["latest_lookup"], ["begin", "set", "latest_update", "latest_insert_marks"], END]
    sent.clear()
    trucks.apply_many([(f"truck {n}", at(1, message_id=f"stale {n}"), n) for n in range(500)])
    assert sent == [["latest_lookup"], ["begin", "set", "latest_insert_marks"], END]
    for known in (plain, messages):
        sent.clear()
        trucks.apply_many(known)
        assert sent == [["latest_lookup"]]


MOVE = ["begin", "set", "latest_upsert"]
UPDATE = ["begin", "set", "latest_update"]


def fleet_at(minute: int, numbers: range = range(50)) -> list[Any]:
    return [(f"truck {n}", at(minute), f"{minute}/{n}") for n in numbers]


def test_entities_that_the_connection_knows_are_not_looked_up_again(trucks: Any, sent: list[list[str]]) -> None:
    trucks.apply_many(fleet_at(1))
    sent.clear()
    assert {str(outcome) for outcome in trucks.apply_many(fleet_at(2))} == {"applied"}
    assert sent == [UPDATE, ["commit"]], "no expired rows are deleted: none of these entities expires"
    sent.clear()
    outcomes = trucks.apply_many([*fleet_at(1, range(25)), *fleet_at(3, range(25, 60))])
    assert [str(outcome) for outcome in outcomes] == ["stale_event_ignored"] * 25 + ["applied"] * 35
    assert sent == [["latest_lookup"], MOVE, END], "ten of them are new"
    assert [trucks.get(f"truck {n}") for n in (0, 24, 25, 59)] == ["2/0", "2/24", "3/25", "3/59"]


@pytest.mark.rival(18)
@pytest.mark.mission("E6")
@pytest.mark.parametrize("deed", ["a newer state", "deleted", "an older state"])
def test_writes_of_others_are_noticed_for_entities_that_the_connection_knows(
    trucks: Any, schema: str, sent: list[list[str]], deed: str
) -> None:
    trucks.apply_many(fleet_at(1))
    with another(schema) as other:
        others = other.state("trucks")
        if deed == "a newer state":
            others.apply_many(fleet_at(9, range(5)))
        elif deed == "deleted":
            others.delete("truck 0", at(9))
        else:
            others.apply_many(fleet_at(2, range(5)))
    sent.clear()
    outcomes = [str(outcome) for outcome in trucks.apply_many(fleet_at(5))]
    stale = {"a newer state": 5, "deleted": 1, "an older state": 0}[deed]
    assert outcomes == ["stale_event_ignored"] * stale + ["applied"] * (50 - stale)
    expected = {"a newer state": "9/0", "deleted": None, "an older state": "5/0"}[deed]
    assert (trucks.get("truck 0"), trucks.get("truck 49")) == (expected, "5/49")
    assert sent[:2] == [UPDATE, ["rollback"]], "the skipped lookup was wrong, and nothing was written"
    sent.clear()
    trucks.apply_many(fleet_at(6))
    assert sent[0] == ["latest_lookup"], "after a wrong guess, the client looks up for a while"


def test_a_new_connection_knows_nothing(store: PostgresStore, trucks: Any, sent: list[list[str]]) -> None:
    """Another server may have replaced the one that it knew, and may have lost its last writes."""
    trucks.apply_many(fleet_at(1))
    for connection in connections_of(store):
        execute(f"SELECT pg_terminate_backend({connection.pgconn.backend_pid})")
    with suppress(StoreUnavailable):  # if the end of the connection is not noticed before
        trucks.apply_many(fleet_at(2))
    trucks.apply_many(fleet_at(2))
    assert ["latest_lookup"] in sent[3:], "the first three are of the first batch"
    assert trucks.get("truck 0") == "2/0"


@pytest.mark.mission("C7")
def test_a_duplicate_writes_nothing_and_waits_for_no_lock(once: Once, trucks: Any, schema: str) -> None:
    events = [("truck", at(5, message_id="m"), 5), ("truck", at(4, message_id="m4"), 4)]
    trucks.apply_many(events)
    lock_first(once.store, 5)  # also while locking first
    with with_psycopg("READ COMMITTED") as theirs:
        theirs.execute(f'SELECT * FROM "{schema}".onceward_latest FOR UPDATE')
        theirs.execute(f'SELECT * FROM "{schema}".onceward_marks FOR UPDATE')
        before = written(schema)
        assert {str(outcome) for outcome in trucks.apply_many(events)} == {"duplicate_message_noop"}
        assert written(schema) == before


def written(schema: str) -> Any:
    """Return position, writer and locker of each row."""
    return [execute(f'SELECT ctid, xmin, xmax FROM "{schema}".onceward_{name}') for name in ("latest", "marks")]


def test_a_large_batch_does_not_fill_the_servers_table_of_locks(once: Once, trucks: Any) -> None:
    """That table has room for some thousands of locks: rows are locked in place instead."""
    with with_psycopg("READ COMMITTED") as theirs:
        trucks.apply_many_in(theirs, [(f"truck {n}", at(1, message_id=f"m{n}"), n) for n in range(3_000)])
        [(locks,)] = theirs.execute("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()").fetchall()
    assert locks < 30


def test_expired_rows_are_found_by_an_index_and_deleted_along_with_a_batch(schema: str) -> None:
    clock = FakeClock()
    make_effects(schema)
    with Once(PostgresStore(os.environ[URL], schema=schema, migrate=True, clock=clock)) as once:
        trucks = once.state("trucks")
        trucks.apply_many([(f"truck {n}", at(n % 60, message_id=f"m{n}"), gone) for n in range(40)])
        clock.advance("7d")
        trucks.apply_many([(f"other {n}", at(1), n) for n in range(10)])
        assert (count(schema, "marks"), count(schema, "latest")) == (0, 50)
        clock.advance("23d")
        trucks.apply_many([(f"other {n}", at(2), n) for n in range(10)])
        assert (count(schema, "marks"), count(schema, "latest")) == (0, 10)
    execute(f'ANALYZE "{schema}".onceward_marks; ANALYZE "{schema}".onceward_latest')
    with psycopg.connect(os.environ[URL]) as theirs:
        theirs.execute("SET enable_seqscan = off")
        text = statements(schema).latest_expire.text.replace("$1::bigint", "0").replace("$2::bigint", "10")
        plan = "\n".join(row[0] for row in theirs.execute(f"EXPLAIN {text}".encode()).fetchall())
    assert "onceward_marks_expiring" in plan
    assert "onceward_latest_expiring" in plan
