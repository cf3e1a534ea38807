"""The guard against old events on SQLite: in the user's own transaction, in few statements, across versions."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceward import ConfigurationError, Failed, Once, RetryTransaction, StoreUnavailable
from onceward.errors import StoreError, VersionSkew
from onceward.latest import Ordering, StateEvent, deleted
from onceward.stores.sqlite import SQLiteStore, latest
from onceward.stores.sqlite.latest_cache import SQLiteLatestCache
from onceward.testing import FakeClock
from tests.clients import SyncClient
from tests.integration.joined_block import users_connection
from tests.integration.trucks import BlockingState, at
from tests.raw_sqlite import database_of

UPSERT = "INSERT INTO trucks VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET place = excluded.place"


@pytest.fixture
def theirs(sqlite_client: SyncClient) -> Iterator[sqlite3.Connection]:
    with closing(users_connection(sqlite_client)) as connection:
        connection.execute("CREATE TABLE trucks (name TEXT PRIMARY KEY, place TEXT)")
        yield connection


@pytest.fixture
def trucks(sqlite_client: SyncClient) -> BlockingState:
    return BlockingState(sqlite_client)


def committed(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as look:
        return dict(look.execute("SELECT name, place FROM trucks"))


# ── in the user's own transaction ──


def upsert(connection: sqlite3.Connection, trucks: BlockingState, name: str, ordering: Any, place: str) -> Any:
    outcome = trucks.apply_in(connection, name, ordering, place)
    if outcome.applied:
        connection.execute(UPSERT, (name, place))
    return outcome


@pytest.mark.mission("E2")
def test_the_message_and_the_users_row_commit_together(
    sqlite_client: SyncClient, trucks: BlockingState, theirs: sqlite3.Connection
) -> None:
    outcomes = []
    for minute, place in ((5, "five"), (4, "four"), (5, "five"), (6, "six")):
        with theirs:
            outcomes.append(str(upsert(theirs, trucks, "truck", at(minute, message_id=place), place)))
    assert outcomes == ["applied", "stale_event_ignored", "duplicate_message_noop", "applied"]
    assert committed(sqlite_client.backend.path) == {"truck": "six"}
    assert trucks.get("truck") == "six"


@pytest.mark.mission("E2")
@pytest.mark.fault("F57")
def test_a_rollback_also_removes_the_message(
    sqlite_client: SyncClient, trucks: BlockingState, theirs: sqlite3.Connection
) -> None:
    with pytest.raises(ZeroDivisionError), theirs:
        assert upsert(theirs, trucks, "truck", at(5, message_id="m"), "five").executed
        raise ZeroDivisionError
    assert committed(sqlite_client.backend.path) == {}
    assert trucks.read("truck") is None
    with theirs:
        assert upsert(theirs, trucks, "truck", at(5, message_id="m"), "five").executed, "delivered again"
    assert committed(sqlite_client.backend.path) == {"truck": "five"}


@pytest.mark.mission("E2")
def test_a_failure_inside_leaves_no_mark_that_the_user_could_commit(
    sqlite_client: SyncClient, trucks: BlockingState, theirs: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with theirs:
        theirs.execute(UPSERT, ("another", "row"))
        with monkeypatch.context() as patch:
            patch.setattr(latest, "_write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                trucks.apply_in(theirs, "truck", at(5, message_id="m"), "five")
    assert theirs.execute("SELECT count(*) FROM onceward_marks").fetchone() == (0,)
    assert committed(sqlite_client.backend.path) == {"another": "row"}, "what the user wrote before is theirs to commit"
    assert trucks.apply("truck", at(5, message_id="m"), "five").executed


def test_a_transaction_that_has_read_too_early_is_to_be_repeated(
    sqlite_client: SyncClient, trucks: BlockingState, theirs: sqlite3.Connection
) -> None:
    theirs.execute("BEGIN")
    theirs.execute("SELECT count(*) FROM trucks").fetchall()
    trucks.apply("truck", at(5), "five")
    with pytest.raises(RetryTransaction):
        upsert(theirs, trucks, "truck", at(4), "four")
    theirs.rollback()
    with theirs:
        assert upsert(theirs, trucks, "truck", at(4), "four").reason == "stale_event_ignored"


def test_many_events_in_one_transaction_of_the_user(trucks: BlockingState, theirs: sqlite3.Connection) -> None:
    events = [StateEvent(f"truck {n % 3}", at(n, message_id=f"m{n}"), n) for n in range(30)]
    events.append(StateEvent("truck 0", at(50), deleted))
    with theirs:
        assert {str(one) for one in trucks.apply_many_in(theirs, events)} == {"applied"}
        assert trucks.read("truck 1") is None, "not yet committed, so no other connection sees it"
    assert [trucks.get(f"truck {n}") for n in range(3)] == [None, 28, 29]
    with theirs:
        assert trucks.apply_in(theirs, "truck 1", at(51), deleted).applied
    assert trucks.read("truck 1").deleted


def test_the_users_connection_keeps_its_settings(trucks: BlockingState, sqlite_client: SyncClient) -> None:
    sqlite_client.read("open the store")
    sqlite3.register_converter("blob", lambda _: 1 / 0)
    sqlite3.register_converter("integer", lambda _: 1 / 0)
    try:
        with closing(
            sqlite3.connect(
                sqlite_client.backend.path, check_same_thread=False, detect_types=sqlite3.PARSE_DECLTYPES, timeout=0
            )
        ) as theirs:
            theirs.row_factory = sqlite3.Row
            theirs.text_factory = bytes
            for _ in range(2):
                with theirs:
                    trucks.apply_many_in(theirs, [("truck", at(5, message_id="m"), 5), ("truck", at(4), 4)])
            assert theirs.text_factory is bytes
    finally:
        for name in ("BLOB", "INTEGER"):
            sqlite3.converters.pop(name)
    assert trucks.get("truck") == 5


def test_what_cannot_be_joined_is_refused(trucks: BlockingState, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "another.db", check_same_thread=False)) as other:
        with pytest.raises(ConfigurationError, match="cannot commit together"):
            trucks.apply_in(other, "truck", at(1), 1)
        for url in ("memory://", "sqlite://:memory:"):
            state = Once(url).state("trucks")
            with pytest.raises(ConfigurationError, match="transaction"):
                state.apply_in(other, "truck", at(1), 1)


KILLED = """
import os, signal, sqlite3, sys
from onceward import Once
path, when = sys.argv[1:]
trucks = Once(f"sqlite:///{path}").state("trucks")
trucks.get("open the store")
mine = sqlite3.connect(path)
mine.execute("CREATE TABLE IF NOT EXISTS trucks (name TEXT PRIMARY KEY, place TEXT)")
mine.commit()
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
mine.execute("BEGIN IMMEDIATE")
outcome = trucks.apply_in(mine, "truck", ("2025-12-31T12:00Z", None, None, "m"), "here")
print(outcome, flush=True)
if when == "before the row":
    kill()
