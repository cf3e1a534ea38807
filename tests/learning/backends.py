"""Where the tests keep learning records: files, and a PostgreSQL server."""

from __future__ import annotations

import itertools
import os

import pytest

from tests.servers.postgres import Postgres, execute

_numbers = itertools.count()


def server_of(request: pytest.FixtureRequest) -> str:
    """Return "" for files, or the URL of a new schema, by the parameter."""
    if request.param == "duckdb":
        return ""
    server: Postgres = request.getfixturevalue("postgres")
    name = f"learning_{os.getpid()}_{next(_numbers)}"
    execute(f"CREATE SCHEMA {name}", url=server.url)
    return f"{server.url}?schema={name}"
