"""`complete_in` whose record changes after the commit, before the claim ends: the outcome is the truth, or unknown."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from onceward import Once, RecordState
from onceward.errors import ClaimError, OutcomeUnknown
from onceward.stores.postgres import PostgresStore
from tests.servers.postgres import URL

pytestmark = [pytest.mark.finding("N74")]


@pytest.fixture
def once(schema: str) -> Iterator[Once]:
    with Once(PostgresStore(os.environ[URL], schema=schema, migrate=True)) as once:
        once.run("ready", lambda: None)
        yield once


@pytest.mark.usefixtures("postgres")
def test_a_completion_that_was_forgotten_after_its_commit_counts(once: Once) -> None:
    with once.claim("k") as claim:
        with psycopg.connect(os.environ[URL]) as theirs:
            claim.complete_in(theirs, "value")
        once.forget("k")
    assert claim.state is RecordState.COMPLETED


@pytest.mark.usefixtures("postgres")
def test_a_completion_whose_window_ended_before_its_claim_counts(once: Once) -> None:
    with once.claim("k", window="1ms") as claim:
        with psycopg.connect(os.environ[URL]) as theirs:
            claim.complete_in(theirs, "value")
        with Once(once.store.clone()) as other:
            while other.using(window="1h").run("k", lambda: "new cycle") != "new cycle":
                pass  # until the millisecond is over
    assert claim.state is RecordState.COMPLETED


@pytest.mark.usefixtures("postgres")
def test_a_rollback_is_still_reported_if_the_record_was_forgotten(once: Once) -> None:
    with pytest.raises(ClaimError, match="rolled back"), once.claim("k") as claim:
        with psycopg.connect(os.environ[URL]) as theirs:
            claim.complete_in(theirs, "value")
            theirs.rollback()
        once.forget("k", force=True)


@pytest.mark.usefixtures("postgres")
def test_a_rollback_to_a_savepoint_is_a_rollback_even_if_the_transaction_commits(once: Once) -> None:
    rolled_back = pytest.raises(ClaimError, match="rolled back")
    with rolled_back, once.claim("k") as claim, psycopg.connect(os.environ[URL]) as theirs:
        theirs.execute("SAVEPOINT before")
        claim.complete_in(theirs, "value")
        theirs.execute("ROLLBACK TO SAVEPOINT before")


def test_without_transaction_ids_a_forgotten_completion_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with Once(f"sqlite:///{path}") as once, pytest.raises(OutcomeUnknown), once.claim("k") as claim:
        with closing(sqlite3.connect(path)) as theirs, theirs:
            claim.complete_in(theirs, "value")
        once.forget("k")