if outcome.applied:
    mine.execute("INSERT INTO trucks VALUES ('truck', 'here')")
if when == "before the commit":
    kill()
mine.commit()
kill()
"""


@pytest.mark.mission("E2")
@pytest.mark.fault("F31", "F71")
def test_a_worker_that_is_killed_leaves_both_or_neither(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    outcomes = []
    for when in ("before the row", "before the commit", "after the commit", "after the commit"):
        killed = subprocess.run([sys.executable, "-c", KILLED, path, when], capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        outcomes.append((killed.stdout.strip(), committed(path)))
        with Once(f"sqlite:///{path}") as once:
            assert (once.state("trucks").get("truck") == "here") is (committed(path) == {"truck": "here"})
    assert outcomes == [
        ("applied", {}),
        ("applied", {}),
        ("applied", {"truck": "here"}),
        ("duplicate_message_noop", {"truck": "here"}),
    ]


# ── what it costs ──


class Counted:
    """A store whose statements are counted, as SQLite sees them."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        store = SQLiteStore(path, clock=self.clock)
        self.once = Once(store)
        self.trucks = self.once.state("trucks")
        self.trucks.get("open the store")
        self.statements: list[str] = []
        self.database = database_of(store)

    def fill_cache(self, events: list[Any]) -> None:
        """Entities are cached when they are read: not by the batch that creates them, but by the next one."""
        assert LOOK in self.during(events)
        assert LOOK in self.during(events)
        assert LOOK not in self.during(events)

    def during(self, events: list[Any]) -> list[str]:
        """The first words of each statement; one that is executed for many rows counts once."""
        seen: list[str] = []
        self.database.set_trace_callback(lambda text: seen.append(" ".join(text.split()[:3])))
        try:
            self.trucks.apply_many(events)
        finally:
            self.database.set_trace_callback(None)
        return [
            word
            for n, word in enumerate(seen)
            if n == 0 or word != seen[n - 1] or not word.startswith(("INSERT", "UPDATE"))
        ]


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Counted]:
    counted = Counted(tmp_path / "once.db")
    yield counted
    counted.once.close()


