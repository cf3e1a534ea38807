"""Mission E whole: Google's Pub/Sub emulator pushes, Google's Firestore emulator keeps, and nothing counts twice."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from examples.fleet.endpoint import Heartbeat
from examples.fleet.message import Message as FleetMessage
from examples.fleet.message import event_id, ordering, service_id
from onceward import Once, Outcome
from onceward.http.push import Message, PubSubPush
from tests.endpoints.stage import wait_until, wsgi_served
from tests.firestore_places import PROJECT, SERVICES_URL, client, document, named
from tests.servers.firestore import shared
from tests.servers.pubsub_push import emulator

SERVICES = ("api", "mail", "web")
MINUTES = range(1, 6)


class Troubled:
    """The consumer on a bad day: it fails before, or only its answer is lost; then it works."""

    def __init__(self, once: Once) -> None:
        self.reasons: Counter[str] = Counter()
        self._services = once.state("ops_services")
        self._attempts: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._lock = threading.Lock()

    def heartbeat(self, message: Message[Heartbeat]) -> Outcome[Any]:
        with self._lock:
            self._attempts[message.id] += 1
            attempt = self._attempts[message.id]
        if attempt == 1:
            raise ConnectionError("a 500 before anything happened")
        payload = json.loads(message.data)
        known = FleetMessage(message.id, message.published_at or "", payload)
        id = service_id(payload["env"], payload["service"])
        outcome = self._services.apply(id, ordering(known), payload, event_id=event_id(payload))
        with self._lock:
            self.reasons[outcome.reason] += 1
            self._answered |= {message.id} if attempt > 2 else set()
        if attempt == 2:
            raise ConnectionError("a 500 after it was applied: the broker delivers it again")
        return outcome

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
        fleet = Troubled(once)
        push = PubSubPush(once, "ops", check=None)
        push.on(Heartbeat, claim=False)(fleet.heartbeat)
        with emulator() as pubsub, wsgi_served(push) as url:
            pubsub.subscribe("ops", f"{url}/pubsub/push")
            ids = [pubsub.publish("ops", json.dumps(event).encode()) for event in events + republished]
            wait_until(lambda: fleet.is_done_with(ids), "every message was delivered three times")
        counted = once.counts
    for service in SERVICES:
        found = document(services, service_id("prod", service))
        assert found is not None
        assert found["status"] == f"{service} {MINUTES[-1]}", "the newest, whatever the order of arrival"
    reasons = fleet.reasons
    assert reasons["duplicate_message_noop"] >= len(ids), "each was applied, then delivered again"
    assert reasons["duplicate_event_noop"] == len(republished)
    assert reasons["applied"] + reasons["stale_event_ignored"] == len(events)
    assert reasons["applied"] >= len(SERVICES)
    assert counted["applied"] == reasons["applied"]
    assert counted["stale"] == reasons["stale_event_ignored"]
    marks = list(client().collection(dedupe).stream())
    assert len(marks) == len(ids) + len(events), "one a message, and one an event however often it is published"
