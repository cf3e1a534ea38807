"""Google's own Pub/Sub emulator, which comes with the Google Cloud SDK and needs Java.

It cannot be installed from Debian or from a wheel: where it is missing its tests are skipped, in CI, too.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from tests.servers.process import Server, free_port

HOW = "no Pub/Sub emulator: it comes with the Google Cloud SDK (google-cloud-cli-pubsub-emulator), and needs java"


def emulator() -> Path | None:
    gcloud = shutil.which("gcloud")
    if gcloud is None or shutil.which("java") is None:
        return None
    roots = [Path(gcloud).resolve().parents[1], Path("/usr/lib/google-cloud-sdk")]
    found = (jar for root in roots for jar in root.glob("platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"))
    return next(found, None)


class PubSubServer(Server):
    """One emulator. What it holds is in memory: a restart forgets topics and subscriptions."""

    def __init__(self) -> None:
        jar = emulator()
        if jar is None:
            pytest.skip(HOW)
        self._folder = tempfile.TemporaryDirectory(prefix="onceward-pubsub-", ignore_cleanup_errors=True)
        port = free_port()
        # Small and quick to start: it holds a few thousand messages, and two cores are shared.
        java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(jar)]
        super().__init__([*java, "--host=127.0.0.1", f"--port={port}"], port, Path(self._folder.name) / "log")
        self.address = f"127.0.0.1:{port}"

    def begin(self) -> PubSubServer:
        self.start(_answers)
        return self

    def end(self) -> None:
        self.kill()
        self._folder.cleanup()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return b"200" in connection.recv(100)
    except OSError:
        return False
