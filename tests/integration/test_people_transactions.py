"""People within transactions: the caller's own, and those that an import commits its progress in."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from onceward import Once
from onceward.errors import ConfigurationError, RetryTransaction
from onceward.people import People
from tests.people_backends import BOTH, actions, people_url, record

ROWS = [record("csv", email=f"{name}@example.com") for name in "abc"]


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return people_url(request.param, tmp_path, request)


def test_what_an_import_notes_is_committed_together_with_its_rows(url: str) -> None:
    with People(url) as people:
        with people.transaction() as tx:
            tx.execute("CREATE TABLE IF NOT EXISTS progress_of_import (line INTEGER)")
            tx.execute("DELETE FROM progress_of_import")
        with pytest.raises(ZeroDivisionError), people.transaction() as tx:
            assert actions(tx.add_many(ROWS)) == ["created"] * 3
            tx.execute("INSERT INTO progress_of_import VALUES (?)", 3)
            raise ZeroDivisionError
        assert len(people) == 0
        with people.transaction() as tx:
            tx.add_many(ROWS)
            tx.execute("INSERT INTO progress_of_import VALUES (?)", 3)
        with people.transaction() as tx:
            assert tx.execute("SELECT line FROM progress_of_import WHERE line > ?", 1) == [(3,)]
            tx.execute("DROP TABLE progress_of_import")
        assert len(people) == 3


def test_a_claim_can_be_completed_in_the_transaction_of_people_and_is_rolled_back_with_it(url: str) -> None:
    with People(url) as people, closing(Once(url, app="shop")) as once:
        with pytest.raises(ZeroDivisionError), once.claim("import 1") as claim, people.transaction() as tx:
            tx.add_many(ROWS)
            claim.complete_in(tx.connection, "all in")
            raise ZeroDivisionError
        assert len(people) == 0
        with once.claim("import 1") as claim, people.transaction() as tx:
            assert claim.attempt == 2
            tx.add_many(ROWS)
            claim.complete_in(tx.connection, "all in")
        entry = once.read("import 1")
        assert entry is not None
        assert (len(people), entry.value) == (3, "all in")


def test_own_queries_block_no_writer_and_change_nothing(url: str) -> None:
    with People(url) as people, People(url) as others:
        others.add_many(ROWS[:1])
        with people.reading() as tx:
            assert tx.execute("SELECT ?", 7) == [(7,)]
            assert others.add(ROWS[1]).action == "created"
        assert len(people) == 2


def test_a_dry_run_reports_what_would_happen_and_leaves_nothing(url: str) -> None:
    with People(url) as people:
        with people.transaction(trial=True) as tx:
            tried = actions(tx.add_many([*ROWS, ROWS[0]]))
        assert len(people) == 0
        assert actions(people.add_many([*ROWS, ROWS[0]])) == tried == [*["created"] * 3, "skipped"]


def test_the_callers_sqlite_transaction_decides(tmp_path: Path) -> None:
    with People(f"sqlite:///{tmp_path}/people.db") as people, closing(sqlite3.connect(tmp_path / "people.db")) as own:
        own.row_factory = sqlite3.Row
        own.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
        with pytest.raises(ZeroDivisionError), own:
            people.add_many_in(own, ROWS)
            own.execute("INSERT INTO orders VALUES (1)")
            raise ZeroDivisionError
        assert len(people) == 0
        with own:
            own.execute("INSERT INTO orders VALUES (1)")
            assert people.add_in(own, ROWS[0]).action == "created"
        assert len(people) == 1


def test_a_callers_transaction_that_read_too_early_is_to_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "people.db"
    with People(f"sqlite:///{path}") as people, closing(sqlite3.connect(path, isolation_level=None)) as own:
        people.add(ROWS[0])
        own.execute("BEGIN")
        own.execute("SELECT * FROM onceward_people").fetchall()
        people.add(ROWS[1])
        with pytest.raises(RetryTransaction):
            people.add_in(own, ROWS[1])
        own.execute("ROLLBACK")
        own.execute("BEGIN")
        assert people.add_in(own, ROWS[1]).action == "skipped"
        own.execute("COMMIT")


def test_the_callers_postgresql_transaction_decides(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = people_url("postgres", tmp_path, request)
    with People(url) as people, psycopg.connect(url.partition("?")[0]) as own:
        people.add_many_in(own, ROWS)
        own.rollback()
        assert len(people) == 0
        people.add_many_in(own, ROWS)
        own.commit()
        assert len(people) == 3
        own.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(ConfigurationError, match="repeatable read"):
            people.add_many_in(own, ROWS)
        own.rollback()
        own.autocommit = True
        with pytest.raises(ConfigurationError, match="no transaction to join"):
            people.add_many_in(own, ROWS)


def test_a_connection_to_another_file_is_refused(tmp_path: Path) -> None:
    other = closing(sqlite3.connect(tmp_path / "other.db"))
    with People(f"sqlite:///{tmp_path}/people.db") as people, other as own:
        with pytest.raises(ConfigurationError, match="cannot commit together"):
            people.add_in(own, ROWS[0])
        with pytest.raises(ConfigurationError, match="cannot join"):
            people.add_in(object(), ROWS[0])
