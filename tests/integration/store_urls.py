"""A URL of a private store for a child process, one for each kind of store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.redis import shared

KINDS = ("memory", "sqlite", "postgres", "redis")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/once.db?synchronous=NORMAL"
        case "postgres":
            server, schema = request.getfixturevalue("postgres"), request.getfixturevalue("schema")
            return f"{server.url}?schema={schema}&migrate=1"
        case _:
            return shared().url(f"&prefix={tmp_path.name}")
