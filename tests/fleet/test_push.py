"""The fleet, end to end: real pushes over HTTP into a real store, and what is stored and answered (mission E1–E3)."""

from __future__ import annotations

import importlib
import pkgutil
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from examples.fleet import handlers
from examples.fleet.app import Fleet
from onceward import Once, RecordState
from onceward.http.push import bearer_token
from tests.fleet.served_fleet import (
    APPLIED,
    BEAT_6,
    BILLING,
    SAME_EVENT,
    SAME_MESSAGE,
    STALE,
    Served,
    beat,
    envelope,
    fleet,
    served,
    small,
    store_url,
)
from tests.servers.postgres import execute, schema_of

__all__ = ["fleet", "small"]  # fixtures, re-exported so that pytest finds them


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
    assert {id: one["messageId"] for id, one in marks.items() if "m5" in id or "e5" in id} == {
        "m5": "m5",
        "prod__e5": "m5",
    }


@pytest.mark.mission("E2", "E7")
@pytest.mark.fault("F43")
def test_on_firestore_a_mark_has_the_servers_time_though_the_clock_of_the_machine_is_wrong(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = store_url("firestore", tmp_path, request)
    from tests.firestore_backends import firestore_client  # it takes a second to import

    right, right_ns, an_hour = time.time, time.time_ns, 3_600
    with served(url) as fleet:
        monkeypatch.setattr(time, "time", lambda: right() + an_hour)
        monkeypatch.setattr(time, "time_ns", lambda: right_ns() + an_hour * 10**9)
        assert fleet.push(beat(5), "m5") == APPLIED
        monkeypatch.undo()
    mark = firestore_client().collection(f"{urlsplit(url).path[1:]}_dedupe").document("m5").get()
    created_at = (mark.to_dict() or {})["createdAt"]
    assert abs(mark.create_time - created_at) < timedelta(minutes=10), "create_time is set by the server"


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
