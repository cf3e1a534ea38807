"""PgBouncer in transaction mode in front of the worker's PostgreSQL: few connections, shared by transactions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import psycopg
import pytest

from .postgres import Postgres
from .private import Folder, Process
from .process import free_port, missing

HOW = "apt-get install pgbouncer (its service need not run)"
URL = "ONCEWARD_TEST_PGBOUNCER"


class PgBouncer:
    """One process, on its own port."""

    def __init__(self, program: str, server: Postgres, *, connections: int = 4) -> None:
        self._folder = Folder()
        port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        users, settings = self._folder.path / "users", self._folder.path / "ini"
        users.write_text('"postgres" ""\n')
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={server.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\npool_mode = transaction\n"
            f"default_pool_size = {connections}\nmax_client_conn = 500\n"
        )
        for path in (users, settings):
            self._folder.give(path)
        self._process = Process(self._folder.as_servant(program, str(settings)), self._folder.path / "log")
        self._process.await_up(self._answers)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def remove(self) -> None:
        self._process.kill()
        self._folder.remove()


def started(postgres: Postgres) -> PgBouncer:
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        missing("PgBouncer", HOW)
    return PgBouncer(program or "", postgres)


@pytest.fixture
def new_pgbouncer(postgres: Postgres) -> Iterator[PgBouncer]:
    """A pooler whose connections no other test has used."""
    pooler = started(postgres)
    yield pooler
    pooler.remove()


@pytest.fixture(scope="session")
def pgbouncer(postgres: Postgres) -> Iterator[PgBouncer]:
    pooler = started(postgres)
    os.environ[URL] = pooler.url
    yield pooler
    os.environ.pop(URL, None)
    pooler.remove()
