"""Push subscriptions of the Pub/Sub emulator, through its REST interface."""

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
        """Create a topic whose messages are pushed to the endpoint."""
        self._call("PUT", f"/topics/{topic}", {})
        subscription = {
            "topic": f"projects/test/topics/{topic}",
            "pushConfig": {"pushEndpoint": endpoint},
            "ackDeadlineSeconds": 600,  # so that a slow test does not get the message again
        }
        self._call("PUT", f"/subscriptions/{topic}-push", subscription)

    def publish(self, topic: str, data: bytes, **attributes: str) -> str:
        message = {"data": base64.b64encode(data).decode(), "attributes": attributes}
        answer = self._call("POST", f"/topics/{topic}:publish", {"messages": [message]})
        return str(answer["messageIds"][0])

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
