"""Rows of a load: checked, without duplicates, in order. No warehouse is needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.errors import SourceError
from onceward.warehouse import Table
from onceward.warehouse.batch import batch_of

STATEMENTS = Table(name="statements", columns={"id": "text", "at": "time", "score": "number"}, key=("id",))
USERS = Table(name="users", columns={"id": "text", "n": "integer"}, key=("id",), on_match="replace")
LATEST = Table(name="users", columns={"id": "text", "n": "integer"}, key=("id",), on_match="replace", newest_by="n")


@pytest.mark.mission("D6")
def test_duplicates_inside_of_a_batch_are_removed_first() -> None:
    twice: list[dict[str, Any]] = [{"id": "a", "score": 1}, {"id": "b"}, {"id": "a", "score": 2}]
    kept = batch_of(STATEMENTS, twice)
    assert (kept.given, kept.rows) == (3, [("a", None, 1.0), ("b", None, None)])


def test_of_rows_that_replace_each_other_the_last_one_stays() -> None:
    assert batch_of(USERS, [{"id": "a", "n": 2}, {"id": "a", "n": 1}]).rows == [("a", 1)]


def test_of_rows_with_an_order_column_the_latest_one_stays() -> None:
    rows: list[dict[str, Any]] = [{"id": "a", "n": 2}, {"id": "a", "n": 3}, {"id": "a", "n": 1}, {"id": "a"}]
    assert batch_of(LATEST, rows).rows == [("a", 3)]


def test_the_digest_differs_for_other_rows() -> None:
    digests = {
        batch_of(STATEMENTS, rows).digest
        for rows in ([{"id": "a"}], [{"id": "b"}], [{"id": "a", "score": 1}], [{"id": "a"}, {"id": "a"}], [])
    }
    assert len(digests) == 5


def test_an_instant_is_the_same_in_every_zone() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    elsewhere = noon.astimezone(timezone(timedelta(hours=5)))
    for at in (noon, elsewhere, noon.isoformat(), "2026-03-01T12:00:00Z"):
        assert batch_of(STATEMENTS, [{"id": "a", "at": at}]).rows[0][1] == 1_772_366_400_000_000


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"score": 1}, "row 1 has no id"),
        ({"id": None}, "row 1 has no id"),
        ({"id": 5}, "id is not a valid text"),
        ({"id": "a\0"}, "NUL"),
        ({"id": "\ud800"}, "id is not a valid text"),
        ({"id": "a", "mode": "red"}, "mode, which statements does not have"),
        ({"id": "a", "score": "1"}, "score is not a valid number"),
        ({"id": "a", "score": True}, "score is not a valid number"),
        ({"id": "a", "score": float("nan")}, "is not finite"),
        ({"id": "a", "at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 (the subject)
        ({"id": "a", "at": "yesterday"}, "at is not a valid time"),
    ],
)
def test_a_row_that_does_not_fit_says_which_and_why(row: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        batch_of(STATEMENTS, [row])


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"name": "a; DROP TABLE b"}, "is not a valid name"),
        ({"name": "Onceward_staging"}, "own tables"),
        ({"name": "a.b.c"}, "is not a table name"),
        ({"columns": {"id": "text", 'x"': "text"}}, "is not a valid name"),
        ({"columns": {"id": "text", "ID": "text"}}, "upper and lower case"),
        ({"columns": {"id": "uuid"}}, "unknown type"),
        ({"columns": {"id": "json"}}, "cannot be ordered"),
        ({"key": ()}, "has no key"),
        ({"key": ("other",)}, "no column 'other'"),
        ({"newest_by": "id"}, "on_match"),
    ],
)
def test_a_table_that_cannot_work_is_refused_when_it_is_declared(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Table(**{"name": "t", "columns": {"id": "text"}, "key": ("id",)} | choices)
