"""`POST /pubsub/push` into the newest-wins states: the fifth seed, end to end over real HTTP."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from examples.fleet.endpoint import Fleet
from examples.fleet.message import Message as FleetMessage
from examples.fleet.message import event_id, ordering, service_id
from examples.fleet.traffic import delivered, history, truth
from onceward import Once, Ordering, Outcome, State
from onceward.http.push import AsyncPubSubPush, Message
from tests.endpoints.stage import asgi_served, enveloped, pubsub_of, push, wsgi_served
from tests.faces import Face

ROOT = Path(__file__).resolve().parents[2]
BEAT = {"service": "billing", "env": "prod", "status": "ok"}


def beat(second: int, id: str, **payload: Any) -> Any:
    return push({**BEAT, "producedAt": f"2025-03-01T08:00:{second:02}Z", **payload}, id)


def place(message: Message[Any]) -> Ordering:
    return Ordering(message.payload["producedAt"], message.payload.get("sequence"), message.published_at, message.id)


@pytest.mark.mission("E1", "E2", "E3", "E4")
def test_the_answers_with_both_tiers_of_dedupe(face: Face) -> None:
    stand = pubsub_of(face, "ops_dedupe")
    services = face.once.state("ops_services")

    @stand.on({"service", "status"}, claim=False)
    def heartbeat(message: Message[Any]) -> Outcome[Any]:
        call = services.apply(
            message.payload["service"], place(message), message.payload["status"], event_id=event_id(message.payload)
        )
        outcome: Outcome[Any] = face._wait(call)
        return outcome

    def told(request: Any) -> tuple[int, bool, str]:
        status, body = stand.post(request)
        return status, body["applied"], body["reason"]

    assert told(beat(5, "m5")) == (200, True, "applied")
    assert told(beat(5, "m5")) == (200, False, "duplicate_message_noop")
    assert told(beat(4, "m4")) == (200, False, "stale_event_ignored")
    assert told(beat(4, "m4")) == (200, False, "duplicate_message_noop")
    assert told(beat(5, "m6")) == (200, False, "duplicate_event_noop")
    assert told(beat(5, "m5", status="down")) == (200, False, "mismatch")
    assert face._wait(services.get("billing")) == "ok"
    assert (face.once.counts["applied"], face.once.counts["stale"], face.once.counts["skipped"]) == (1, 1, 3)


@pytest.mark.mission("E1")
def test_an_event_that_can_never_be_applied_is_recorded_and_one_of_the_future_is_not_acknowledged(face: Face) -> None:
    stand = pubsub_of(face, "ops_dedupe")
    services = face.once.state("ops_services")

    @stand.on({"service", "status"}, claim=False)
    def heartbeat(message: Message[Any]) -> Outcome[Any]:
        outcome: Outcome[Any] = face._wait(services.apply("billing", place(message), message.payload["status"]))
        return outcome

    bad = push({**BEAT, "producedAt": "yesterday"}, "m1")
    assert [stand.send(bad).status for _ in range(2)] == [204, 204]
    record = face.read("m1", name="ops_dedupe")
    assert (record.state, record.record.final) == (State.FAILED, True)
    assert record.error.startswith("Rejected: unusable_data")
    future = stand.send(push({**BEAT, "producedAt": "2999-01-01T00:00:00Z"}, "m2"))
    assert (future.status, json.loads(future.body)["code"]) == (503, "future_event_parked")
    with face.store_trouble("keep_newest"):
        assert stand.send(beat(5, "m5")).status == 503
    assert stand.post(beat(5, "m5"))[0] == 200


def test_a_handler_without_a_claim_fails_and_then_succeeds(face: Face) -> None:
    stand = pubsub_of(face, "ops_dedupe")
    services = face.once.state("ops_services")
    tries: list[int] = []

    @stand.on(claim=False)
    def heartbeat(message: Message[Any]) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("not now")
        return face._wait(services.apply("billing", place(message), "ok")) if len(tries) == 2 else "no outcome"

    assert [stand.send(beat(5, "m5")).status for _ in range(2)] == [500, 200]
    assert [(event.key, event.error) for event in face.told("failed")] == [("m5", "ConnectionError")]
    with pytest.raises(Exception, match="not an Outcome"):
        stand.send(beat(6, "m6"))


def as_push(message: FleetMessage) -> bytes:
    return enveloped(message.payload, message.id, publishTime=message.published_at)


@pytest.mark.mission("E1", "E2", "E3", "E5", "E6")
def test_a_fleet_over_http_ends_in_the_table_that_somebody_has_who_saw_everything_in_order(tmp_path: Path) -> None:
    """One transaction claims the message and writes the row. Several threads of a real server, events in any order."""
    dice = Random(3)
    messages = history(60, dice)
    traffic = delivered(messages, dice)
    path = tmp_path / "fleet.db"
    with closing(Fleet(path)) as fleet, wsgi_served(fleet.push) as url, httpx.Client() as http:

        def deliver(message: FleetMessage) -> str:
            answer = http.post(f"{url}/pubsub/push", content=as_push(message)).raise_for_status()
            return str(answer.json()["reason"])

        with ThreadPoolExecutor(4) as crew:
            reasons = list(crew.map(deliver, traffic))
        assert http.post(f"{url}/pubsub/push", content=enveloped({"weather": "rain"}, "w1")).status_code == 204
        assert http.post(f"{url}/pubsub/push", content=b"{}").status_code == 400
        assert fleet.once.read("w1", name="ops_dedupe").state is State.FAILED  # type: ignore[union-attr]
    assert set(reasons) <= {"applied", "stale_event_ignored", "duplicate_message_noop", "duplicate_event_noop"}
    with closing(sqlite3.connect(path)) as table:
        seen = dict(table.execute("SELECT serviceId, status FROM ops_services"))
    assert seen == {service_id(*service): status for service, status in truth(messages).items()}


def test_the_example_serves_what_it_says(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.fleet.endpoint", "--port", "0", "--file", str(tmp_path / "fleet.db")]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            method, url = server.stdout.readline().split()
            [message] = history(1, Random(1))
            answer = httpx.request(method, url, content=as_push(message))
            assert answer.json() == {"applied": True, "reason": "applied"}
        finally:
            server.kill()


@pytest.mark.mission("E1", "E3")
def test_the_same_under_uvicorn(tmp_path: Path) -> None:
    dice = Random(4)
    messages = history(40, dice)
    with Once(f"sqlite:///{tmp_path / 'fleet.db'}?synchronous=NORMAL") as once:
        endpoint = AsyncPubSubPush(once.aio, "ops_dedupe", check=None)
        services = once.aio.state("ops_services")

        @endpoint.on({"service", "status"}, claim=False)
        async def heartbeat(message: Message[Any]) -> Outcome[Any]:
            payload = message.payload
            id = service_id(payload["env"], payload["service"])
            known = FleetMessage(message.id, message.published_at or "", payload)
            return await services.apply(id, ordering(known), payload["status"], event_id=event_id(payload))

        with asgi_served(endpoint) as url, httpx.Client() as http, ThreadPoolExecutor(4) as crew:
            posts = [crew.submit(http.post, url, content=as_push(one)) for one in delivered(messages, dice)]
            assert {post.result(20).status_code for post in posts} == {200}
        state = once.state("ops_services")
        for service, status in truth(messages).items():
            assert state.get(service_id(*service)) == status
