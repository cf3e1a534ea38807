"""Servers with their own temporary folder, which is deleted with them, and a greeting that shows when they are up."""

from __future__ import annotations

import atexit
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from tests.servers.process import Server, free_port


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


class HousedServer(Server):
    """One server. Its command may contain `{port}` and `{folder}`."""

    greeting: ClassVar[bytes] = get("/")
    answer: ClassVar[bytes] = b"HTTP/1.1 200"

    def __init__(self, name: str, command: Sequence[str], port: int | None = None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix=f"onceward-{name}-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        port = port or free_port()
        super().__init__([part.format(port=port, folder=self.folder) for part in command], port, self.folder / "log")
        self.address = f"127.0.0.1:{port}"

    def begin(self) -> Self:
        try:
            self.start(self.answers)
        except BaseException:
            self.end()
            raise
        return self

    def until_exit(self) -> Self:
        """Start the server for the rest of this process."""
        atexit.register(self.end)
        return self.begin()

    def end(self) -> None:
        self.kill()  # its data is no longer needed, and an orderly shutdown may wait for a disk
        self._temporary.cleanup()

    def answers(self, port: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(self.greeting)
                return connection.recv(100).startswith(self.answer)
        except OSError:
            return False
