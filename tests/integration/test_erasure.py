"""Erase by tenant, scope and prefix: nothing that names a key is left, on any store."""

from __future__ import annotations

import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.client.erasure import Erased
from onceward.protocol.audit import AuditFilter
from onceward.protocol.counters import HOUR, CounterRow
from onceward.protocol.message_note import MESSAGE_SUFFIX
from onceward.protocol.ports import Filter, Store
from onceward.testing import FakeClock
from tests.clients import Backend, Mode, SyncClient, make_backend

EVERYWHERE = ["memory", "sqlite", "postgres", "valkey", "firestore"]


@pytest.fixture(params=EVERYWHERE)
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    return make_backend(request, tmp_path, clock)


@pytest.fixture(params=["blocking"] if "ONCEWARD_TEST_BACKENDS" not in os.environ else ["blocking", "async"])
def mode(request: pytest.FixtureRequest) -> Mode:
    chosen: Mode = request.param
    return chosen


@pytest.fixture
def filled(client: SyncClient) -> SyncClient:
    """Two tenants with records, notes, a failure, audit entries, latest states and counters."""
    client.read("any")  # opens the store
    for tenant in ("acme", "umbrella"):
        of_tenant = client.another(tenant=tenant)
        for key in ("jane@example.com", "john@example.com"):
            with of_tenant.claim(key, name="mail", note={"address": key}):
                pass
        with of_tenant.claim("forgotten@example.com", name="mail"):
            pass
        of_tenant.forget("forgotten@example.com", name="mail", why=f"{tenant} asked for it")
        state = of_tenant.once.state("customer")
        of_tenant.wait(state.apply("jane@example.com", datetime(2026, 1, 1, tzinfo=UTC), {"address": "jane"}))
        counts = {f"default/mail@{tenant}": {"executed": 2}, "default/other": {"executed": 1}}
        row = CounterRow(tenant.encode(), client.clock.now() // HOUR, 1, counts)
        of_tenant.drive(of_tenant.once.store.save_counts([row], timeout=5))
    return client


def everything(client: SyncClient) -> str:
    """Return a text with everything that the store holds about keys."""
    store: Any = client.once.store

    async def read(store: Store) -> str:
        found: list[Any] = list((await store.scan(Filter(), cursor=None, limit=500, timeout=5)).records)
        found += await store.audit(AuditFilter(), limit=500, timeout=5)
        assert store.latest is not None
        assert store.counters is not None
        for scope in ("default/customer@acme", "default/customer@umbrella"):
            found += (await store.latest.entities(scope, cursor=None, limit=500, timeout=5))[0]
        found += (await store.counters.read_counts(0, timeout=5)).counter_rows
        return repr(found)

    text: str = client.drive(read(store))
    return text


def erase(client: SyncClient, **what: Any) -> Erased:
    erased: Erased = client.wait(client.once.erase(**what))
    return erased


@pytest.mark.finding("N28")
def test_a_preview_deletes_nothing(filled: SyncClient) -> None:
    before = everything(filled)
    found = erase(filled, tenant="acme")
    assert (found.done, found.records, found.entities) == (False, 3, 1)
    assert (found.audit_entries, found.counter_rows) == (1, 1)
    assert found.scopes == {"default/mail@acme": 3}
    assert set(found.sample) == {"jane@example.com", "john@example.com", "forgotten@example.com"}
    assert everything(filled) == before


@pytest.mark.finding("N28")
def test_nothing_of_an_erased_tenant_is_left_and_nothing_of_another_is_lost(filled: SyncClient) -> None:
    done = erase(filled, tenant="acme", dry_run=False, why="ticket 4711")
    assert (done.done, done.records, done.kept, done.entities, done.audit_entries) == (True, 3, 0, 1, 1)
    assert done.counter_rows == 1
    left = everything(filled)
    assert "acme" not in left.replace("b'acme'", ""), "the process of the planted row is not a name"
    assert left.count("jane@example.com") >= 2
    assert "umbrella asked for it" in left
    latest, *earlier = filled.audit()
    assert (latest.verb, latest.why, latest.detail, latest.count) == ("erase", "ticket 4711", "by tenant", 3)
    assert (latest.key, latest.scope, latest.id) == ("", "", b"")
    assert {one.verb for one in earlier} == {"forget"}, "who changed something stays"
    totals = filled.wait(filled.once.stats())
    assert totals.total("executed", "default/mail") == 2
    assert totals.total("executed", "default/mail@umbrella") == 2


@pytest.mark.finding("N28")
def test_an_erased_key_runs_as_new_work_with_a_larger_token(client: SyncClient) -> None:
    def token() -> int:
        with client.claim("jane", name="mail") as claim:
            return int(claim.token)

    before = token()
    assert erase(client, prefix="jane", dry_run=False).records == 1
    client.clock.advance("1s")
    assert token() > before


@pytest.mark.finding("N28")
def test_a_prefix_inside_a_scope_erases_only_keys_that_begin_with_it(client: SyncClient) -> None:
    for name in ("mail", "pdf"):
        for key in ("customer:42:a", "customer:42:b", "customer:421:a", "a customer:42:"):
            with client.claim(key, name=name):
                pass
    assert erase(client, scope="default/mail", prefix="customer:42:", dry_run=False).records == 2
    assert client.read("customer:42:a", name="mail") is None
    assert client.read("customer:421:a", name="mail") is not None
    assert client.read("a customer:42:", name="mail") is not None
    assert client.read("customer:42:a", name="pdf") is not None


@pytest.mark.finding("N28")
def test_erasing_a_key_keeps_longer_keys(client: SyncClient) -> None:
    state = client.once.state("customer")
    for key in ("mail:jane", "mail:janet"):
        with client.claim(key, name="mail"):
            pass
        client.forget(key, name="mail", why="a test")
        with client.claim(key, name="mail"):
            pass
        client.wait(state.apply(key, datetime(2026, 1, 1, tzinfo=UTC), {"key": key}))
    preview, done = erase(client, key="mail:jane"), erase(client, key="mail:jane", dry_run=False)
    assert (preview.records, preview.entities, preview.audit_entries) == (1, 1, 1)
    assert (done.records, done.entities, done.audit_entries) == (1, 1, 1)
    assert client.read("mail:janet", name="mail") is not None
    assert client.wait(state.get("mail:janet")) == {"key": "mail:janet"}
    assert {one.key for one in client.audit()} == {"", "mail:janet"}


@pytest.mark.finding("N28")
def test_a_prefix_erases_only_the_latest_states_whose_entity_begins_with_it(client: SyncClient) -> None:
    client.read("any")  # opens the store
    state = client.once.state("customer")
    for entity in ("jane@example.com", "janet@example.com", "john@example.com"):
        client.wait(state.apply(entity, datetime(2026, 1, 1, tzinfo=UTC), {"address": entity}))
    assert erase(client, prefix="jane@").entities == 1
    assert erase(client, prefix="jane@", dry_run=False).entities == 1
    left = [client.wait(state.get(one)) for one in ("jane@example.com", "janet@example.com", "john@example.com")]
    assert left == [None, {"address": "janet@example.com"}, {"address": "john@example.com"}]


@pytest.mark.finding("N28")
@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_the_file_of_sqlite_does_not_contain_what_was_erased(client: SyncClient) -> None:
    with client.claim("jane:1", name="mail", note={"address": "street of jane"}) as claim:
        claim.complete("letter to jane")
    client.forget("jane:1", name="mail", why="a request of jane")
    with client.claim("jane:2", name="mail", note={"address": "street of jane"}) as claim:
        claim.complete("letter to jane")
    client.wait(client.once.state("customer").apply("jane:3", datetime(2026, 1, 1, tzinfo=UTC), {"name": "jane"}))
    erase(client, prefix="jane:", dry_run=False)
    client.close()
    files = list(client.backend.path.parent.glob(f"{client.backend.path.name}*"))
    assert client.backend.path in files
    assert [one.name for one in files if b"jane" in one.read_bytes()] == []


def files_with_jane(client: SyncClient) -> list[str]:
    files = list(client.backend.path.parent.glob(f"{client.backend.path.name}*"))
    assert client.backend.path in files
    return [one.name for one in files if b"jane" in one.read_bytes()]


def fill_with_jane(client: SyncClient) -> None:
    for number in range(50):
        for owner in ("jane", "john"):
            with client.claim(f"{owner}:{number}", name="mail", note={"address": f"street of {owner}"}) as claim:
                claim.complete(f"letter to {owner} " * number * 20)  # several pages
    for number in range(10):
        client.forget(f"jane:{number}", name="mail", why="a request of jane")
    state = client.once.state("customer")
    client.wait(state.apply("jane:3", datetime(2026, 1, 1, tzinfo=UTC), {"name": "jane" * 2000}))


@pytest.mark.finding("N28")
@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_no_file_of_an_open_sqlite_store_contains_what_was_erased(client: SyncClient) -> None:
    fill_with_jane(client)
    assert len(files_with_jane(client)) >= 1
    assert erase(client, prefix="jane:", dry_run=False).remains == ""
    assert files_with_jane(client) == []
    erase(client, scope="default/mail", dry_run=False)
    assert not any(b"letter to" in one.read_bytes() for one in client.backend.path.parent.glob("once.db*"))


@pytest.mark.finding("N28")
@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_an_erasure_says_if_the_log_of_sqlite_is_in_use_and_can_be_repeated(
    client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.client.erasure.DISCARD_TIMEOUT", 0.2)
    fill_with_jane(client)
    reader = sqlite3.connect(client.backend.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM onceward_records").fetchall()
    assert "still in the write-ahead log" in erase(client, prefix="jane:", dry_run=False).remains
    assert files_with_jane(client) != []
    reader.close()
    again = erase(client, prefix="jane:", dry_run=False)
    assert (again.records, again.remains) == (0, "")
    assert files_with_jane(client) == []


@pytest.mark.finding("N28")
@pytest.mark.parametrize("tenant", [None, "acme"])
def test_the_messages_that_a_scope_has_parked_are_erased_with_it(client: SyncClient, tenant: str | None) -> None:
    for name in ("mail", f"mail{MESSAGE_SUFFIX}", f"mail{MESSAGE_SUFFIX}{MESSAGE_SUFFIX}", f"post{MESSAGE_SUFFIX}"):
        for owner in ("acme", "umbrella", None):
            with client.another(tenant=owner).claim("jane", name=name):
                pass
    done = erase(client, scope="default/mail", tenant=tenant, dry_run=False)
    end = "" if tenant is None else f"@{tenant}"
    assert done.scopes == {f"default/mail{end}": 1, f"default/mail{MESSAGE_SUFFIX}{end}": 1}


@pytest.mark.finding("N28")
@pytest.mark.parametrize("backend", EVERYWHERE[:4], indirect=True)
def test_many_pages_are_erased_completely(client: SyncClient) -> None:
    def send(n: int) -> None: ...

    client.map(send, range(450), key="mail:{n}", name="mail")
    with client.claim("other", name="mail"):
        pass
    done = erase(client, prefix="mail:", dry_run=False)
    assert (done.records, done.kept, len(done.sample)) == (450, 0, 10)
    assert erase(client, scope="default/mail").records == 1


@pytest.mark.finding("N28")
def test_a_key_that_a_worker_is_processing_is_kept_and_counted(client: SyncClient) -> None:
    owner = client.silent_owner("jane", name="mail", lease="60s")
    done = erase(client, scope="default/mail", dry_run=False)
    assert (done.records, done.kept) == (0, 1)
    owner.complete()
    assert erase(client, scope="default/mail", dry_run=False).records == 1


@pytest.mark.finding("N28")
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({}, "nothing was selected"),
        ({"tenant": ""}, "tenant to erase must be a text"),
        ({"scope": "mail"}, "is not a scope"),
        ({"scope": "shop/mail@acme", "tenant": "acme"}, "already names a tenant"),
        ({"prefix": "x" * 192}, "too long"),
        ({"key": "x" * 201}, "displayed truncated"),
        ({"key": "x", "prefix": "x"}, "both a key and a key prefix"),
    ],
)
@pytest.mark.parametrize("backend", ["memory"], indirect=True)
def test_an_erasure_that_selects_nothing_sensible_is_refused(
    client: SyncClient, what: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        erase(client, **what)
