"""Private servers: with a free port and their own folder; they end together with the test run, however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

STARTING = 120.0  # seconds that the slowest server may take on a busy machine
LOOK = 0.01


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def missing(what: str, how: str) -> None:
    """Skip the test with a hint how to install it; in CI, where it is required, fail."""
    message = f"{what} is not installed: {how}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


class Server:
    """A child process that listens on a port. It may be killed, paused and restarted."""

    patience = STARTING

    def __init__(self, command: Sequence[str], port: int, log: Path) -> None:
        self.port = port
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, ready: Callable[[int], bool]) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_with_the_parent(), *self._command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + self.patience
        while not ready(self.port):
            assert self._process.poll() is None, f"{self._command[0]} ended: {self._log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"{self._command[0]} does not answer: {self._log.read_text()[-2000:]}"
            time.sleep(LOOK)

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it immediately, like a power cut (except for the disk's own cache)."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STARTING)

    def stop(self) -> None:
        """Stop it in order; if that takes too long, kill it."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()


def _with_the_parent() -> list[str]:
    """Return a prefix that ends the server with its parent, if the system has such a command."""
    command = shutil.which("setpriv")
    return [] if command is None else [command, "--pdeathsig", "KILL"]
