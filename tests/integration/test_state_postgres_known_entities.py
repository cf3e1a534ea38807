"""Many existing entities on PostgreSQL: they are updated in one step, without deadlocks."""

from __future__ import annotations

import os
from functools import partial
from random import Random
from typing import Any

import psycopg
import pytest

from onceward import Failed, Once
from onceward.errors import VersionSkew
from onceward.latest import deleted as gone
from onceward.protocol.ports import Store
from onceward.stores.memory.store import MemoryStore
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres import latest_cache as orders
from onceward.stores.postgres import store as postgres_store
from onceward.stores.postgres.latest import BATCH_SETTINGS, EventBatch
from onceward.stores.postgres.pool import SESSION_SETTINGS
from onceward.stores.postgres.statements import statements
from onceward.testing import FakeClock
from tests.integration.test_state_postgres_costs import UPDATE, fleet_at, sent
from tests.integration.trucks import at
from tests.integration.trucks_on_postgres import Event, _quiet, count, deliver_concurrently, once, store, trucks
from tests.servers.postgres import URL, execute

__all__ = ["_quiet", "once", "sent", "store", "trucks"]  # fixtures, re-exported so that pytest finds them

pytestmark = [pytest.mark.usefixtures("postgres")]

MONTH = 30 * 86_400 * 1_000_000


@pytest.mark.mission("E4")
def test_deleted_entities_expire_and_return_in_large_batches_too(schema: str) -> None:
    clock = FakeClock()
    with Once(PostgresStore(os.environ[URL], schema=schema, migrate=True, clock=clock)) as once:
        trucks = once.state("trucks")
        trucks.apply_many(fleet_at(1))
        trucks.apply_many([(f"truck {n}", at(3), gone if n < 25 else n) for n in range(50)])
        assert ends(schema) == [clock.now() + MONTH] * 25
        assert {str(one) for one in trucks.apply_many(fleet_at(2))} == {"stale_event_ignored"}
        trucks.apply_many(fleet_at(4, range(20)))
        assert ends(schema) == [clock.now() + MONTH] * 5
        assert [trucks.get(f"truck {n}") for n in (0, 19, 20, 25)] == ["4/0", "4/19", None, 25]
        clock.advance("30d")
        trucks.apply_many(fleet_at(1, range(50, 80)))
        assert (ends(schema), count(schema, "latest")) == ([], 75), "expired rows were deleted along with the batch"


