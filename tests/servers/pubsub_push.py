"""Push subscriptions of the Pub/Sub emulator, spoken to by its REST surface."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.servers.pubsub import PubSubServer


class Emulator:
    """Topics whose messages are pushed."""

    def __init__(self, address: str) -> None:
        self._http = httpx.Client(base_url=f"http://{address}/v1/projects/test", timeout=20)

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

    def close(self) -> None:
        self._http.close()


@contextmanager
def emulator() -> Iterator[Emulator]:
    server = PubSubServer().begin()
    pushing = Emulator(server.address)
    try:
        yield pushing
    finally:
        pushing.close()
        server.end()
