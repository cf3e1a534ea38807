"""Google's Pub/Sub emulator, part of the Google Cloud SDK, spoken to by its REST surface."""

from __future__ import annotations

import base64
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.servers.process import Server, free_port, missing

HOW = "apt-get install google-cloud-cli-pubsub-emulator default-jre-headless"
PLACES = ("/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/opt/google-cloud-sdk")
JAR = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"


def find_jar() -> Path | None:
    """Beside gcloud, or where packages put it."""
    gcloud = shutil.which("gcloud")
    roots = [Path(gcloud).resolve().parents[1]] if gcloud else []
    for root in (*roots, *map(Path, PLACES)):
        for jar in sorted(root.glob(JAR)):
            return jar
    return None


class Emulator(Server):
    """One emulator, with topics and push subscriptions."""

    def __init__(self, folder: Path) -> None:
        java, jar = shutil.which("java"), find_jar()
        if java is None or jar is None:
            missing("the Pub/Sub emulator", HOW)
        port = free_port()
        memory = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]  # started for a few messages
        command = [str(java), *memory, "-jar", str(jar), "--host=127.0.0.1", f"--port={port}"]
        super().__init__(command, port, folder / "log")
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}/v1/projects/test", timeout=20)

    def subscribe(self, topic: str, endpoint: str) -> None:
        """A topic whose messages are pushed there."""
        self._call("PUT", f"/topics/{topic}", {})
        told = {
            "topic": f"projects/test/topics/{topic}",
            "pushConfig": {"pushEndpoint": endpoint},
            "ackDeadlineSeconds": 600,  # a busy machine is no reason to push once more
        }
        self._call("PUT", f"/subscriptions/{topic}-push", told)

    def publish(self, topic: str, data: bytes, **attributes: str) -> str:
        message = {"data": base64.b64encode(data).decode(), "attributes": attributes}
        told = self._call("POST", f"/topics/{topic}:publish", {"messages": [message]})
        return str(told["messageIds"][0])

    def _call(self, method: str, path: str, body: dict[str, Any]) -> Any:
        return self._http.request(method, path, json=body).raise_for_status().json()

    def end(self) -> None:
        self._http.close()
        self.kill()


@contextmanager
def emulator() -> Iterator[Emulator]:
    with tempfile.TemporaryDirectory(prefix="onceward-pubsub-", ignore_cleanup_errors=True) as folder:
        server = Emulator(Path(folder))
        try:
            server.start(_listens)
            yield server
        finally:
            server.end()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
