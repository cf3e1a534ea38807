"""The guard against old events on PostgreSQL: in the user's own transaction, in few statements, in a crowd."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward import AsyncOnce, Failed, Once, Ordering, RetryTransaction, StateEvent, StoreUnavailable, VersionSkew
from onceward import deleted as gone
from onceward.stores.postgres import PostgresStore, newest
from onceward.stores.postgres import store as postgres_store
from onceward.stores.postgres.newest import Batch
from onceward.stores.postgres.statements import statements
from onceward.stores.postgres.wire import Wire
from onceward.testing import FakeClock
from tests.integration.postgres_connections import (
    ASYNC,
    BLOCKING,
    LEVELS,
    effects,
    make_effects,
    with_psycopg,
    write,
    write_async,
)
from tests.integration.test_state import HISTORY, at, current
from tests.servers.postgres import URL, execute

pytestmark = [pytest.mark.usefixtures("postgres")]

WEEK = 7 * 86_400 * 1_000_000


class Stop(Exception):
    pass


@pytest.fixture
def store(schema: str) -> PostgresStore:
    make_effects(schema)
    return PostgresStore(os.environ[URL], schema=schema, migrate=True)


@pytest.fixture
def once(store: PostgresStore) -> Iterator[Once]:
    with Once(store) as once:
        once.read("open the store")
        yield once


@pytest.fixture
def trucks(once: Once) -> Any:
    return once.state("trucks")


def another(schema: str, **settings: Any) -> Once:
    return Once(PostgresStore(os.environ[URL], schema=schema), **settings)


def count(schema: str, table: str) -> int:
    return int(execute(f'SELECT count(*) FROM "{schema}".onceward_{table}')[0][0])


# ── in the user's own transaction ──


@pytest.mark.mission("E2")
@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("level", LEVELS)
def test_the_message_and_the_users_row_commit_together(trucks: Any, schema: str, kind: str, level: str) -> None:
    told = []
    for minute, place in ((5, "five"), (4, "four"), (5, "five"), (6, "six")):
        with BLOCKING[kind](level) as theirs:
            outcome = trucks.apply_in(theirs, "truck", at(minute, message_id=place), place)
            if outcome.applied:
                write(theirs, schema, place)
            told.append(str(outcome))
    assert told == ["applied", "stale_event_ignored", "duplicate_message_noop", "applied"]
    assert effects(schema) == ["five", "six"]
    assert trucks.get("truck") == "six"


@pytest.mark.mission("E2")
@pytest.mark.parametrize("kind", ASYNC)
async def test_the_message_and_the_users_row_commit_together_on_an_event_loop(
    store: PostgresStore, schema: str, kind: str
) -> None:
    async with AsyncOnce(store) as once:
        trucks = once.state("trucks")
        await trucks.get("open the store")
        told = []
        for minute, place in ((5, "five"), (4, "four"), (5, "five"), (6, "six")):
            async with ASYNC[kind]("READ COMMITTED") as theirs:
                name = "truck \0 7"
                outcome = await trucks.apply_in(theirs, name, at(minute, message_id=f"{place}\0"), place)
                if outcome.applied:
                    await write_async(theirs, schema, place)
                told.append(str(outcome))
        assert told == ["applied", "stale_event_ignored", "duplicate_message_noop", "applied"]
        assert effects(schema) == ["five", "six"]
        found = await trucks.read(name)
        assert found is not None
        assert (found.value, found.ordering) == ("six", at(6, message_id="six\0"))


@pytest.mark.mission("E2")
@pytest.mark.fault("F57")
@pytest.mark.parametrize("kind", BLOCKING)
def test_a_rollback_takes_the_message_along(trucks: Any, schema: str, kind: str) -> None:
    with pytest.raises(Stop), BLOCKING[kind]("READ COMMITTED") as theirs:
        assert trucks.apply_in(theirs, "truck", at(5, message_id="m"), "five").executed
        write(theirs, schema, "undone")
        raise Stop
    assert (effects(schema), trucks.read("truck"), count(schema, "marks"), count(schema, "newest")) == ([], None, 0, 0)
    with BLOCKING[kind]("READ COMMITTED") as theirs:
        assert trucks.apply_in(theirs, "truck", at(5, message_id="m"), "five").executed, "delivered again"


@pytest.mark.mission("E2")
@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop])
def test_a_failure_inside_leaves_no_mark_that_the_user_could_commit(
    trucks: Any, schema: str, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fails(*_: object) -> bool:
        raise error

    with with_psycopg("READ COMMITTED") as theirs:
        write(theirs, schema, "theirs")
        with monkeypatch.context() as patch:
            patch.setattr(Batch, "took", fails)
            with pytest.raises(error):
                trucks.apply_in(theirs, "truck", at(5, message_id="m"), "five")
        write(theirs, schema, "more of theirs")
    assert (count(schema, "marks"), count(schema, "newest")) == (0, 0)
    assert effects(schema) == ["more of theirs", "theirs"]
    assert trucks.apply("truck", at(5, message_id="m"), "five").executed


@pytest.mark.parametrize("level", LEVELS[1:])
def test_a_transaction_that_has_read_too_early_is_to_be_repeated(trucks: Any, schema: str, level: str) -> None:
    with with_psycopg(level) as theirs:
        theirs.execute(f'SELECT count(*) FROM "{schema}".effects').fetchall()
        trucks.apply("truck", at(5, message_id="m"), "five")
        for late in (at(6, message_id="other"), at(5, message_id="m")):
            with pytest.raises(RetryTransaction):
                trucks.apply_in(theirs, "truck", late, "five")
        theirs.rollback()
        assert trucks.apply_in(theirs, "truck", at(4), "four").reason == "stale_event_ignored"


def test_many_events_in_one_transaction_of_the_user(trucks: Any) -> None:
    events = [StateEvent(f"truck {n % 3}", at(n, message_id=f"m{n}"), n) for n in range(30)]
    events.append(StateEvent("truck 0", at(50), gone))
    with with_psycopg("READ COMMITTED") as theirs:
        assert {str(one) for one in trucks.apply_many_in(theirs, events)} == {"applied"}
        assert trucks.read("truck 1") is None, "not yet committed, so nobody else sees it"
    assert [trucks.get(f"truck {n}") for n in range(3)] == [None, 28, 29]


@pytest.mark.parametrize("patience", ["0", "50ms", "1min"])
def test_an_entity_that_another_open_transaction_holds_is_waited_for_and_not_for_ever(
    once: Once, trucks: Any, schema: str, patience: str
) -> None:
    impatient = once.using(lease="600ms").state("trucks")
    with with_psycopg("READ COMMITTED") as first, with_psycopg("READ COMMITTED") as second:
        trucks.apply_in(first, "truck", at(5), "five")
        second.execute(f"SET LOCAL lock_timeout = '{patience}'")
        write(second, schema, "theirs")
        with pytest.raises(RetryTransaction):
            impatient.apply_in(second, "truck", at(6), "six")
        assert second.execute("SHOW lock_timeout").fetchone() == (patience,)
        assert impatient.apply_in(second, "another", at(6), "six").executed, "the transaction is still usable"
        assert second.execute("SHOW lock_timeout").fetchone() == (patience,)
        with pytest.raises(StoreUnavailable):
            impatient.apply("truck", at(6), "six")
    assert trucks.apply("truck", at(6), "six").executed


KILLED = """
import os, signal, sys
import psycopg
from onceward import Once
url, schema, when = sys.argv[1:]
trucks = Once(f"{url}?schema={schema}").state("trucks")
trucks.get("open the store")
mine = psycopg.connect(url)
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
outcome = trucks.apply_in(mine, "truck", ("2025-12-31T12:00Z", None, None, "m"), "here")
print(outcome, flush=True)
if when == "before the row":
    kill()
