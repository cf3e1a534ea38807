"""Google's own Pub/Sub emulator."""

from __future__ import annotations

from tests.servers.google import QUICK, emulator
from tests.servers.housed import HousedServer


class PubSubServer(HousedServer):
    """One emulator. Its data is in memory: a restart loses topics and subscriptions."""

    def __init__(self) -> None:
        jar = emulator("pubsub", "pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar")
        super().__init__("pubsub", ["java", "-Xmx256m", *QUICK, "-jar", jar, "--host=127.0.0.1", "--port={port}"])
