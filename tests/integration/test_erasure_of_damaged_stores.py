"""Erase from a store with invalid content: it must not prevent the erasure of the rest."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onceward.errors import RecordBroken, StoreBroken
from onceward.testing import FakeClock
from tests.clients import Backend, Mode, SyncClient, make_backend
from tests.firestore_backends import firestore_client
from tests.servers.redis import shared

DAMAGED = b"\xff jane@example.com \xff"


@pytest.fixture(params=["valkey"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    return make_backend(request, tmp_path, clock)


@pytest.fixture(params=["blocking"] if "ONCEWARD_TEST_BACKENDS" not in os.environ else ["blocking", "async"])
def mode(request: pytest.FixtureRequest) -> Mode:
    chosen: Mode = request.param
    return chosen


@pytest.fixture
def server() -> Any:
    import redis

    with redis.Redis(port=shared().port) as found:
        yield found


def name_of(client: SyncClient, rest: str) -> bytes:
    return f"{{clients/{client.backend.path.parent.name}}}:{rest}".encode()


def forget_one(client: SyncClient, key: str) -> None:
    with client.claim(key, name="mail"):
        pass
    client.forget(key, name="mail", why=f"a request of {key}")


@pytest.mark.finding("N28")
@pytest.mark.parametrize("damaged", [DAMAGED, b"jane", DAMAGED * 4])
def test_an_erasure_overwrites_audit_entries_with_invalid_content(
    client: SyncClient, server: Any, damaged: bytes
) -> None:
    audit = name_of(client, "audit")
    for key in ("jane:1", "john:1", "jane:2"):
        forget_one(client, key)
    server.hset(audit, "2", damaged)
    done = client.wait(client.once.erase(prefix="jane:", dry_run=False))
    assert (done.records, done.audit_entries) == (2, 3)
    assert b"jane" not in b"".join(server.hvals(audit))
    assert [one.verb for one in client.audit()] == ["erase", "forget", "unreadable", "forget"]
    assert client.wait(client.once.erase(prefix="jane:", dry_run=False)).audit_entries == 0


@pytest.mark.finding("N28")
@pytest.mark.parametrize("damaged", [DAMAGED, b"jane", DAMAGED * 4])
def test_an_audit_entry_with_invalid_content_does_not_hide_others(
    client: SyncClient, server: Any, damaged: bytes
) -> None:
    forget_one(client, "jane:1")
    forget_one(client, "john:1")
    server.hset(name_of(client, "audit"), "1", damaged)
    latest, unreadable = client.audit()
    assert (latest.verb, latest.key) == ("forget", "john:1")
    assert (unreadable.verb, unreadable.key, unreadable.who) == ("unreadable", "", "")
    assert [one.key for one in client.audit("john:1", name="mail")] == ["john:1"]
    client.wait(client.once.purge())


@pytest.mark.finding("N28")
def test_a_latest_state_with_invalid_content_is_kept_and_reported(client: SyncClient, server: Any) -> None:
    client.read("any")  # opens the store
    state = client.once.state("customer")
    for entity in ("jane:1", "jane:2"):
        client.wait(state.apply(entity, datetime(2026, 1, 1, tzinfo=UTC), {"address": entity}))
    damaged = name_of(client, "n:") + b"x" * 32
    server.set(damaged, b"\x01jane")
    assert client.wait(client.once.erase(prefix="jane:")).entities == 2
    done = client.wait(client.once.erase(prefix="jane:", dry_run=False))
    assert (done.entities, done.unreadable) == (2, (f"id:{(b'x' * 32).hex()}",))
    assert server.exists(damaged)


@pytest.mark.finding("N28")
def test_a_record_with_invalid_content_is_kept_and_reported(client: SyncClient, server: Any) -> None:
    with client.claim("jane:1", name="mail"):
        pass
    server.set(name_of(client, "r:") + b"x" * 32, b"\x01jane")
    done = client.wait(client.once.erase(prefix="jane:", dry_run=False))
    assert (done.records, done.unreadable) == (1, (f"id:{(b'x' * 32).hex()}",))


@pytest.mark.finding("N28")
@pytest.mark.parametrize("backend", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("part", "remains"),
    [
        ("find_entities", "latest states"),
        ("delete_entities", "latest states"),
        ("redact_audit", "audit entries"),
        ("delete_free", "records; records kept: 1"),
        ("read_counts", "counters"),
    ],
)
def test_damage_in_one_part_does_not_prevent_the_erasure_of_the_others(
    client: SyncClient, part: str, remains: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_one(client, "jane:1")
    state = client.once.state("customer")
    client.wait(state.apply("jane:1", datetime(2026, 1, 1, tzinfo=UTC), {"address": "jane"}))

    async def damaged(*_: Any, **__: Any) -> Any:
        raise StoreBroken("one row has invalid content")

    monkeypatch.setattr(client.once.store, part, damaged)
    with pytest.raises(
        StoreBroken, match=rf"the erasure is incomplete: one row .*\. Erased keys may remain in: {remains}"
    ):
        client.wait(client.once.erase(scope="default/mail", prefix="jane:", dry_run=False))
    if part != "delete_free":
        assert client.read("jane:1", name="mail") is None
    if part != "redact_audit":
        assert {one.key for one in client.audit()} == {""}
    monkeypatch.undo()
    client.wait(client.once.erase(prefix="jane:", dry_run=False))
    assert client.wait(state.get("jane:1")) is None
    assert "jane" not in repr(client.audit())


NOT_UTF_8 = "CAST(x'6265FF' AS TEXT)"


@pytest.mark.finding("N28")
@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "damage",
    [
        f"UPDATE onceward_audit SET key = {NOT_UTF_8} WHERE key = 'john:1'",
        f"UPDATE onceward_audit SET why = {NOT_UTF_8} WHERE key = 'john:1'",
        f"UPDATE onceward_latest SET entity = {NOT_UTF_8} WHERE entity = 'john:1'",
        f"UPDATE onceward_latest SET scope = {NOT_UTF_8} WHERE entity = 'john:1'",
        f"UPDATE onceward_records SET key = {NOT_UTF_8} WHERE key = 'john:2'",
        f"UPDATE onceward_records SET scope = {NOT_UTF_8} WHERE key = 'john:2'",
        f"UPDATE onceward_records SET error = {NOT_UTF_8} WHERE key = 'john:2'",
    ],
)
def test_text_that_is_not_utf_8_does_not_prevent_an_erasure(client: SyncClient, damage: str) -> None:
    state = client.once.state("customer")
    for owner in ("jane", "john"):
        forget_one(client, f"{owner}:1")
        with client.claim(f"{owner}:2", name="mail"):
            pass
        client.wait(state.apply(f"{owner}:1", datetime(2026, 1, 1, tzinfo=UTC), {"address": owner}))
    with closing(sqlite3.connect(client.backend.path)) as connection, connection:
        assert connection.execute(damage).rowcount == 1
    done = client.wait(client.once.erase(prefix="jane:", dry_run=False))
    assert (done.records, done.entities, done.audit_entries) == (2, 1, 1)
    files = client.backend.path.parent.glob(f"{client.backend.path.name}*")
    assert [one.name for one in files if b"jane" in one.read_bytes()] == []


@pytest.mark.finding("N28")
@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_an_incomplete_erasure_also_says_what_remains_in_the_log(
    client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.client.erasure.DISCARD_TIMEOUT", 0.2)
    forget_one(client, "jane:1")

    async def damaged(*_: Any, **__: Any) -> Any:
        raise StoreBroken("one row has invalid content")

    monkeypatch.setattr(client.once.store, "redact_audit", damaged)
    with closing(sqlite3.connect(client.backend.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM onceward_records").fetchall()
        with pytest.raises(StoreBroken, match=r"may remain in: audit entries; .* still in the write-ahead log"):
            client.wait(client.once.erase(prefix="jane:", dry_run=False))


@pytest.mark.finding("N28")
@pytest.mark.parametrize("backend", ["firestore"], indirect=True)
def test_documents_with_invalid_content_do_not_prevent_an_erasure(client: SyncClient) -> None:
    state = client.once.state("customer")
    for owner in ("jane", "john"):
        forget_one(client, f"{owner}:1")
        client.wait(state.apply(f"{owner}:1", datetime(2026, 1, 1, tzinfo=UTC), {"address": owner}))
    collection = client.once.store.name.rpartition("/")[2]
    audit, states = (firestore_client().collection(f"{collection}_{kind}") for kind in ("audit", "states"))
    [entry] = [one for one in audit.stream() if one.get("key") == "john:1"]
    entry.reference.update({"verb": 5, "why": "as jane wished"})
    [damaged] = [one for one in states.stream() if "john:1" in repr(one.to_dict())]
    damaged.reference.update(dict.fromkeys(set(damaged.to_dict() or ()) - {"id"}, 5))
    with pytest.raises(RecordBroken, match="the audit trail has an entry with invalid content"):
        client.audit()
    assert client.wait(client.once.erase(prefix="jane:")).entities == 1
    done = client.wait(client.once.erase(prefix="jane:", dry_run=False))
    assert (done.records, done.entities, done.audit_entries, len(done.unreadable)) == (1, 1, 2, 1)
    left = [*audit.stream(), *states.stream()]
    assert len(left) == 4
    assert "jane" not in repr([one.to_dict() for one in left])