if outcome.applied:
    mine.execute(f'INSERT INTO "{schema}".effects VALUES (%s)', ("here",))
if when == "before the commit":
    kill()
mine.commit()
kill()
"""


@pytest.mark.mission("E2")
@pytest.mark.fault("F31", "F71")
def test_a_worker_that_is_killed_leaves_both_or_neither(trucks: Any, schema: str) -> None:
    told = []
    for when in ("before the row", "before the commit", "after the commit", "after the commit"):
        command = [sys.executable, "-c", KILLED, os.environ[URL], schema, when]
        killed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        told.append((killed.stdout.strip(), effects(schema)))
        assert (trucks.get("truck") == "here") is (effects(schema) == ["here"])
    assert told == [("applied", []), ("applied", []), ("applied", ["here"]), ("duplicate_message_noop", ["here"])]


# ── what it costs ──


@pytest.fixture
def sent(trucks: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Each round trip with the statements in it, from here on."""
    names = {
        statement.name: name for name, statement in vars(statements(_schema())).items() if hasattr(statement, "raw")
    }
    names |= {
        one.name: word for one, word in ((newest.BEGIN, "begin"), (newest.PATIENCE, "set"), (newest.COMMIT, "commit"))
    }
    trips: list[list[str]] = []

    def traced(verb: str, named: Callable[..., list[str]]) -> None:
        sound = getattr(Wire, verb)

        def call(wire: Wire, *what: Any) -> Any:
            trips.append(named(*what))
            return sound(wire, *what)

        monkeypatch.setattr(Wire, verb, call)

    for n in range(20):  # so that everything is prepared
        trucks.apply(f"before {n}", at(1, message_id=f"before {n}"), 1)
    traced("rows", lambda _deadline, statement, *_values: [names.get(statement.name, "greeting")])
    traced("_together", lambda calls, _deadline: [names[statement.name] for statement, _ in calls])
    traced("command", lambda text, _deadline: [text.lower()])
    return trips


