"""The fleet example: service health from events that come in any order (the fifth seed, as flows)."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from examples.fleet.consumer import Consumer
from examples.fleet.message import Message, event_id, ordering, service_id
from onceward import Ordering

ROOT = Path(__file__).resolve().parents[2]


def fleet(*arguments: str) -> tuple[int, dict[str, int], str]:
    run = subprocess.run(
        [sys.executable, "-m", "examples.fleet", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    figures = {name: int(number) for name, number in re.findall(r"^  (\w[\w ]*?) +(\d+)$", run.stdout, re.MULTILINE)}
    return run.returncode, figures, run.stdout + run.stderr


@pytest.mark.mission("E2", "E3", "E6")
def test_the_table_says_what_somebody_says_who_saw_everything_in_order() -> None:
    status, figures, said = fleet("--quick")
    assert (status, figures["wrong in the table"]) == (0, 0), said
    assert set(figures) == {
        "applied", "stale_event_ignored", "duplicate_message_noop", "duplicate_event_noop", "wrong in the table"
    }  # fmt: skip
    assert figures["duplicate_message_noop"] >= 100 * 0.9


def test_without_the_guard_the_same_traffic_ends_in_a_wrong_table() -> None:
    status, figures, said = fleet("--quick", "--unguarded")
    assert status == 1, said
    assert figures["wrong in the table"] > 0


def heartbeat(number: int, **payload: Any) -> Message:
    known = {"service": "billing", "env": "prod", "status": "ok", "producedAt": f"2026-03-01T08:00:{number:02}Z"}
    return Message(f"m{number}", f"2026-03-01T08:01:{number:02}Z", {**known, **payload})


@pytest.mark.mission("E3")
def test_the_answers_of_the_push_endpoint(tmp_path: Path) -> None:
    with closing(Consumer(tmp_path / "fleet.db")) as consumer:
        five = heartbeat(5)
        assert consumer.handle(five) == {"applied": True, "reason": "applied"}
        assert consumer.handle(five) == {"applied": False, "reason": "duplicate_message_noop"}
        assert consumer.handle(heartbeat(4)) == {"applied": False, "reason": "stale_event_ignored"}
        assert consumer.handle(heartbeat(4)) == {"applied": False, "reason": "duplicate_message_noop"}
        republished = Message("m6", "2026-03-01T08:02:00Z", five.payload)
        assert consumer.handle(republished) == {"applied": False, "reason": "duplicate_event_noop"}
        assert consumer.once.counts["stale"] == 1


@pytest.mark.mission("E4")
def test_an_event_without_an_id_is_named_by_what_identifies_it() -> None:
    one = event_id(heartbeat(5).payload)
    assert re.fullmatch("[A-Z2-7]{52}", one)
    assert one == event_id(heartbeat(5, status="down", version="2").payload), "what is derived does not count"
    others = [heartbeat(6), heartbeat(5, service="x"), heartbeat(5, region="eu"), heartbeat(5, eventType="x")]
    others += [heartbeat(5, schemaVersion="2"), heartbeat(5, eventId="mine")]
    assert len({one, *(event_id(other.payload) for other in others)}) == 7
    assert event_id(heartbeat(5, eventId="mine").payload) == "mine"


@pytest.mark.mission("E5")
@pytest.mark.fault("F8")
def test_ids_of_services_never_meet() -> None:
    parts = ["a", "a_", "_a", "a__b", "b__c", "_", "__", "%5F", "b", "c", "b_", "_c"]
    ids = {service_id(env, service, region) for env in parts for service in parts for region in ["", *parts]}
    assert len(ids) == len(parts) ** 2 * (len(parts) + 1)
    assert service_id("prod", "strategy-engine", "eu") == "prod__strategy-engine__eu"


@pytest.mark.mission("E6")
def test_the_event_time_is_the_best_that_is_known() -> None:
    message = heartbeat(5, publishedAt="p", timestamp="t", sequence=7)
    assert ordering(message) == Ordering("2026-03-01T08:00:05Z", 7, "2026-03-01T08:01:05Z", "m5")
    for missing, wanted in (("producedAt", "p"), ("publishedAt", "t"), ("timestamp", "2026-03-01T08:01:05Z")):
        message.payload[missing] = ""
        assert ordering(message).event_time == wanted


@pytest.mark.mission("E6")
def test_ties_are_decided_the_same_way_whatever_the_arrival_order(tmp_path: Path) -> None:
    """The same second from two instances: the sequence decides, then the transport's time, then its id."""
    tied = [
        heartbeat(5, status=status, eventId=status, sequence=n) for n, status in ((1, "down"), (2, "ok"), (None, "?"))
    ]
    messages = [Message(f"m{n}", "2026-03-01T08:02:00Z", one.payload) for n, one in enumerate(tied)]
    for life in range(4):
        path = tmp_path / f"{life}.db"
        with closing(Consumer(path)) as consumer:
            for message in Random(life).sample(messages, 3):
                consumer.handle(message)
            [(status,)] = consumer._table.execute("SELECT status FROM ops_services").fetchall()
            assert status == "ok"
