"""A private server that speaks SQS (and more of AWS): the wheel `ministack`, part of the dev extra.

It keeps its messages in memory: a restart forgets them.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from pathlib import Path

from tests.servers.process import Server, free_port, missing


class Ministack(Server):
    """One server."""

    def __init__(self) -> None:
        program = Path(sys.executable).parent / "ministack"
        if not program.exists():
            missing("ministack", "pip install ministack (part of the dev extra)")
        self._folder = tempfile.TemporaryDirectory(prefix="onceward-aws-", ignore_cleanup_errors=True)
        port = free_port()
        command = ["env", f"GATEWAY_PORT={port}", "BIND_HOST=127.0.0.1", str(program)]
        super().__init__(command, port, Path(self._folder.name) / "log")
        self.url = f"http://127.0.0.1:{port}"

    def begin(self) -> Ministack:
        self.start(_answers)
        return self

    def end(self) -> None:
        self.kill()
        self._folder.cleanup()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"GET /_ministack/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return connection.recv(100).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
