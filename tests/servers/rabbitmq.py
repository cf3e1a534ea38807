"""A private RabbitMQ: Debian's `rabbitmq-server`, with its own user, node name and folder."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
from pathlib import Path

from tests.servers.private import Folder, Process
from tests.servers.process import free_port, missing

HOW = "apt-get install rabbitmq-server (its service need not run)"
PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Not the script in /usr/sbin, which requires another user."""


class RabbitServer:
    """One node. `kill` and `begin` may be repeated: confirmed messages survive."""

    def __init__(self) -> None:
        program = PROGRAM if Path(PROGRAM).exists() else shutil.which("rabbitmq-server")
        if program is None or shutil.which("epmd") is None or shutil.which("setpriv") is None:
            missing("RabbitMQ", HOW)
        self._program = program or ""
        self._folder = Folder()
        self.port, self._between, self._directory = free_port(), free_port(), free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        self._process: Process | None = None
        epmd = self._folder.as_servant("epmd", "-port", str(self._directory), "-address", "127.0.0.1")
        self._epmd = Process(epmd, self._folder.path / "epmd")  # else the server starts one that keeps running
        self._epmd.await_up(lambda: _listens(self._directory))

    def begin(self) -> RabbitServer:
        folder = str(self._folder.path)
        (self._folder.path / "enabled_plugins").write_text("[].\n")
        settings = {
            "HOME": folder,
            "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._between),
            "RABBITMQ_MNESIA_BASE": folder,
            "RABBITMQ_LOG_BASE": folder,
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_CONFIG_FILE": f"{folder}/none",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",  # no busy waiting
            "RUNNING_UNDER_SYSTEMD": "1",  # no shell around the server, which would survive it
            "ERL_EPMD_PORT": str(self._directory),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "PATH": os.environ["PATH"],
        }
        variables = [f"{name}={value}" for name, value in settings.items()]
        command = self._folder.as_servant("env", "-i", *variables, self._program)
        self._process = Process(command, self._folder.path / "log")
        self._process.await_up(self._answers)
        return self

    def _answers(self) -> bool:
        """Check the greeting: a client would log an error each time the server does not answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.settimeout(1)
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(connection.recv(1))
        except OSError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def end(self) -> None:
        self.kill()
        self._epmd.kill()
        self._folder.remove()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


_running: list[RabbitServer] = []


def shared() -> RabbitServer:
    """Return the server of this test process."""
    if not _running:
        server = RabbitServer().begin()
        atexit.register(server.end)
        _running.append(server)
    return _running[0]