LOOK = "SELECT +id, +ordering,"
EXPIRE = ["DELETE FROM onceward_marks", "DELETE FROM onceward_latest"]


BEGIN = ["BEGIN IMMEDIATE", "PRAGMA data_version", *EXPIRE]


def test_a_batch_is_a_handful_of_statements(counted: Counted) -> None:
    plain = [(f"truck {n}", at(1), n) for n in range(1_000)]
    assert counted.during(plain) == [*BEGIN, LOOK, LOOK, "INSERT INTO onceward_latest", "COMMIT"]
    stale = [(f"truck {n}", at(0), n) for n in range(1_000)]
    assert counted.during(stale) == [*BEGIN, LOOK, LOOK, "COMMIT"]
    assert counted.during(stale) == [*BEGIN, "COMMIT"], "their orderings are cached"
    messages = [StateEvent(f"truck {n % 500}", at(2, message_id=f"m{n}"), n, event_id=n) for n in range(1_000)]
    claim = [*BEGIN, "SAVEPOINT onceward_marks", "INSERT INTO onceward_marks"]
    assert counted.during(messages) == [*claim, "RELEASE onceward_marks", "UPDATE onceward_latest SET", "COMMIT"]
    assert counted.during(messages) == [
        *claim,
        "ROLLBACK TO onceward_marks",
        "RELEASE onceward_marks",
        *["SELECT +id, +content"] * 4,
        "COMMIT",
    ]


def test_cached_orderings_are_looked_up_again_after_another_connection_wrote(counted: Counted, tmp_path: Path) -> None:
    many = [(f"truck {n}", at(1), n) for n in range(20)]
    counted.fill_cache(many)
    assert LOOK not in counted.during(many)
    with Once(f"sqlite:///{tmp_path}/once.db") as other:
        other.state("trucks").apply("truck 3", at(9), "by another")
    later = [(f"truck {n}", at(5), "later") for n in range(20)]
    assert LOOK in counted.during(later)
    assert [counted.trucks.get(f"truck {n}") for n in (2, 3)] == ["later", "by another"]
    counted.trucks.apply_many([("truck 2", at(6), deleted), *((f"truck {n}", at(6), "six") for n in range(5, 25))])
    counted.clock.advance("31d")
    revived = [*((f"truck {n}", at(1), "old") for n in range(20))]
    assert [outcome.executed for outcome in counted.trucks.apply_many(revived)] == [n == 2 for n in range(20)]