def test_a_client_that_skips_the_lookup_deletes_expired_rows_at_its_next_lookup(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    with Once(PostgresStore(os.environ[URL], schema=schema, migrate=True, clock=clock)) as once:
        trucks = once.state("trucks")
        trucks.apply_many([*fleet_at(1), ("another", at(1, message_id="m"), 1)])
        trucks.apply_many(fleet_at(2))
        monkeypatch.setattr(orders, "MAX_AGE", MONTH)
        clock.advance("7d")
        trucks.apply_many(fleet_at(3))
        assert count(schema, "marks") == 1, "nothing of this batch can ever expire"
        monkeypatch.setattr(orders, "MAX_AGE", -1)
        trucks.apply_many(fleet_at(4))
        assert count(schema, "marks") == 0


@pytest.mark.mission("E4", "E7")
@pytest.mark.parametrize("where", ["postgres", "memory"])
@pytest.mark.parametrize("seen", ["deleted", "alive"])
def test_a_tombstone_rejects_older_events_until_it_expires(schema: str, where: str, seen: str) -> None:
    """Also in a large batch on a connection that saw the entity before: deleted, or alive just before that."""
    clock = FakeClock()
    store: Store = MemoryStore(clock=clock)
    if where == "postgres":
        store = PostgresStore(os.environ[URL], schema=schema, migrate=True, clock=clock)
    kept = {"deleted": "30d", "alive": "20s"}[seen]
    with Once(store) as once:
        trucks = once.state("trucks", window="10s", keep_deleted=kept)
        for first in range(0, 50, 10):
            trucks.apply_many(fleet_at(2, range(first, first + 10)))
        if seen == "alive":
            trucks.apply_many(fleet_at(3))
        trucks.delete("truck 0", at(9))
        if seen == "deleted":
            clock.advance(MONTH // 1_000_000 - 20)
            trucks.apply_many(fleet_at(3))
        clock.advance("19s")
        assert _late(trucks, 4) == "stale_event_ignored"
        clock.advance("1s")
        assert _late(trucks, 5) == "applied"


def _late(trucks: Any, minute: int) -> str:
    """Return the outcome of an old event of the first truck, in a batch that writes the others."""
    return str(trucks.apply_many([("truck 0", at(1), "late"), *fleet_at(minute, range(1, 50))])[0])


def ends(schema: str) -> list[int]:
    return [
        end for (end,) in execute(f'SELECT expires_at FROM "{schema}".onceward_latest WHERE expires_at IS NOT NULL')
    ]


@pytest.mark.fault("F67")
def test_an_entity_that_a_newer_version_wrote_is_left_alone_and_stops_no_other(
    trucks: Any, schema: str, sent: list[list[str]]
) -> None:
    trucks.apply_many(fleet_at(1))
    execute(f"""UPDATE "{schema}".onceward_latest SET min_reader = 99 WHERE entity = 'truck 7'""")
    sent.clear()
    outcomes = trucks.apply_many(fleet_at(2))
    assert sent[:2] == [UPDATE, ["rollback"]]
    assert [n for n, one in enumerate(outcomes) if not one.executed] == [7]
    assert isinstance(outcomes[7], Failed)
    assert isinstance(outcomes[7].exception, VersionSkew)
    assert (trucks.get("truck 7"), trucks.get("truck 8")) == ("1/7", "2/8")


@pytest.mark.parametrize("rows", [0, 1, 20, 500], ids="{} rows when the plan was made".format)
@pytest.mark.parametrize("analyzed", [False, True], ids=["fresh", "analyzed"])
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "pooled"])
def test_entities_are_looked_up_in_the_order_of_their_ids_however_small_the_table_was(
    once: Once, schema: str, rows: int, analyzed: bool, direct: bool
) -> None:
    once.state("trucks").apply_many([(f"truck {n}", at(1), n) for n in range(rows)])
    if analyzed:
        execute(f'ANALYZE "{schema}".onceward_latest')
    many = "array_fill(''::bytea, ARRAY[500])"
    with psycopg.connect(os.environ[URL], prepare_threshold=None) as theirs:
        for setting in SESSION_SETTINGS if direct else ():
            theirs.execute(setting.encode())
        theirs.execute(BATCH_SETTINGS.text.replace("$1::text", "'1000'").encode())
        theirs.execute(f"PREPARE moves AS {statements(schema).latest_update.text}".encode())
        found = theirs.execute(f"EXPLAIN EXECUTE moves ({many}, {many}, {many}, {many}, 1, 1)".encode()).fetchall()
    plan = "\n".join(row[0] for row in found)
    [outer, inner] = [line.strip(" ->") for line in plan.splitlines() if "Scan" in line]
    assert outer.startswith("Function Scan on given"), "in the given order"
    assert inner.startswith("Index Scan using onceward_latest_pkey")
    assert "Index Cond: (id = ANY (ARRAY[given.id]))" in plan


# ── many concurrent clients ──

ENTITIES, ROUNDS, CLIENTS = 40, 15, 5


@pytest.mark.rival(18)
@pytest.mark.mission("E6")
@pytest.mark.parametrize("prepare", [1, 0], ids=["without lookup", "with lookup, as behind a pooler"])
def test_batches_that_update_the_same_entities_lose_nothing_and_never_deadlock(
    once: Once, trucks: Any, schema: str, monkeypatch: pytest.MonkeyPatch, prepare: int
) -> None:
    monkeypatch.setattr(postgres_store, "RETRYABLE", frozenset())  # a deadlock is an error
    monkeypatch.setattr(orders, "SKIPPED_BATCHES", 0)  # skip the lookup again right after a wrong guess
    updated, sound = [], EventBatch._state_write

    def move(batch: EventBatch, *, counted: bool) -> Any:
        statement, values = sound(batch, counted=counted)
        updated.append(statement is statements(schema).latest_update)
        return statement, values

    trucks.apply_many(fleet_at(0, range(ENTITIES)))
    monkeypatch.setattr(EventBatch, "_state_write", move)

    def some(number: int, round_number: int, dice: Random) -> list[Event]:
        chosen = [(n, (n * 7 + number) % 11) for n in dice.sample(range(ENTITIES), ENTITIES - 10)]
        return [(f"truck {n}", at(round_number, sequence=place), 100 * round_number + place) for n, place in chosen]

    client = partial(Once, f"{os.environ[URL]}?schema={schema}&prepare={prepare}")
    outcomes = deliver_concurrently(
        CLIENTS, range(1, ROUNDS + 1), client, some, lock_first_batches=0
    )  # without locking first
    applied = [(name, value) for (name, _, value), one in outcomes if one.executed]
    assert sum(updated) >= CLIENTS * ROUNDS // 2
    assert len(set(applied)) == len(applied), "each event was applied by one client"
    latest_values: dict[str, int] = {}
    for name, value in applied:
        latest_values[name] = max(value, latest_values.get(name, 0))
    assert {name: trucks.get(name) for name in latest_values} == latest_values
