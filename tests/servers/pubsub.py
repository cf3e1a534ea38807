"""Google's own Pub/Sub emulator, which comes with the Google Cloud SDK and needs Java.

It cannot be installed from Debian or from a wheel: where it is missing its tests are skipped, in CI, too.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from tests.servers.process import STARTING, Server, free_port

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


class Subscription:
    """A topic, its subscription, and both of them for its dead letters. The environment says where the emulator is."""

    def __init__(self, name: str) -> None:
        from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient

        self._publisher, self._subscriber = PublisherClient(), SubscriberClient()
        self._topic = f"projects/test/topics/{name}"
        self.name = f"projects/test/subscriptions/{name}"
        self.dead = f"{self._topic}-dead"
        self._of_dead = f"{self.name}-dead"
        for topic, subscription in ((self._topic, self.name), (self.dead, self._of_dead)):
            self._publisher.create_topic(name=topic)
            self._subscriber.create_subscription(name=subscription, topic=topic, ack_deadline_seconds=10)
        self._put = 0
        self.acknowledged: set[str] = set()

    def put(self, body: bytes) -> None:
        self._publisher.publish(self._topic, body).result(timeout=STARTING)
        self._put += 1

    def left(self) -> int:
        """The emulator does not tell: whoever acknowledges, notes it."""
        return self._put - len(self.acknowledged)

    def dead_letters(self) -> list[bytes]:
        answer = self._subscriber.pull(subscription=self._of_dead, max_messages=100, timeout=STARTING)
        return [found.message.data for found in answer.received_messages]

    def close(self) -> None:
        self._publisher.stop()
        self._subscriber.close()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return b"200" in connection.recv(100)
    except OSError:
        return False
