"""Which event of a service is the latest: known events, ids, ties, and how long messages are known (mission E4–E7)."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples.fleet.handlers.system_events import SystemEvent
from onceward.stores import MemoryStore
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.clock import FakeClock
from tests.fleet.served_fleet import (
    APPLIED,
    BILLING,
    MISMATCH,
    SAME_EVENT,
    SAME_MESSAGE,
    STALE,
    STORES,
    Served,
    beat,
    envelope,
    fleet,
    served,
    small,
    store_url,
)

__all__ = ["fleet", "small"]  # fixtures, re-exported so that pytest finds them


# ── E4: two tiers ──


@pytest.mark.finding("N51")
@pytest.mark.mission("E4")
def test_a_known_event_changes_nothing_and_other_content_is_a_mismatch(fleet: Served) -> None:
    assert fleet.push(beat(5, eventId="e5"), "m1", "2025-03-01T08:30:00Z") == APPLIED
    before = fleet.services()
    assert (
        fleet.push(beat(5, eventId="e5", publishedAt="2025-03-01T09:00:00Z"), "m2", "2025-03-01T09:00:00Z")
        == SAME_EVENT
    )
    assert fleet.services() == before, "whatever the transport says"
    for number, other in enumerate((beat(5, status="down"), beat(9), beat(5, sequence=3))):
        assert fleet.push({**other, "eventId": "e5"}, f"other {number}") == MISMATCH
    assert fleet.services() == before
    assert fleet.once.counts["mismatch"] == 3


@pytest.mark.finding("N51")
@pytest.mark.mission("E4")
def test_an_event_without_a_time_of_its_own_is_still_the_same_event(small: Served) -> None:
    timeless = {"service": "billing", "env": "prod", "status": "ok"}
    assert small.push({**timeless, "eventId": "e"}, "m1", "2025-03-01T08:30:00Z") == APPLIED
    assert small.push({**timeless, "eventId": "e"}, "m2", "2025-03-01T08:40:00Z") == SAME_EVENT
    assert small.push(timeless, "m3", "2025-03-01T08:50:00Z") == APPLIED
    assert small.services()[BILLING]["eventId"] is None, "without an id and a time, there is no logical tier"
    assert small.push(timeless, "m4", "2025-03-01T08:51:00Z") == APPLIED


@pytest.mark.mission("E4")
def test_an_event_without_an_id_is_known_by_what_identifies_it(fleet: Served) -> None:
    assert fleet.push(beat(5, version="1"), "m1") == APPLIED
    # of {"producedAt":"2025-03-01T08:00:05Z","region":"","schema":"unknown","service":"billing","type":"system_event"}
    assert fleet.services()[BILLING]["eventId"] == "QXPX5CEBVTRGVQOGMASLNSM6DE2KZMPMH5WD5UWDEMIM6CZNEUMQ"
    assert fleet.known(BILLING, message_id="m1").message_id == "m1", "kept for tracing"
    assert fleet.push(beat(5, version="1"), "m2") == SAME_EVENT
    assert fleet.push(beat(5, version="1", eventId="own"), "m3")[2] == "applied", "its own id makes it another event"
    assert fleet.push(beat(5, version="1", eventId="own"), "m4") == SAME_EVENT
    assert fleet.push(beat(5, version="2"), "m5") == APPLIED, "other content is another event, and the order decides"
    assert fleet.push(beat(5, version="1"), "m6") == SAME_EVENT, "which is known, and not applied again"
    assert fleet.services()[BILLING]["version"] == "2"


@pytest.mark.mission("E4")
@pytest.mark.parametrize(
    ("given", "identity"),
    [
        ({}, {}),
        ({"schemaVersion": "2"}, {"schema": "2"}),
        ({"eventType": "deployment"}, {"type": "deployment"}),
        ({"service": "search"}, {"service": "search"}),
        ({"producedAt": None, "timestamp": "2025-03-01T08:00:07Z"}, {"producedAt": "2025-03-01T08:00:07Z"}),
        ({"timestamp": "2025-03-01T08:00:07Z"}, {}),
        ({"region": "eu"}, {"region": "eu"}),
        ({"status": "down", "version": "9", "sequence": 9, "publishedAt": "2025-03-01T09:00:00Z"}, {}),
    ],
    ids=str,
)
def test_a_derived_key_is_the_hash_of_schema_type_service_time_and_region_and_of_nothing_else(
    given: dict[str, Any], identity: dict[str, str]
) -> None:
    event = msgspec.convert(beat(5, **given), SystemEvent)
    unless_given = {
        "schema": "unknown",
        "type": "system_event",
        "service": "billing",
        "producedAt": "2025-03-01T08:00:05Z",
        "region": "",
    }
    canonical = json.dumps({**unless_given, **identity}, sort_keys=True, separators=(",", ":")).encode()
    expected = base64.b32encode(hashlib.sha256(canonical).digest()).decode()[:52]
    assert event.logical_key(event.service, "system_event") == expected


# ── E5: ids ──


IDS = {
    ("prod", "a", "b"): "prod__a__b",
    ("prod", "a__b", None): "prod__a%5F%5Fb",
    ("prod__a", "b", None): "prod%5F%5Fa__b",
    ("prod_", "a", None): "prod%5F__a",
    ("prod", "_a", None): "prod__%5Fa",
    ("prod", "strategy_engine", None): "prod__strategy_engine",
    ("staging", "a", "b"): "staging__a__b",
    ("prod", "a", None): "prod__a",
}


@pytest.mark.finding("N52")
@pytest.mark.mission("E5")
@pytest.mark.fault("F8")
@pytest.mark.parametrize("kind", STORES)
def test_environments_regions_and_separators_never_collide(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with served(store_url(kind, tmp_path, request), per_region=True) as fleet:
        for number, (env, service, region) in enumerate(IDS):
            event = beat(5, env=env, service=service, region=region, status=f"s{number}", eventId="the same")
            assert fleet.push(event, "the same") == APPLIED
        found = fleet.services()
        assert {one["status"] for one in found.values()} == {f"s{number}" for number in range(len(IDS))}
        assert set(found) == set(IDS.values())
        assert fleet.push(beat(6, env=" PROD ", service="A"), "another") == APPLIED
        assert len(fleet.services()) == len(IDS), "spelled differently, it is still the same"


@pytest.mark.finding("N52")
@pytest.mark.mission("E5")
def test_a_service_has_one_document_for_all_regions_unless_asked_otherwise(small: Served) -> None:
    assert small.push(beat(5, region="eu"), "m5") == APPLIED
    assert small.push(beat(6, region="us"), "m6") == APPLIED
    assert {id: one["region"] for id, one in small.services().items()} == {BILLING: "us"}


@pytest.mark.finding("N52")
def test_the_topic_of_a_document_is_that_of_its_subscription(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path / 'fleet.db'}", topics={"fleet": "ops-events"}) as fleet:
        assert fleet.push(beat(5), "m5") == APPLIED
        assert fleet.services()[BILLING]["source"]["topic"] == "ops-events"
        other = envelope(json.dumps(beat(6)).encode(), "m6").replace(b"subscriptions/fleet", b"subscriptions/other")
        assert fleet.post(other).status_code == 200
        assert fleet.services()[BILLING]["source"]["topic"] == "other", "an unknown subscription is named itself"


# ── E6: which is the latest ──


@pytest.mark.mission("E6")
def test_the_event_time_is_the_best_that_is_known(small: Served) -> None:
    times = {
        "producedAt": "2025-03-01T08:00:01Z",
        "publishedAt": "2025-03-01T08:00:02Z",
        "timestamp": "2025-03-01T08:00:03Z",
    }
    published = "2025-03-01T08:00:04Z"
    for left in range(len(times), -1, -1):
        known = dict(list(times.items())[len(times) - left :])
        event = beat(0, service=f"with {left}", **{**dict.fromkeys(times), **known})
        assert small.push(event, f"m {left}", published) == APPLIED
        assert small.services()[f"prod__with {left}"]["updatedAt"] == next(iter(known.values()), published)


@pytest.mark.mission("E6")
def test_nothing_older_than_the_last_reported_heartbeat_is_applied(small: Served) -> None:
    """An event is stale if it is older than the later one of `updatedAt` and `lastHeartbeatAt`."""
    assert small.push(beat(10, lastHeartbeatAt="2025-03-01T08:00:30Z"), "m1") == APPLIED
    assert small.push(beat(20, status="down"), "m2") == STALE
    assert small.push(beat(31, status="down"), "m3") == APPLIED


@pytest.mark.mission("E6")
def test_ties_are_decided_the_same_way_whatever_the_arrival_order(small: Served) -> None:
    """By the sequence, then the transport's time, then its id; a missing sequence is the lowest."""
    tied: list[tuple[str, int | None, int]] = [("d", None, 9), ("c", 1, 8), ("b", 2, 5), ("a", 2, 6), ("z", 2, 6)]
    for life, order in enumerate(itertools.islice(itertools.permutations(tied), 0, None, 7)):
        for id, sequence, minute in order:
            event = beat(5, service=f"s{life}", status=id, sequence=sequence, eventId=id)
            assert small.push(event, id, f"2025-03-01T08:0{minute}:00Z")[0] == 200
    assert {one["status"] for one in small.services().values()} == {"z"}


