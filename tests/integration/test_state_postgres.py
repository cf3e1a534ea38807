"""The guard against old events on PostgreSQL, in the user's own transaction."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from onceward import AsyncOnce, Once, RetryTransaction, StoreUnavailable
from onceward.latest import StateEvent
from onceward.latest import deleted as gone
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.latest import EventBatch
from tests.integration.postgres_connections import ASYNC, BLOCKING, LEVELS, effects, with_psycopg, write, write_async
from tests.integration.trucks import at
from tests.integration.trucks_on_postgres import WEEK, Stop, _quiet, count, once, store, trucks
from tests.servers.postgres import URL, execute

__all__ = ["_quiet", "once", "store", "trucks"]  # fixtures, re-exported so that pytest finds them


pytestmark = [pytest.mark.usefixtures("postgres")]


# ── in the user's own transaction ──


@pytest.mark.mission("E2")
@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("level", LEVELS)
def test_the_message_and_the_users_row_commit_together(trucks: Any, schema: str, kind: str, level: str) -> None:
    outcomes = []
    for minute, place in ((5, "five"), (4, "four"), (5, "five"), (6, "six")):
        with BLOCKING[kind](level) as theirs:
            outcome = trucks.apply_in(theirs, "truck", at(minute, message_id=place), place)
            if outcome.applied:
                write(theirs, schema, place)
            outcomes.append(str(outcome))
    assert outcomes == ["applied", "stale_event_ignored", "duplicate_message_noop", "applied"]
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
        outcomes = []
        for minute, place in ((5, "five"), (4, "four"), (5, "five"), (6, "six")):
            async with ASYNC[kind]("READ COMMITTED") as theirs:
                name = "truck \0 7"
                outcome = await trucks.apply_in(theirs, name, at(minute, message_id=f"{place}\0"), place)
                if outcome.applied:
                    await write_async(theirs, schema, place)
                outcomes.append(str(outcome))
        assert outcomes == ["applied", "stale_event_ignored", "duplicate_message_noop", "applied"]
        assert effects(schema) == ["five", "six"]
        found = await trucks.read(name)
        assert found is not None
        assert (found.value, found.ordering) == ("six", at(6, message_id="six\0"))


@pytest.mark.mission("E2")
@pytest.mark.fault("F57")
@pytest.mark.parametrize("kind", BLOCKING)
def test_a_rollback_also_removes_the_message(trucks: Any, schema: str, kind: str) -> None:
    with pytest.raises(Stop), BLOCKING[kind]("READ COMMITTED") as theirs:
        assert trucks.apply_in(theirs, "truck", at(5, message_id="m"), "five").executed
        write(theirs, schema, "undone")
        raise Stop
    assert (effects(schema), trucks.read("truck"), count(schema, "marks"), count(schema, "latest")) == ([], None, 0, 0)
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
            patch.setattr(EventBatch, "all_written", fails)
            with pytest.raises(error):
                trucks.apply_in(theirs, "truck", at(5, message_id="m"), "five")
        write(theirs, schema, "more of theirs")
    assert (count(schema, "marks"), count(schema, "latest")) == (0, 0)
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
        assert trucks.read("truck 1") is None, "not yet committed, so no other connection sees it"
    assert [trucks.get(f"truck {n}") for n in range(3)] == [None, 28, 29]


@pytest.mark.parametrize("patience", ["0", "50ms", "1min"])
def test_an_entity_locked_by_another_open_transaction_is_waited_for_up_to_a_limit(
    once: Once, trucks: Any, schema: str, patience: str
) -> None:
    impatient = once.using(lease="1500ms").state("trucks")
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
    outcomes = []
    for when in ("before the row", "before the commit", "after the commit", "after the commit"):
        command = [sys.executable, "-c", KILLED, os.environ[URL], schema, when]
        killed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        outcomes.append((killed.stdout.strip(), effects(schema)))
        assert (trucks.get("truck") == "here") is (effects(schema) == ["here"])
    assert outcomes == [("applied", []), ("applied", []), ("applied", ["here"]), ("duplicate_message_noop", ["here"])]


# ── columns for operators ──


@pytest.mark.mission("E2", "E4", "E7")
def test_the_database_shows_which_message_brought_what_and_until_when(trucks: Any, schema: str) -> None:
    trucks.apply(("prod", "truck"), at(5, message_id="m1"), 5, event_id="e")
    trucks.apply(("prod", "truck"), at(5, message_id="m2"), 5, event_id="e")
    marks = execute(f'SELECT message, expires_at - created_at FROM "{schema}".onceward_marks ORDER BY message')
    assert marks == [("m1", WEEK), ("m1", WEEK), ("m2", WEEK)], "the event is traced to the message that came first"
    rows = execute(f'SELECT scope, entity, expires_at FROM "{schema}".onceward_latest')
    assert rows == [("default/trucks", "(prod, truck)", None)]
