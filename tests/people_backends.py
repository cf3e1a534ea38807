"""Where the tests of people keep them: a SQLite file, and a schema of the worker's PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from onceward.people import Decision, People, SourceRecord
from tests.servers.postgres import URL, execute

BOTH = ("sqlite", "postgres")


def people_url(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """Empty at the begin of the test."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/people.db"
    request.getfixturevalue("postgres")
    schema = f"people_{os.getpid()}"
    execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    return f"{os.environ[URL]}?schema={schema}&migrate=1"


def record(source: str, id: str | None = None, /, **fields: Any) -> SourceRecord:
    return SourceRecord(source, fields, id)


def partition(people: People) -> set[frozenset[tuple[str, str]]]:
    """Who is one person: the records of each, whatever the ids."""
    return {frozenset((part.source, part.record) for part in person.contributions) for person in people}


def actions(decisions: list[Decision]) -> list[str]:
    return [decision.action for decision in decisions]


def everything(people: People) -> list[Any]:
    """Every column of every table."""
    with people.transaction() as tx:
        prefix = "" if people.url.startswith("sqlite") else f"people_{os.getpid()}."
        tables = ("people", "person_keys", "contributions", "likeness", "reviews", "people_meta")
        return [sorted(map(repr, tx.execute(f"SELECT * FROM {prefix}onceward_{table}"))) for table in tables]