def _schema() -> str:
    return f"test_{os.getpid()}"


END = ["newest_expire", "commit"]


def test_a_batch_is_three_round_trips_and_a_duplicate_one(trucks: Any, sent: list[list[str]]) -> None:
    plain = [(f"truck {n}", at(1), n) for n in range(1_000)]
    trucks.apply_many(plain)
    assert sent == [["newest_look"], ["begin", "set", "newest_move"], END]
    sent.clear()
    messages = [StateEvent(f"truck {n % 500}", at(2, message_id=f"m{n}"), n, event_id=n) for n in range(1_000)]
    trucks.apply_many(messages)
    assert sent == [["newest_look"], ["begin", "set", "newest_move", "newest_mark"], END]
    sent.clear()
    trucks.apply_many([(f"truck {n}", at(1, message_id=f"stale {n}"), n) for n in range(500)])
    assert sent == [["newest_look"], ["begin", "set", "newest_mark"], END]
    for known in (plain, messages):
        sent.clear()
        trucks.apply_many(known)
        assert sent == [["newest_look"]]


MOVE = ["begin", "set", "newest_move"]


def fleet_at(minute: int, numbers: range = range(50)) -> list[Any]:
    return [(f"truck {n}", at(minute), f"{minute}/{n}") for n in numbers]


def test_entities_that_the_connection_knows_are_not_looked_up_again(trucks: Any, sent: list[list[str]]) -> None:
    trucks.apply_many(fleet_at(1))
    sent.clear()
    assert {str(outcome) for outcome in trucks.apply_many(fleet_at(2))} == {"applied"}
    assert sent == [MOVE, END]
    sent.clear()
    outcomes = trucks.apply_many([*fleet_at(1, range(25)), *fleet_at(3, range(25, 60))])
    assert [str(outcome) for outcome in outcomes] == ["stale_event_ignored"] * 25 + ["applied"] * 35
    assert sent == [["newest_look"], MOVE, END], "ten of them are new"
    assert [trucks.get(f"truck {n}") for n in (0, 24, 25, 59)] == ["2/0", "2/24", "3/25", "3/59"]