@pytest.mark.mission("E6")
def test_a_producer_whose_clock_is_wrong_does_not_block_its_service(small: Served) -> None:
    assert small.push(beat(5), "m5") == APPLIED
    assert small.push(beat(5, producedAt="2999-01-01T00:00:00Z", status="down"), "future")[0] == 503
    assert small.push(beat(6, status="degraded"), "m6") == APPLIED
    assert small.services()[BILLING]["status"] == "degraded"


# ── E7: dedupe records expire ──


@pytest.mark.mission("E7")
def test_messages_are_forgotten_after_seven_days_and_the_file_stops_growing(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "fleet.db"

    def marks() -> int:
        with closing(sqlite3.connect(path)) as file:
            [(number,)] = file.execute("SELECT count(*) FROM onceward_marks").fetchall()
        return int(number)

    with served(SQLiteStore(path, clock=clock)) as fleet:
        for number in range(10):
            fleet.push(beat(number), f"m{number}")
        assert marks() == 20, "the message and the event of each"
        clock.advance("6d")
        assert fleet.push(beat(9), "m9") == SAME_MESSAGE
        clock.advance("1d")
        assert fleet.known(BILLING, message_id="m9") is None
        assert fleet.push(beat(8), "m8") == STALE, "the mark is forgotten, but the state is still newer"
        for number in range(10):
            fleet.push(beat(number, service="other"), f"n{number}")
        assert marks() <= 22
        assert fleet.services()[BILLING]["updatedAt"] == "2025-03-01T08:00:09Z", "states never expire"


@pytest.mark.mission("E7")
def test_the_window_can_be_chosen(clock: FakeClock) -> None:
    with served(MemoryStore(clock=clock), keep="1h") as fleet:
        assert fleet.push(beat(1), "m1") == APPLIED
        mark = fleet.known(BILLING, message_id="m1")
        assert mark.expires_at - mark.created_at == timedelta(hours=1)
