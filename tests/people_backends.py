"""Backends of the people tests: a SQLite file, and a schema of the test worker's PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from onceward.people import Decision, MergeRule, People, SourceRecord
from tests.servers.postgres import URL, execute

BOTH = ("sqlite", "postgres")
PROSPECTS = [MergeRule(("name", "city", "country"), 0.95)]
"""The rule of a list of prospects (C5): the same name, city and country are one person."""


def people_url(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty people database."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/people.db"
    request.getfixturevalue("postgres")
    schema = f"people_{os.getpid()}"
    execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    return f"{os.environ[URL]}?schema={schema}&migrate=1"


def record(source: str, id: str | None = None, /, **fields: Any) -> SourceRecord:
    return SourceRecord(source, fields, id)


def partition(people: People) -> set[frozenset[tuple[str, str]]]:
    """Return the set of records of each person, without the person ids."""
    return {frozenset((part.source, part.record) for part in person.contributions) for person in people}


def actions(decisions: list[Decision]) -> list[str]:
    return [decision.action for decision in decisions]


def everything(people: People) -> list[Any]:
    """Return every column of every table."""
    with people.transaction() as tx:
        prefix = "" if people.url.startswith("sqlite") else f"people_{os.getpid()}."
        tables = ("people", "person_keys", "contributions", "blocking", "reviews", "people_meta", "links")
        return [sorted(map(repr, tx.execute(f"SELECT * FROM {prefix}onceward_{table}"))) for table in tables]
