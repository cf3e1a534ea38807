"""The fleet in a storm: pushes to the endpoint in worker processes that are killed. Then the tables are read.

The audit asks nothing of Onceward: which event should be the last one is worked out from the events, and which it is,
and how often each was written, from what the database noted. `--unguarded` is the usual first version: whatever arrives
last is the state.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from examples.fleet.app import Fleet
from examples.fleet.events import document_id
from examples.fleet.watched import State, Watched
from onceward import AsyncOnce, Once
from onceward.http.answer import Request
from onceward.testing.storm import Answer, Audit, Effect, Event, Setting
from onceward.testing.storm.contract import Said

START = datetime(2025, 3, 1, 8, tzinfo=UTC)
ABOUT = ("billing", "search", "strategy_engine", "mail", "log__in")
SAID: dict[str, Said] = {"applied": "executed", "stale_event_ignored": "stale"}


class FleetStorm:
    """Services and pipelines of two environments, each of which reports all the time."""

    name = "fleet"
    effects = (
        Effect("event that is known, and written into a document once at most", "exactly once"),
        Effect("document of a service or pipeline, which is the newest", "exactly once"),
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
        """Nine share a moment, and their sequence tells them apart. The tenth has no sequence and no id of its own."""
        for number in count():
            about, lag = dice.choice(ABOUT), dice.randrange(60)
            alone = number % 10 == 0
            happened = START + timedelta(seconds=number // 10, milliseconds=0 if alone else 500)
            payload = {
                **({"service": about} if dice.random() < 0.7 else {"pipeline": about, "lagSeconds": lag}),
                **({} if alone else {"sequence": number, "eventId": f"event-{number}"}),
                "env": dice.choice(("prod", "staging")),
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
            body = envelope(event.body, f"{setting.run}:{event.id}:{copies[event.id] % 2}")
            answer = runner.run(fleet.respond(Request("POST", {}, body, path="/pubsub/push")))
            if answer.status != 200:
                return Answer("failed", why=f"{answer.status} {answer.body.decode()}")
            return Answer(SAID.get(json.loads(answer.body)["reason"], "replayed"))

        return push

    def audit(self, setting: Setting, events: Sequence[Event]) -> Audit:
        with closing(Watched(setting)) as database:
            writes = database.writes()
            claimed = {message.split(":")[1] for message in database.messages(f"{setting.run}:%")}
        newest = {_state(event): event.id for event in sorted(events, key=_order)}
        states: dict[State, str] = {}
        changes: Counter[str] = Counter()
        for state, document in writes:
            changes[document["version"]] += states.get(state) != document["version"]
            states[state] = document["version"]
        wrong = [(state, seen) for state, seen in states.items() if newest.get(state) != seen]
        known = claimed if setting.guarded else set(changes)
        return Audit(
            expected=len(events) + len(newest),
            effects=len(known) + len(states),
            duplicates=[event for event, times in changes.items() if times > 1],
            lost=[event.id for event in events if event.id not in known]
            + [f"document of {'/'.join(state)}" for state in newest if state not in states],
            wrong=[f"{'/'.join(state)}: {seen}, the newest is {newest.get(state)}" for state, seen in wrong],
        )


def envelope(payload: dict[str, Any], message: str, published: str | None = None) -> bytes:
    """As Pub/Sub pushes it."""
    data = base64.b64encode(json.dumps(payload).encode()).decode()
    inner = {"messageId": message, "publishTime": published or payload["producedAt"], "data": data}
    return json.dumps({"message": inner, "subscription": "projects/demo/subscriptions/fleet"}).encode()


def _by_hand(database: Watched, event: Event) -> Answer:
    database.write(_state(event), event.body)
    return Answer("executed")


def _state(event: Event) -> State:
    told = event.body
    if "service" in told:
        return "ops_services", document_id(told["env"], told["service"])
    return "ops_ingest_pipelines", document_id(told["env"], told["pipeline"])


def _order(event: Event) -> tuple[str, int]:
    return event.body["producedAt"], event.body.get("sequence", -1)


SYSTEM = FleetStorm()
