"""The fleet in a storm: pushes to the endpoint in worker processes that are killed or paused. Then the tables are read.

The audit asks nothing of Onceward: which event should be the last one is worked out from the events, and which it is,
and how often each was written, from what the database noted. `--unguarded` is the usual first version: whatever arrives
last is the state.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from examples.fleet.app import Fleet
from examples.fleet.events import Document, document_id
from examples.fleet.watched import State, Watched
from onceward import AsyncOnce, Once
from onceward.http.messages import InboundRequest
from onceward.testing.storm import Answer, Audit, Effect, Event, Setting
from onceward.testing.storm.contract import Said

START = datetime(2025, 3, 1, 8, tzinfo=UTC)
ABOUT = (
    ("billing", None),
    ("search", None),
    ("strategy_engine", "eu"),
    ("log__in", None),
    ("log", "in"),
)
"""With regions. The last two would meet if ids were just joined."""
SAID: dict[str, Said] = {"applied": "executed", "stale_event_ignored": "stale"}


ONE_TRANSACTION = "exactly once: claim and state in one transaction"


class FleetStorm:
    """Services and pipelines of two environments, each of which reports all the time."""

    name = "fleet"
    effects = (
        Effect("event that is known, and written into a document once at most", ONE_TRANSACTION),
        Effect("document of a service or pipeline, which is the newest", ONE_TRANSACTION),
    )

    @contextmanager
    def open(self, setting: Setting) -> Iterator[dict[str, str]]:
        with closing(Watched(setting)) as database:
            with Once(database.url) as once:
                once.migrate()
            database.watch()
            try:
                yield {}
            finally:
                database.unwatch()

    def events(self, dice: random.Random) -> Iterator[Event]:
        """Ninety share a moment: only their sequence tells them apart. Every tenth has no sequence and no id."""
        for number in count():
            (about, region), lag = dice.choice(ABOUT), dice.randrange(60)
            alone = number % 10 == 0
            happened = START + timedelta(seconds=number // 100, milliseconds=number % 100 if alone else 500)
            payload = {
                **({"service": about} if dice.random() < 0.7 else {"pipeline": about, "lagSeconds": lag}),
                **({} if alone else {"sequence": number, "eventId": f"event-{number}"}),
                "env": dice.choice(("prod", "staging")),
                "region": region,
                "status": dice.choice(("ok", "ok", "degraded", "down")),
                "version": f"event-{number}",
                "producedAt": happened.isoformat(),
            }
            yield Event(f"event-{number}", payload)

    def worker(self, setting: Setting) -> Callable[[Event], Answer]:
        database = Watched(setting)
        if not setting.guarded:
            return lambda event: _by_hand(database, event)
        runner = asyncio.Runner()
        fleet = Fleet(AsyncOnce(database.url, app=database.app))
        copies: Counter[str] = Counter()

        def push(event: Event) -> Answer:
            copies[event.id] += 1
            body = published(event, setting.run, copies[event.id] % 2)
            answer = runner.run(fleet.respond(InboundRequest("POST", {}, body, path="/pubsub/push")))
            if answer.status != 200:
                return Answer("failed", why=f"{answer.status} {answer.body.decode()}")
            return Answer(SAID.get(json.loads(answer.body)["reason"], "replayed"))

        return push

    def audit(self, setting: Setting, events: Sequence[Event]) -> Audit:
        with closing(Watched(setting)) as database:
            writes = database.writes()
            marks = Counter(database.messages(f"{setting.run}:%"))
        newest = {_about(event.body): event for event in sorted(events, key=_order)}
        documents: dict[State, Document] = {}
        changes: Counter[str] = Counter()
        for place, document in writes:
            changes[document["version"]] += documents.get(place, {}).get("version") != document["version"]
            documents[place] = document
        states = {_about(document): document for document in documents.values()}
        wrong = [
            f"{'/'.join(state)}: {said}" for state, document in states.items() if (said := _amiss(document, newest))
        ]
        wrong += [f"{len(documents)} documents of {len(states)} services and pipelines"] * (
            len(documents) > len(states)
        )
        messages = Counter(message.split(":")[2] for message in marks)
        known = _events(marks) - messages
        wrong += [f"{event}: known as {times} events" for event, times in known.items() if times > 1]
        if not setting.guarded:
            known = changes
        return Audit(
            expected=len(events) + len(newest),
            effects=len(known) + len(states),
            duplicates=[event for event, times in changes.items() if times > 1],
            lost=[event.id for event in events if event.id not in known]
            + [f"document of {'/'.join(state)}" for state in newest if state not in states],
            wrong=wrong,
        )


def envelope(payload: dict[str, Any], message: str, published: str | None = None) -> bytes:
    """As Pub/Sub pushes it."""
    data = base64.b64encode(json.dumps(payload).encode()).decode()
    inner = {"messageId": message, "publishTime": published or payload["producedAt"], "data": data}
    return json.dumps({"message": inner, "subscription": "projects/demo/subscriptions/fleet"}).encode()


def published(event: Event, run: str, copy: int) -> bytes:
    """A message. When it was published and its id are in no order that has to do with the event's."""
    luck = zlib.crc32(f"{event.id}:{copy}".encode())
    at = START + timedelta(seconds=luck % 3600)
    return envelope(event.body, f"{run}:{luck}:{event.id}:{copy}", at.isoformat())


def _by_hand(database: Watched, event: Event) -> Answer:
    database.write(_state(event), event.body)
    return Answer("executed")


def _state(event: Event) -> State:
    told = event.body
    kind = "ops_services" if "service" in told else "ops_ingest_pipelines"
    return kind, document_id(told["env"], told.get("service") or told["pipeline"], told["region"])


def _about(told: Document) -> tuple[str, ...]:
    """Whose health an event or a document tells, in its own words."""
    names = ("env", "service", "serviceId", "pipeline", "pipelineId", "region")
    return tuple(f"{name.removesuffix('Id')} {told[name]}" for name in names if told.get(name))


def _amiss(document: Document, newest: dict[tuple[str, ...], Event]) -> str:
    """What is wrong with a document; "" if it says what the newest event said."""
    event = newest.get(_about(document))
    if event is None or event.id != document["version"]:
        return f"{document['version']}, the newest is {event and event.id}"
    other = [name for name in ("status", "lagSeconds") if document.get(name) != event.body.get(name)]
    return f"{', '.join(other)} not as {event.id} said" if other else ""


def _events(marks: Counter[str]) -> Counter[str]:
    """What is known of each event: a mark for each message, and one for itself."""
    found: Counter[str] = Counter()
    for message, times in marks.items():
        found[message.split(":")[2]] += times
    return found


def _order(event: Event) -> tuple[str, int]:
    return event.body["producedAt"], event.body.get("sequence", -1)


SYSTEM = FleetStorm()
