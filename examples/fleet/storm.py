"""The fleet in a storm: worker processes push to the endpoint, and are killed or paused. An audit then reads tables.

The audit does not use Onceward. It computes from the events which one must be the latest, and reads from the database's
own log which one it is and how often each was written. `--unguarded` is the usual first version: the last arrival wins.
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
from examples.fleet.audit_database import AuditDatabase, State
from examples.fleet.audit_firestore import FirestoreAudit
from examples.fleet.events import Document, document_id
from examples.fleet.stores import store_urls
from onceward import AsyncOnce, Once
from onceward.http.messages import InboundRequest
from onceward.testing.storm import Audit, Effect, HandlerResult, StormEvent, StormSetting
from onceward.testing.storm.contract import ResultKind

START = datetime(2025, 3, 1, 8, tzinfo=UTC)
SUBJECTS = (
    ("billing", None),
    ("search", None),
    ("strategy_engine", "eu"),
    ("log__in", None),
    ("log", "in"),
)
"""Names and regions. The last two would share an id if the parts were simply joined."""
ANSWERS_BY_REASON: dict[str, ResultKind] = {"applied": "executed", "stale_event_ignored": "stale"}


ONE_TRANSACTION = "exactly once: claim and state in one transaction"


def audit_database(setting: StormSetting) -> AuditDatabase | FirestoreAudit:
    """Return the store of a run, accessed without Onceward."""
    return FirestoreAudit(setting) if setting.store.startswith("firestore:") else AuditDatabase(setting)


class FleetStorm:
    """Services and pipelines of two environments, which report continuously."""

    name = "fleet"
    effects = (
        Effect("event that is processed, and written into a document at most once", ONE_TRANSACTION),
        Effect("document of a service or pipeline, which is the latest", ONE_TRANSACTION),
    )

    @contextmanager
    def open(self, setting: StormSetting) -> Iterator[dict[str, str]]:
        with closing(audit_database(setting)) as database:
            with Once(store_urls(database.url).services) as once:
                once.migrate()
            database.create_triggers()
            try:
                yield {}
            finally:
                database.drop_triggers()

    def events(self, dice: random.Random) -> Iterator[StormEvent]:
        """Generate events. Ninety share a time and differ only in sequence; every tenth has no sequence and no id."""
        for number in count():
            (about, region), lag = dice.choice(SUBJECTS), dice.randrange(60)
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
            yield StormEvent(f"event-{number}", payload)

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        database = audit_database(setting)
        if not setting.guarded:
            return lambda event: _write_unguarded(database, event)
        runner = asyncio.Runner()
        services, pipelines = (AsyncOnce(url, app=database.app, counters=True) for url in store_urls(database.url))
        fleet = Fleet(services, of_pipelines=pipelines, per_region=True)
        copies: Counter[str] = Counter()

        def push(event: StormEvent) -> HandlerResult:
            copies[event.id] += 1
            body = published(event, setting.run, copies[event.id] % 2)
            answer = runner.run(fleet.respond(InboundRequest("POST", {}, body, path="/pubsub/push")))
            if answer.status != 200:
                return HandlerResult("failed", why=f"{answer.status} {answer.body.decode()}")
            return HandlerResult(ANSWERS_BY_REASON.get(json.loads(answer.body)["reason"], "replayed"))

        return push

    def audit(self, setting: StormSetting, events: Sequence[StormEvent]) -> Audit:
        with closing(audit_database(setting)) as database:
            writes = database.writes()
            marks = Counter(database.messages(f"{setting.run}:%"))
        latest = {_subject(event.body): event for event in sorted(events, key=_order)}
        documents: dict[State, Document] = {}
        changes: Counter[str] = Counter()
        for place, document in writes:
            changes[document["version"]] += documents.get(place, {}).get("version") != document["version"]
            documents[place] = document
        states = {_subject(document): document for document in documents.values()}
        wrong = [
            f"{'/'.join(state)}: {problem}"
            for state, document in states.items()
            if (problem := _document_problem(document, latest))
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
            expected=len(events) + len(latest),
            effects=len(known) + len(states),
            duplicates=[event for event, times in changes.items() if times > 1],
            lost=[event.id for event in events if event.id not in known]
            + [f"document of {'/'.join(state)}" for state in latest if state not in states],
            wrong=wrong,
        )


def envelope(payload: dict[str, Any], message: str, published: str | None = None) -> bytes:
    """Return the body of a Pub/Sub push."""
    data = base64.b64encode(json.dumps(payload).encode()).decode()
    inner = {"messageId": message, "publishTime": published or payload["producedAt"], "data": data}
    return json.dumps({"message": inner, "subscription": "projects/demo/subscriptions/fleet"}).encode()


def published(event: StormEvent, run: str, copy: int) -> bytes:
    """Return a message whose publish time and id are unrelated to the order of the events."""
    number = zlib.crc32(f"{event.id}:{copy}".encode())
    at = START + timedelta(seconds=number % 3600)
    return envelope(event.body, f"{run}:{number}:{event.id}:{copy}", at.isoformat())


def _write_unguarded(database: AuditDatabase | FirestoreAudit, event: StormEvent) -> HandlerResult:
    database.write(_state(event), event.body)
    return HandlerResult("executed")


def _state(event: StormEvent) -> State:
    document = event.body
    kind = "ops_services" if "service" in document else "ops_ingest_pipelines"
    return kind, document_id(document["env"], document.get("service") or document["pipeline"], document["region"])


def _subject(document: Document) -> tuple[str, ...]:
    """Return the subject of an event or a document."""
    names = ("env", "service", "serviceId", "pipeline", "pipelineId", "region")
    return tuple(f"{name.removesuffix('Id')} {document[name]}" for name in names if document.get(name))


def _document_problem(document: Document, latest: dict[tuple[str, ...], StormEvent]) -> str:
    """Return what is wrong with a document, or "" if it matches the latest event."""
    event = latest.get(_subject(document))
    if event is None or event.id != document["version"]:
        return f"{document['version']}, but the latest is {event and event.id}"
    other = [name for name in ("status", "lagSeconds") if document.get(name) != event.body.get(name)]
    return f"{', '.join(other)} not as {event.id} said" if other else ""


def _events(marks: Counter[str]) -> Counter[str]:
    """Return the number of marks per event: one for each message, and one for the event itself."""
    found: Counter[str] = Counter()
    for message, times in marks.items():
        found[message.split(":")[2]] += times
    return found


def _order(event: StormEvent) -> tuple[str, int]:
    return event.body["producedAt"], event.body.get("sequence", -1)


SYSTEM = FleetStorm()
