"""The fleet in a storm: workers killed while they apply events, and then the tables read by plain SQL."""

from __future__ import annotations

import asyncio
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from examples.fleet import events as fleet_events
from examples.fleet.app import Fleet
from examples.fleet.events import BaseEvent
from examples.fleet.storm import SYSTEM, published
from onceward import AsyncOnce
from onceward.http.messages import InboundRequest
from onceward.latest import Ordering
from onceward.testing.storm import Plan, StormSetting, storm
from tests.servers.firestore import shared as shared_firestore
from tests.servers.postgres import Postgres, new_database

PLACE = "examples.fleet.storm:SYSTEM"
PLAN = Plan(deliveries=160, workers=3, kills=3)


@pytest.mark.mission("E2", "E3", "E4", "E6")
@pytest.mark.fault("F31")
def test_on_sqlite_every_state_is_the_latest_and_nothing_was_written_twice() -> None:
    run = storm(PLACE, PLAN)
    assert run.audit.passed, run.audit
    assert (run.audit.expected, run.score.killed) == (run.audit.effects, 3)
    assert min(run.score.executed, run.score.replayed, run.score.stale) > 0, run.score


@pytest.mark.mission("E2", "E3", "E4", "E6")
@pytest.mark.fault("F31")
def test_the_same_on_postgresql(postgres: Postgres) -> None:
    run = storm(PLACE, replace(PLAN, pauses=1, store=new_database(postgres, "fleet_storm")))
    assert run.audit.passed, run.audit
    assert (run.audit.expected, run.score.killed, run.score.paused) == (run.audit.effects, 3, 1)


@pytest.mark.finding("N52")
@pytest.mark.mission("E2", "E4", "E6")
def test_the_same_on_firestore() -> None:
    shared_firestore()
    plan = Plan(deliveries=40, workers=2, kills=1, store="firestore://onceward-test/fleet")
    run = storm(PLACE, plan)
    assert run.audit.passed, run.audit
    assert (run.audit.expected, run.score.killed) == (run.audit.effects, 1)


def test_without_the_guard_old_events_are_written_over_new_ones() -> None:
    run = storm(PLACE, replace(PLAN, kills=0, guarded=False))
    assert run.audit.duplicates, "an event was the state, was followed by another, and came back"
    assert run.audit.wrong, "and some of these remained"


def test_the_audit_notices_a_state_that_is_missing(tmp_path: Path) -> None:
    """The audit can fail: nothing was delivered, so every state is missing."""
    setting = StormSetting(folder=str(tmp_path), run="r1")
    with SYSTEM.open(setting):
        events = list(islice(SYSTEM.events(Random(1)), 20))
        audit = SYSTEM.audit(setting, events)
    assert {event.id for event in events} < set(audit.lost)
    assert "document of env prod/service billing" in audit.lost


NUMBERS = count()
BROKEN: dict[str, tuple[Any, str, Any]] = {
    "as it is": (fleet_events, "SEPARATOR", "__"),
    "no sequence": (fleet_events, "Ordering", lambda at, _, published, name: Ordering(at, None, published, name)),
    "the time of Pub/Sub": (BaseEvent, "happened", lambda _self, published: published),
    "no logical tier": (BaseEvent, "logical_key", lambda *_: f"{next(NUMBERS)}"),
    "ids just joined": (fleet_events, "document_id", lambda *parts: "__".join(filter(None, parts))),
    "ids without the environment": (fleet_events, "document_id", lambda _env, *parts: "__".join(filter(None, parts))),
}


async def pushed(url: str, deliveries: list[bytes]) -> None:
    async with AsyncOnce(url, app="fleet-r1") as once:
        fleet = Fleet(once, per_region=True)
        for body in deliveries:
            assert (await fleet.respond(InboundRequest("POST", {}, body, path="/pubsub/push"))).status == 200


@pytest.mark.mission("E4", "E5", "E6")
@pytest.mark.parametrize("how", BROKEN)
def test_the_audit_sees_each_way_to_break_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(*BROKEN[how])
    setting = StormSetting(folder=str(tmp_path), run="r1")
    events = list(islice(SYSTEM.events(Random(1)), 90))
    deliveries = [published(event, "r1", copy) for event in events for copy in (0, 1)]
    Random(2).shuffle(deliveries)
    with SYSTEM.open(setting):
        asyncio.run(pushed(f"sqlite:///{tmp_path}/fleet.db", deliveries))
        assert SYSTEM.audit(setting, events).passed is (how == "as it is")