def test_a_batch_that_was_interrupted_after_its_commit_leaves_nothing_cached(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    counted.fill_cache([(f"truck {n}", at(1), n) for n in range(20)])
    with monkeypatch.context() as patch:
        patch.setattr(SQLiteLatestCache, "confirm", interrupted)
        with pytest.raises(KeyboardInterrupt):
            counted.trucks.apply_many([(f"truck {n}", at(9), "nine") for n in range(20)])
    late = counted.trucks.apply_many([(f"truck {n}", at(5), "five") for n in range(20)])
    assert {str(outcome) for outcome in late} == {"stale_event_ignored"}
    assert counted.trucks.get("truck 3") == "nine"


def test_a_batch_that_failed_leaves_nothing_cached(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [(f"truck {n}", at(1), n) for n in range(20)]
    counted.fill_cache(many)
    later = [(f"truck {n}", at(5), "later") for n in range(20)]
    sound = latest._write

    def fails(*what: Any) -> None:
        sound(*what)
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(latest, "_write", fails)
        with pytest.raises(StoreError):
            counted.trucks.apply_many(later)
    assert counted.trucks.get("truck 3") == 3
    assert all(outcome.executed for outcome in counted.trucks.apply_many(later))


@pytest.mark.mission("C7")
def test_a_duplicate_writes_nothing_and_waits_for_no_lock(counted: Counted, tmp_path: Path) -> None:
    events = [("truck", at(5, message_id="m"), 5), ("truck", at(4, message_id="m4"), 4)]
    counted.trucks.apply_many(events)
    with closing(sqlite3.connect(tmp_path / "once.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert counted.during(events) == [LOOK, "SELECT +id, +content"]
        impatient = counted.once.using(lease="60ms").state("trucks")
        with pytest.raises(StoreUnavailable):
            impatient.apply("truck", at(6), 6)


def test_what_expires_is_found_by_an_index(counted: Counted) -> None:
    for statement in (latest.EXPIRE_MARKS, latest.EXPIRE_DELETED):
        plan = [row[-1] for row in counted.database.execute(f"EXPLAIN QUERY PLAN {statement}", (0, 10))]
        assert not [step for step in plan if step.startswith("SCAN")], plan


# ── versions ──


@pytest.mark.fault("F67")
def test_an_entity_of_a_newer_version_is_left_alone_and_stops_no_other(
    trucks: BlockingState, theirs: sqlite3.Connection
) -> None:
    trucks.apply_many([("new", at(1), 1), ("old", at(1), 1)])
    with theirs:
        theirs.execute("UPDATE onceward_latest SET min_reader = 99 WHERE entity = 'new'")
    outcomes = trucks.apply_many([("new", at(2, message_id="m"), 2), ("old", at(2), 2)])
    assert isinstance(outcomes[0], Failed)
    assert isinstance(outcomes[0].exception, VersionSkew)
    assert outcomes[1].executed
    with pytest.raises(VersionSkew, match="newer Onceward"):
        trucks.apply("new", at(3), 3)
    assert theirs.execute("SELECT count(*) FROM onceward_marks").fetchone() == (0,)


@pytest.mark.mission("E2", "E4", "E7")
def test_the_database_shows_which_message_brought_what_and_until_when(
    trucks: BlockingState, theirs: sqlite3.Connection
) -> None:
    trucks.apply(("prod", "truck"), at(5, message_id="m1"), 5, event_id="e")
    trucks.apply(("prod", "truck"), at(5, message_id="m2"), 5, event_id="e")
    marks = theirs.execute("SELECT message, expires_at - created_at FROM onceward_marks ORDER BY message").fetchall()
    week = 7 * 86_400 * 1_000_000
    assert marks == [("m1", week), ("m1", week), ("m2", week)], "the event is traced to the message that came first"
    rows = theirs.execute("SELECT scope, entity, expires_at FROM onceward_latest").fetchall()
    assert rows == [("default/trucks", "(prod, truck)", None)]


# ── processes ──

DELIVER = """
import sys
from random import Random
from onceward import Once
from onceward.latest import Ordering
path, number = sys.argv[1], int(sys.argv[2])
history = [(f"truck {n % 7}", Ordering("2025-12-31T12:00Z", n % 13, None, f"m{n}"), n) for n in range(400)]
Random(number).shuffle(history)
with Once(f"sqlite:///{path}?synchronous=NORMAL") as once:
    state = once.state("trucks")
    outcomes = [outcome for start in range(0, 400, 20) for outcome in state.apply_many(history[start : start + 20])]
    print(sum(not outcome.replayed for outcome in outcomes))
"""


@pytest.mark.rival(18)
@pytest.mark.mission("E2", "E6")
def test_processes_that_deliver_one_history_end_in_its_state(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with Once(f"sqlite:///{path}") as once:
        once.state("trucks").get("open the store")
        pool = [
            subprocess.Popen(
                [sys.executable, "-c", DELIVER, path, str(n)], stdout=subprocess.PIPE, text=True, env=os.environ
            )
            for n in range(3)
        ]
        new = [int(one.communicate(timeout=60)[0]) for one in pool]
        assert sum(new) == 400, "each message was new to exactly one of the processes"
        history = [(f"truck {n % 7}", Ordering("2025-12-31T12:00Z", n % 13, None, f"m{n}"), n) for n in range(400)]
        alone = once.state("alone")
        alone.apply_many(Random(9).sample(history, 400))
        for n in range(7):
            assert once.state("trucks").read(f"truck {n}").ordering == alone.read(f"truck {n}").ordering  # type: ignore[union-attr]  # all are there
            assert once.state("trucks").get(f"truck {n}") == alone.get(f"truck {n}")
