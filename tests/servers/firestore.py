"""Google's own Firestore emulator, which comes with the Google Cloud SDK and needs Java.

It cannot be installed from Debian or from a wheel: where it is missing its tests are skipped, in CI, too.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from tests.servers.process import Server, free_port

HOW = "no Firestore emulator: it comes with the Google Cloud SDK (google-cloud-cli-firestore-emulator), and needs java"
JAR = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
EMULATOR = "FIRESTORE_EMULATOR_HOST"


def emulator() -> Path | None:
    gcloud = shutil.which("gcloud")
    if gcloud is None or shutil.which("java") is None:
        return None
    roots = [Path(gcloud).resolve().parents[1], Path("/usr/lib/google-cloud-sdk")]
    return next((root / JAR for root in roots if (root / JAR).exists()), None)


class FirestoreServer(Server):
    """One emulator. What it holds is in memory."""

    def __init__(self) -> None:
        jar = emulator()
        if jar is None:
            pytest.skip(HOW)
        self._folder = tempfile.TemporaryDirectory(prefix="onceward-firestore-", ignore_cleanup_errors=True)
        port = free_port()
        # Small and quick to start: it holds a few thousand documents, and two cores are shared.
        java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.language=en"]
        main = ["-cp", str(jar), "com.google.cloud.datastore.emulator.firestore.CloudFirestore", "start"]
        super().__init__([*java, *main, "--host=127.0.0.1", f"--port={port}"], port, Path(self._folder.name) / "log")
        self.address = f"127.0.0.1:{port}"

    def begin(self) -> FirestoreServer:
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


@functools.cache
def shared() -> str:
    """The address of one emulator for the whole test process; its children find it by the same variable."""
    address = os.environ.get(EMULATOR)
    if address is None:
        server = FirestoreServer().begin()
        atexit.register(server.end)
        address = os.environ[EMULATOR] = server.address
    return address
