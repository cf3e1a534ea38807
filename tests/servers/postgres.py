"""A private PostgreSQL: one for each pytest worker, with a schema for each test; and others that tests may kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from .private import Folder, Process
from .process import free_port, missing

HOW = "apt-get install postgresql (any version from 13 on; its server need not run)"
URL = "ONCEWARD_TEST_POSTGRES"
"""The variable by which child processes of a test find the server of their worker."""

TABLES = ("records", "audit", "latest", "marks", "counters", "history")
"""All tables that may have rows of a test."""


class Postgres:
    """One cluster. `kill` and `start` may be repeated: committed data survives."""

    def __init__(self, binaries: Path, copy_of: Postgres | None = None) -> None:
        self._binaries = binaries
        self._folder = Folder()
        self.data = self._folder.path / "data"
        self._process: Process | None = None
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        if copy_of is None:
            self._run("initdb", "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C", "-D", str(self.data))
        else:
            subprocess.run(["cp", "-a", str(copy_of.data), str(self.data)], check=True)

    def _run(self, name: str, *arguments: str) -> None:
        command = self._folder.as_servant(str(self._binaries / name), *arguments)
        subprocess.run(command, check=True, capture_output=True, cwd="/")

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._folder.path),
            "max_connections": "200",
            "wal_level": "minimal",  # with the next three, only what a test does is written to the log
            "max_wal_senders": "0",
            "autovacuum": "off",
            "checkpoint_timeout": "1h",
        }
        options = [option for pair in settings.items() for option in ("-c", "=".join(pair))]
        command = [str(self._binaries / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]
        self._process = Process(self._folder.as_servant(*command), self._folder.path / "log")
        self._process.await_up(self._answers)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the server: connections stay open, and get no answer."""
        assert self._process is not None
        self._process.signal_all(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.signal_all(signal.SIGCONT)

    def end_of_log(self) -> str:
        """Return what the server has logged last."""
        return (self._folder.path / "log").read_text(errors="replace")[-4000:]

    def remove(self) -> None:
        self.kill()
        self._folder.remove()


def found_binaries() -> Path | None:
    """Return the folder of the newest version. Debian installs each in its own folder, none of them on the PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("[0-9]*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which("initdb")
    return Path(found).resolve().parent if found and shutil.which("setpriv") else None


def find_binaries() -> Path:
    found = found_binaries()
    if found is None:
        missing("PostgreSQL", HOW)
    return found or Path()


@pytest.fixture(scope="session")
def postgres_template() -> Iterator[Postgres]:
    """A cluster that is never started: copying one is faster than creating one."""
    template = Postgres(find_binaries())
    yield template
    template.remove()


@pytest.fixture(scope="session")
def postgres(postgres_template: Postgres) -> Iterator[Postgres]:
    """The server that the tests of one worker share."""
    server = Postgres(find_binaries(), copy_of=postgres_template)
    server.start()
    os.environ[URL] = server.url
    yield server
    for connection in _ours.values():
        connection.close()
    os.environ.pop(URL, None)
    server.remove()


@pytest.fixture
def own_postgres(postgres_template: Postgres) -> Iterator[Postgres]:
    """A server for one test, to kill and to pause."""
    server = Postgres(find_binaries(), copy_of=postgres_template)
    server.start()
    yield server
    server.remove()


def schema_of(place: Path) -> str:
    """Return the schema of a test's directory, also in its child processes. Tests run in sequence, so one is enough."""
    noted = place / "schema"
    if not noted.exists():
        name = f"test_{os.getpid()}"
        if execute("SELECT to_regclass(%s)", f"{name}.onceward_records") != [(None,)]:
            execute(";".join(f"DELETE FROM {name}.onceward_{table}" for table in TABLES))
        elif execute("SELECT to_regnamespace(%s)", name) == [(None,)]:
            execute(f"CREATE SCHEMA {name}")
        noted.write_text(name)
    return noted.read_text()


@pytest.fixture
def schema(postgres: Postgres, tmp_path: Path) -> str:
    """Return the schema of this test, which is empty at its start."""
    return schema_of(tmp_path)


def new_database(server: Postgres, name: str) -> str:
    """Create an empty database on that server. Return its URL."""
    execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", url=server.url)
    execute(f"CREATE DATABASE {name}", url=server.url)
    return f"{server.url.removesuffix('/postgres')}/{name}"


_ours: dict[tuple[int, str], psycopg.Connection[Any]] = {}


def past_the_store() -> psycopg.Connection[Any]:
    """Return a cached connection to the worker's server: connecting costs more than most statements."""
    place = os.getpid(), os.environ[URL]
    if place not in _ours or _ours[place].closed:
        _ours[place] = psycopg.connect(os.environ[URL], autocommit=True)
    return _ours[place]


def execute(statement: str, *values: Any, url: str | None = None) -> list[tuple[Any, ...]]:
    """Execute one statement directly, not through the store."""
    if url is None:
        cursor = past_the_store().execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []
