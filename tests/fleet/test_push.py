"""The fleet, end to end: real pushes over HTTP into a real store, and what is true after them (mission E)."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pkgutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from examples.fleet import handlers
from examples.fleet.app import Fleet
from onceward import Once, RecordState
from onceward.http.push import bearer_token
from onceward.stores import MemoryStore
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.clock import FakeClock
from tests.endpoints.helpers import wait_until
from tests.endpoints.test_oidc import AUDIENCE, EMAIL, KeyServer, token
from tests.fleet.served_fleet import (
    APPLIED,
    MISMATCH,
    SAME_EVENT,
    SAME_MESSAGE,
    STALE,
    STORES,
    Served,
    beat,
    envelope,
    served,
    store_url,
)
from tests.servers.postgres import execute, schema_of
from tests.servers.process import free_port

ROOT = Path(__file__).resolve().parents[2]
BILLING = "prod__billing"
BEAT_6 = "2025-03-01T08:00:06Z"


@pytest.fixture(params=STORES)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    with served(store_url(request.param, tmp_path, request)) as found:
        yield found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Served]:
    with served(f"sqlite:///{tmp_path / 'fleet.db'}?synchronous=NORMAL") as found:
        yield found


# ── E1: the envelope ──


@pytest.mark.mission("E1")
def test_a_push_without_message_id_is_rejected_and_an_unreadable_one_is_delivered_once(fleet: Served) -> None:
    assert fleet.push(beat(1), "m1") == APPLIED
    assert fleet.post(envelope(b"{}", None)).status_code == 400
    assert fleet.post(b"no envelope").status_code == 400
    unreadable = {
        "w1": b'{"weather": "rain"}',
        "w2": b"not JSON",
        "w3": b"[1]",
        "w4": b'{"service": "", "env": "prod"}',
    }
    for id, data in unreadable.items():
        for _ in range(2):
            assert fleet.post(envelope(data, id)).status_code == 204, "no storm of errors"
        entry = fleet.once.read(id, name="ops_dedupe")
        assert entry is not None
        assert entry.state is RecordState.FAILED
    assert fleet.push(beat(2, producedAt="yesterday"), "w5")[0] == 204, "an invalid time can never be applied"
    assert fleet.health()["counts"]["rejected"] == 2 + 2 * len(unreadable) + 1
    assert list(fleet.services()) == [BILLING]


@pytest.mark.mission("E1")
def test_two_shapes_have_two_kinds_of_documents(fleet: Served) -> None:
    assert fleet.push(beat(1), "m1") == APPLIED
    lagging = {
        "pipeline": "billing",
        "env": "prod",
        "status": "degraded",
        "lagSeconds": 12.5,
        "timestamp": "2025-03-01T08:00:01Z",
    }
    assert fleet.push(lagging, "m2") == APPLIED
    assert fleet.push(lagging, "m3") == SAME_EVENT
    health = fleet.health()
    [pipeline] = health["pipelines"]
    assert (pipeline["pipelineId"], pipeline["lagSeconds"], pipeline["status"]) == ("billing", 12.5, "degraded")
    assert [one["serviceId"] for one in health["services"]] == ["billing"]


def unreached(fleet: Fleet) -> set[str]:
    """Return the handler modules that no route leads to."""
    modules = {f"{handlers.__name__}.{one.name}" for one in pkgutil.iter_modules(handlers.__path__)}
    for module in modules:
        importlib.import_module(module)  # a module with a broken reference fails here
    return modules - {handler.__module__ for handler in fleet.push.handlers}


@pytest.mark.mission("E1")
def test_every_module_of_handlers_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Once("memory://") as once:
        fleet = Fleet(once.aio)
        assert unreached(fleet) == set()
        (tmp_path / "orphan.py").write_text("def handle(message): ...\n")
        monkeypatch.setattr(handlers, "__path__", [*handlers.__path__, str(tmp_path)])
        assert unreached(fleet) == {"examples.fleet.handlers.orphan"}, "and the check notices it"
        (tmp_path / "orphan.py").write_text("from examples.fleet.events import SourceContext\n")
        sys.modules.pop("examples.fleet.handlers.orphan")
        with pytest.raises(ImportError, match="SourceContext"):
            unreached(fleet)


@pytest.mark.mission("E1")
def test_a_sender_without_a_token_may_not_push(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path / 'fleet.db'}", check=bearer_token("a long random text")) as fleet:
        assert fleet.push(beat(1), "m1") == (401, None, "refused")
        fleet.http.headers["authorization"] = "Bearer a long random text"
        assert fleet.push(beat(1), "m1") == APPLIED


# ── E2: claim and state in one transaction ──


@pytest.mark.mission("E2")
def test_a_document_has_the_members_that_the_mission_names(fleet: Served) -> None:
    event = beat(5, version="1.2", region="eu", lastHeartbeatAt="2025-03-01T08:00:04Z", eventId="e5", sequence=3)
    assert fleet.push(event, "m5", "2025-03-01T08:00:06Z") == APPLIED
    assert fleet.services() == {
        BILLING: {
            "id": BILLING,
            "serviceId": "billing",
            "env": "prod",
            "region": "eu",
            "status": "ok",
            "version": "1.2",
            "sequence": 3,
            "lastHeartbeatAt": "2025-03-01T08:00:04Z",
            "updatedAt": "2025-03-01T08:00:05Z",
            "eventId": "e5",
            "source": {"topic": "fleet", "messageId": "m5", "publishedAt": "2025-03-01T08:00:06Z"},
        }
    }
    for named in ({"message_id": "m5"}, {"event_id": "prod__e5"}):
        mark = fleet.known(BILLING, **named)
        assert mark.message_id == "m5"
        assert mark.expires_at - mark.created_at == timedelta(days=7)
    assert fleet.known(BILLING, message_id="m6") is None


@pytest.mark.mission("E2")
@pytest.mark.parametrize("table", ["onceward_latest", "onceward_marks"])
def test_if_half_of_it_cannot_be_written_nothing_is_and_the_message_comes_again(
    small: Served, tmp_path: Path, table: str
) -> None:
    small.push(beat(1, service="other"), "m0")
    with closing(sqlite3.connect(tmp_path / "fleet.db", timeout=30)) as file:
        file.execute(f"CREATE TRIGGER no BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'not today'); END")
        assert small.push(beat(5), "m5")[0] >= 500
        assert BILLING not in small.services()
        assert small.known(BILLING, message_id="m5") is None
        file.execute("DROP TRIGGER no")
    assert small.push(beat(5), "m5") == APPLIED
    assert BILLING in small.services()


@pytest.mark.mission("E2")
@pytest.mark.parametrize("table", ["onceward_latest", "onceward_marks"])
def test_the_same_on_postgresql(tmp_path: Path, request: pytest.FixtureRequest, table: str) -> None:
    with served(store_url("postgres", tmp_path, request)) as fleet:
        schema = schema_of(tmp_path)
        fleet.push(beat(1, service="other"), "m0")
        say_no = "CREATE OR REPLACE FUNCTION {0}.no() RETURNS trigger AS 'BEGIN RAISE ''no''; END' LANGUAGE plpgsql"
        execute(say_no.format(schema))
        execute(f"CREATE TRIGGER no BEFORE INSERT ON {schema}.{table} FOR EACH ROW EXECUTE FUNCTION {schema}.no()")
        try:
            assert fleet.push(beat(5), "m5")[0] >= 500
        finally:
            execute(f"DROP TRIGGER no ON {schema}.{table}")
        assert BILLING not in fleet.services()
        assert fleet.known(BILLING, message_id="m5") is None
        assert fleet.push(beat(5), "m5") == APPLIED


@pytest.mark.finding("N52")
@pytest.mark.mission("E2", "E5")
def test_on_firestore_the_console_shows_the_documents_of_the_mission(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Read by the official client, without Onceward."""
    url = store_url("firestore", tmp_path, request)
    from tests.firestore_backends import firestore_client  # it takes a second to import

    with served(url) as fleet:
        assert fleet.push(beat(5, version="1.2", region="eu", eventId="e5", sequence=7), "m5") == APPLIED
        lag = {"pipeline": "nightly_load", "env": "prod", "status": "ok", "lagSeconds": 1, "timestamp": BEAT_6}
        assert fleet.push(lag, "m6") == APPLIED
        [pipeline] = fleet.health()["pipelines"]
    prefix = urlsplit(url).path[1:]
    documents = {
        kind: {one.id: one.to_dict() or {} for one in firestore_client().collection(f"{prefix}_{kind}").stream()}
        for kind in ("services", "ingest_pipelines", "dedupe")
    }
    assert list(documents["services"]) == ["prod__billing"]
    assert {name: value for name, value in documents["services"][BILLING].items() if name != "onceward"} == {
        "serviceId": "billing",
        "env": "prod",
        "region": "eu",
        "status": "ok",
        "version": "1.2",
        "sequence": 7,
        "lastHeartbeatAt": "2025-03-01T08:00:05Z",
        "updatedAt": "2025-03-01T08:00:05Z",
        "eventId": "e5",
        "source": {"topic": "fleet", "messageId": "m5", "publishedAt": "2025-03-01T08:30:00Z"},
        "expireAt": None,
    }
    assert list(documents["ingest_pipelines"]) == ["prod__nightly_load"], "pipelines have their own collection"
    marks = documents["dedupe"]
    assert set(marks) == {"m5", "prod__e5", "m6", f"prod__{pipeline['eventId']}"}, "messages and events by their ids"
    assert all(one["expireAt"] - one["createdAt"] == timedelta(days=7) for one in marks.values())
    assert marks["prod__e5"]["messageId"] == "m5", "kept for tracing"


