"""Mission E, end to end: Google's Pub/Sub emulator pushes, its Firestore emulator stores, nothing counts twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from examples.fleet.app import Fleet
from examples.fleet.events import document_id
from onceward import Once
from onceward.http.endpoint import AsyncEndpoint
from onceward.http.messages import InboundRequest, Response
from tests.endpoints.helpers import asgi_served, wait_until
from tests.firestore_backends import PROJECT, SERVICES_URL, document, firestore_client, named
from tests.servers.firestore import shared
from tests.servers.pubsub_push import emulator

SERVICES = ("api", "mail", "web")
MINUTES = range(1, 6)


class Troubled(AsyncEndpoint):
    """The fleet with failures: some requests fail before the work, some lose only the response; then it works."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self.reasons: Counter[str] = Counter()
        self._fleet = fleet
        self._attempts: Counter[str] = Counter()
        self._answered: set[str] = set()

    async def handle(self, request: InboundRequest) -> Response:
        id = json.loads(request.body)["message"]["messageId"]
        self._attempts[id] += 1
        attempt = self._attempts[id]
        if attempt == 1:
            return Response(500)
        answer = await self._fleet.respond(request)
        self.reasons[json.loads(answer.body)["reason"]] += 1
        if attempt == 2:
            return Response(500)
        self._answered.add(id)
        return answer

    def is_done_with(self, ids: list[str]) -> bool:
        return self._answered.issuperset(ids)


@pytest.mark.mission("E1", "E2", "E3", "E4", "E6")
def test_failures_duplicates_and_republished_events_leave_the_right_state_and_are_counted(tmp_path: Path) -> None:
    shared()
    dedupe, services = named(tmp_path, "ops_dedupe"), named(tmp_path, "ops_services")
    store = f"firestore://{PROJECT}/{named(tmp_path, 'ops')}{SERVICES_URL}&marks={dedupe}&states={services}"
    events = [
        {"service": name, "env": "prod", "status": f"{name} {minute}", "producedAt": f"2026-03-01T08:0{minute}:00Z"}
        for name in SERVICES
        for minute in MINUTES
    ]
    republished = events[:: len(MINUTES)]  # the first of each service, under a new message id
    Random(8).shuffle(events)
    with Once(store) as once:
        fleet = Troubled(Fleet(once.aio))
        with emulator() as pubsub, asgi_served(fleet) as url:
            pubsub.subscribe("ops", f"{url}/pubsub/push")
            ids = [pubsub.publish("ops", json.dumps(event).encode()) for event in events + republished]
            wait_until(lambda: fleet.is_done_with(ids), "every message was delivered three times")
        counted = once.counts
    for service in SERVICES:
        found = document(services, document_id("prod", service))
        assert found is not None
        assert found["status"] == f"{service} {MINUTES[-1]}", "the latest, whatever the order of arrival"
    reasons = fleet.reasons
    assert reasons["duplicate_message_noop"] >= len(ids), "each was applied, then delivered again"
    assert reasons["duplicate_event_noop"] == len(republished)
    assert reasons["applied"] + reasons["stale_event_ignored"] == len(events)
    assert reasons["applied"] >= len(SERVICES)
    assert counted["applied"] == reasons["applied"]
    assert counted["stale"] == reasons["stale_event_ignored"]
    marks = list(firestore_client().collection(dedupe).stream())
    assert len(marks) == len(ids) + len(events), "one per message, and one per event however often it is published"