@pytest.mark.rival(18)
@pytest.mark.mission("E6")
@pytest.mark.parametrize("deed", ["a newer state", "deleted", "an older state"])
def test_what_others_wrote_since_counts_for_entities_that_the_connection_knows(
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
    assert sent[:2] == [MOVE, ["rollback"]], "the guess was wrong, and nothing of it was written"
    sent.clear()
    trucks.apply_many(fleet_at(6))
    assert sent[0] == ["newest_look"], "whoever was wrong looks for a while"


def test_a_new_connection_knows_nothing(store: PostgresStore, trucks: Any, sent: list[list[str]]) -> None:
    """Another server may stand in the place of the one that it knew, and may have lost its last writes."""
    trucks.apply_many(fleet_at(1))
    for wire in store._pool._idle:
        execute(f"SELECT pg_terminate_backend({wire.pgconn.backend_pid})")
    with suppress(StoreUnavailable):  # if the end of the connection is not noticed before
        trucks.apply_many(fleet_at(2))
    trucks.apply_many(fleet_at(2))
    assert ["newest_look"] in sent[3:], "the first three are of the first batch"
    assert trucks.get("truck 0") == "2/0"


@pytest.mark.mission("C7")
def test_a_duplicate_writes_nothing_and_waits_for_nobody(once: Once, trucks: Any, schema: str) -> None:
    events = [("truck", at(5, message_id="m"), 5), ("truck", at(4, message_id="m4"), 4)]
    trucks.apply_many(events)
    once.store._crowd = 5  # type: ignore[attr-defined]  # in a crowd, too
    with with_psycopg("READ COMMITTED") as theirs:
        theirs.execute(f'SELECT * FROM "{schema}".onceward_newest FOR UPDATE')
        theirs.execute(f'SELECT * FROM "{schema}".onceward_marks FOR UPDATE')
        before = written(schema)
        assert {str(outcome) for outcome in trucks.apply_many(events)} == {"duplicate_message_noop"}
        assert written(schema) == before


def written(schema: str) -> Any:
    """Where each row lies, who wrote it, and who has locked it."""
    return [execute(f'SELECT ctid, xmin, xmax FROM "{schema}".onceward_{name}') for name in ("newest", "marks")]


def test_a_large_batch_does_not_fill_the_servers_table_of_locks(once: Once, trucks: Any) -> None:
    """It has room for some thousands in all: rows are locked where they lie."""
    with with_psycopg("READ COMMITTED") as theirs:
        trucks.apply_many_in(theirs, [(f"truck {n}", at(1, message_id=f"m{n}"), n) for n in range(3_000)])
        [(held,)] = theirs.execute("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()").fetchall()
    assert held < 30


def test_what_expires_is_found_by_an_index_and_goes_by_the_way(schema: str) -> None:
    clock = FakeClock()
    make_effects(schema)
    with Once(PostgresStore(os.environ[URL], schema=schema, migrate=True, clock=clock)) as once:
        trucks = once.state("trucks")
        trucks.apply_many([(f"truck {n}", at(n % 60, message_id=f"m{n}"), gone) for n in range(40)])
        clock.advance("7d")
        trucks.apply_many([(f"other {n}", at(1), n) for n in range(10)])
        assert (count(schema, "marks"), count(schema, "newest")) == (0, 50)
        clock.advance("23d")
        trucks.apply_many([(f"other {n}", at(2), n) for n in range(10)])
        assert (count(schema, "marks"), count(schema, "newest")) == (0, 10)
    execute(f'ANALYZE "{schema}".onceward_marks; ANALYZE "{schema}".onceward_newest')
    with psycopg.connect(os.environ[URL]) as theirs:
        theirs.execute("SET enable_seqscan = off")
        text = statements(schema).newest_expire.text.replace("$1::bigint", "0").replace("$2::bigint", "10")
        plan = "\n".join(row[0] for row in theirs.execute(f"EXPLAIN {text}".encode()).fetchall())
    assert "onceward_marks_expiring" in plan
    assert "onceward_newest_expiring" in plan


# ── somebody else was faster ──


Deed = Callable[[Any], object]
RACES: dict[str, tuple[Deed, list[str], Any]] = {
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
def test_what_another_writes_between_the_look_and_the_write_counts(
    trucks: Any, schema: str, monkeypatch: pytest.MonkeyPatch, race: str, there: bool
) -> None:
    deed, told, end = RACES[race]
    if there:
        trucks.apply("truck", at(3), "three")
    with another(schema) as other:
        others = other.state("trucks")
        before_the_write(monkeypatch, lambda: deed(others))
        assert [str(outcome) for outcome in trucks.apply_many(HALVES)] == told
        assert [str(outcome) for outcome in others.apply_many(HALVES)] == [
            "mismatch" if one == "mismatch" else "duplicate_message_noop" for one in told
        ]
    assert trucks.get("truck") == end


@pytest.mark.rival(18)
def test_of_two_who_bring_a_stale_message_at_once_one_claims_it(
    trucks: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither moves the entity, so that only the mark can tell."""
    trucks.apply("truck", at(9), "nine")
    late, told = at(1, message_id="late"), []
    with another(schema) as other:
        before_the_write(monkeypatch, lambda: told.append(other.state("trucks").apply("truck", late, 1)))
        told.append(trucks.apply("truck", late, 1))
    assert [str(outcome) for outcome in told] == ["stale_event_ignored", "duplicate_message_noop"]


@pytest.mark.fault("F67")
def test_an_entity_that_a_newer_version_writes_meanwhile_is_left_alone(
    trucks: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trucks.apply_many([("new", at(1), 1), ("old", at(1), 1)])
    taken_over = f"""UPDATE "{schema}".onceward_newest SET min_reader = 99 WHERE entity = 'new'"""
    before_the_write(monkeypatch, lambda: execute(taken_over))
    outcomes = trucks.apply_many([("new", at(2, message_id="m"), 2), ("old", at(2), 2)])
    assert isinstance(outcomes[0], Failed)
    assert isinstance(outcomes[0].exception, VersionSkew)
    assert outcomes[1].executed
    with pytest.raises(VersionSkew, match="newer Onceward"):
        trucks.apply("new", at(3), 3)
    assert count(schema, "marks") == 0


def before_the_write(monkeypatch: pytest.MonkeyPatch, deed: Callable[[], object]) -> None:
    """The next batch that has looked finds this done, by somebody else, when it comes to write."""
    sound = newest._write

    async def late(turn: Any, batch: Batch) -> bool:
        newest._write = sound
        other = threading.Thread(target=deed)
        other.start()
        other.join(30)
        return await sound(turn, batch)

    monkeypatch.setattr(newest, "_write", late)


def test_those_who_raced_hold_their_entities_first_and_leave_no_empty_rows(
    once: Once, trucks: Any, schema: str, sent: list[list[str]]
) -> None:
    store: Any = once.store
    store._crowd = 1
    future = Ordering("2999-01-01T00:00Z")
    many = [(f"truck {n}", at(1, message_id=f"m{n}"), n) for n in range(20)]
    told = trucks.apply_many([*many, ("early", future, 1)])
    assert [str(outcome) for outcome in told] == ["applied"] * 20 + ["future_event_parked"]
    held = ["begin", "set", "newest_hold", "newest_look"]
    assert sent == [held, ["newest_move", "newest_mark"], END]
    assert execute(f"""SELECT entity FROM "{schema}".onceward_newest WHERE expires_at IS NOT NULL""") == []
    assert store._crowd == 0
    store._crowd = 1
    sent.clear()
    assert {str(outcome) for outcome in trucks.apply_many(many)} == {"duplicate_message_noop"}
    assert sent == [held, END]


# ── a crowd ──

ENTITIES, ROUNDS, CREW = 40, 12, 6


def brought(number: int, turn: int) -> list[tuple[str, Ordering, int]]:
    """What this one of the crew brings in this turn: entities that are known and new ones; others bring the like."""
    some = [(f"truck {n + 5 * turn}", (n * 7 + number) % 11) for n in range(ENTITIES)]
    return [(name, at(turn, sequence=place, message_id=f"{turn} {place}"), 100 * turn + place) for name, place in some]


@pytest.mark.rival(18)
@pytest.mark.mission("E2", "E6")
@pytest.mark.parametrize("crowded", [False, True], ids=["looking first", "holding first"])
def test_batches_that_overlap_in_every_order_lose_nothing_and_never_wait_crosswise(
    trucks: Any, schema: str, monkeypatch: pytest.MonkeyPatch, crowded: bool
) -> None:
    monkeypatch.setattr(postgres_store, "RETRIED", frozenset())  # a deadlock is an error
    sound, in_vain = Batch.took, []

    def took(batch: Batch, replies: Any) -> bool:
        done = sound(batch, replies)
        in_vain.extend([batch] * (not done))
        return done

    monkeypatch.setattr(Batch, "took", took)
    line = threading.Barrier(CREW)
    errors: list[BaseException] = []
    fresh: list[tuple[str, int]] = []

    def deliver(number: int) -> None:
        dice = Random(number)
        try:
            with another(schema) as mine:
                state, store = mine.state("trucks"), mine.store
                state.get("open the store")
                for turn in range(ROUNDS):
                    store._crowd = 5 if crowded else 0  # type: ignore[attr-defined]  # as after a race, or before
                    batch = dice.sample(brought(number, turn), ENTITIES)
                    line.wait(60)
                    told = state.apply_many(batch)
                    fresh.extend(
                        (name, value) for (name, _, value), one in zip(batch, told, strict=True) if not one.replayed
                    )
        except BaseException as error:
            errors.append(error)
            line.abort()

    crew = [threading.Thread(target=deliver, args=(number,)) for number in range(CREW)]
    for one in crew:
        one.start()
    for one in crew:
        one.join(120)
    assert errors == []
    assert not (crowded and in_vain), "who holds its entities writes at the first try"
    all_of_it = [event for number in range(CREW) for turn in range(ROUNDS) for event in brought(number, turn)]
    assert sorted(fresh) == sorted({(name, value) for name, _, value in all_of_it}), "each message was new to one"
    wanted = {name: value for name, _, value in sorted(all_of_it, key=lambda event: event[2])}
    assert {name: trucks.get(name) for name in wanted} == wanted


LIVES = itertools.count()


@pytest.mark.mission("E6")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORY, dice=st.randoms(use_true_random=False))
def test_any_permutation_and_repetition_by_several_at_once_ends_in_the_same_state(
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

    crew = [threading.Thread(target=deliver, args=(dice.sample(events, len(events)),)) for _ in range(3)]
    for one in crew:
        one.start()
    for one in crew:
        one.join(60)
    assert [current(life, entity) for entity in ("a", "b")] == wanted


DELIVER = """
import sys
from random import Random
from onceward import Once, Ordering
url, number = sys.argv[1], int(sys.argv[2])
history = [(f"truck {n % 7}", Ordering("2025-12-31T12:00Z", n % 13, None, f"m{n}"), n) for n in range(400)]
Random(number).shuffle(history)
with Once(url) as once:
    state = once.state("trucks")
    told = [outcome for start in range(0, 400, 20) for outcome in state.apply_many(history[start : start + 20])]
    print(sum(not outcome.replayed for outcome in told))
"""


@pytest.mark.rival(18)
@pytest.mark.mission("E2", "E6")
def test_processes_that_deliver_one_history_end_in_its_state(once: Once, trucks: Any, schema: str) -> None:
    command = [sys.executable, "-c", DELIVER, f"{os.environ[URL]}?schema={schema}"]
    crew = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(3)]
    assert sum(int(one.communicate(timeout=60)[0]) for one in crew) == 400, "each message was new to exactly one"
    history = [(f"truck {n % 7}", Ordering("2025-12-31T12:00Z", n % 13, None, f"m{n}"), n) for n in range(400)]
    alone = once.state("alone")
    alone.apply_many(Random(9).sample(history, 400))
    assert [current(trucks, f"truck {n}") for n in range(7)] == [current(alone, f"truck {n}") for n in range(7)]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "onceward")


# ── what people see ──


@pytest.mark.mission("E2", "E4", "E7")
def test_the_database_shows_which_message_brought_what_and_until_when(trucks: Any, schema: str) -> None:
    trucks.apply(("prod", "truck"), at(5, message_id="m1"), 5, event_id="e")
    trucks.apply(("prod", "truck"), at(5, message_id="m2"), 5, event_id="e")
    marks = execute(f'SELECT message, expires_at - created_at FROM "{schema}".onceward_marks ORDER BY message')
    assert marks == [("m1", WEEK), ("m1", WEEK), ("m2", WEEK)], "the event is traced to the message that came first"
    rows = execute(f'SELECT scope, entity, expires_at FROM "{schema}".onceward_newest')
    assert rows == [("default/trucks", "(prod, truck)", None)]