# ── E3: what is answered, and counted ──


@pytest.mark.mission("E2", "E3")
def test_the_answers(fleet: Served) -> None:
    assert fleet.push(beat(5), "m5") == APPLIED
    assert fleet.push(beat(5), "m5") == SAME_MESSAGE
    assert fleet.push(beat(4, status="down"), "m4") == STALE
    assert fleet.push(beat(4, status="down"), "m4") == SAME_MESSAGE, "a stale event claims its message, too"
    assert fleet.push(beat(5), "m6") == SAME_EVENT, "published again"
    assert fleet.services()[BILLING]["status"] == "ok"
    assert fleet.health()["counts"] == {"applied": 1, "replayed": 3, "stale": 1, "rejected": 0}


@pytest.mark.mission("E3")
def test_many_concurrent_duplicates_are_applied_once(fleet: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda _: fleet.push(beat(5), "m5"), range(16)))
    assert sorted(said) == sorted([APPLIED, *[SAME_MESSAGE] * 15])


@pytest.mark.mission("E3")
def test_a_spike_of_stale_events_raises_an_alert(small: Served) -> None:
    assert small.push(beat(59), "new") == APPLIED
    assert small.health()["alerts"] == []
    for number in range(21):
        assert small.push(beat(number), f"old {number}") == STALE
    [alert] = small.health()["alerts"]
    assert alert.startswith("stale_spike in fleet/ops_services: 21 stale events in an hour")


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
def test_environments_regions_and_separators_never_meet(
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


# ── E7: dedupe records expire ──


@pytest.mark.mission("E7")
def test_messages_are_forgotten_after_seven_days_and_the_file_does_not_only_grow(
    tmp_path: Path, clock: FakeClock
) -> None:
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
def test_the_span_can_be_chosen(clock: FakeClock) -> None:
    with served(MemoryStore(clock=clock), keep="1h") as fleet:
        assert fleet.push(beat(1), "m1") == APPLIED
        mark = fleet.known(BILLING, message_id="m1")
        assert mark.expires_at - mark.created_at == timedelta(hours=1)


# ── as a program ──


@pytest.mark.mission("E1")
def test_one_command_serves_all_of_it_and_a_restart_forgets_nothing(tmp_path: Path) -> None:
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    reasons = []
    for _ in range(2):
        port = free_port()
        command = [sys.executable, "-m", "examples.fleet", "serve", "--port", str(port)]
        command += ["--store", f"sqlite:///{tmp_path / 'fleet.db'}", "--token", "secret"]
        with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as server:
            try:
                url = f"http://127.0.0.1:{port}"
                wait_until(partial(_answers, url), "the server answers")
                body = envelope(b'{"service": "billing", "env": "prod", "status": "ok"}', "m1")
                assert httpx.post(f"{url}/pubsub/push", content=body).status_code == 401
                reasons.append(httpx.post(f"{url}/pubsub/push?token=secret", content=body).json()["reason"])
            finally:
                server.kill()
    assert reasons == ["applied", "duplicate_message_noop"]


@pytest.mark.mission("E1")
def test_the_command_checks_signed_tokens(tmp_path: Path) -> None:
    keys, port = KeyServer(), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "examples.fleet", "serve", "--port", str(port)]
    command += ["--store", f"sqlite:///{tmp_path / 'fleet.db'}", "--oidc-audience", AUDIENCE, "--oidc-email", EMAIL]
    command += ["--oidc-keys", keys.url]
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(partial(_answers, url), "the server answers")
            body = envelope(json.dumps(beat(5)).encode(), "m1")
            statuses = [
                httpx.post(f"{url}/pubsub/push", content=body, headers=headers).status_code
                for headers in ({}, {"authorization": f"Bearer {token(email='x@y.z')}"},
                                {"authorization": f"Bearer {token()}"})
            ]  # fmt: skip
        finally:
            server.kill()
            keys.stop()
    assert statuses == [401, 401, 200]


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False
