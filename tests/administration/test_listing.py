"""Lists of keys on every store: each filter returns what matches, newest first, page by page, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward import ConfigurationError, RecordState
from onceward.administration import ListingFilter, Visible
from onceward.administration.listing import encode_cursor
from onceward.protocol.audit import AuditFilter
from onceward.protocol.ports import Filter
from onceward.runtime.threads import run
from onceward.testing import FakeClock
from tests.administration.shop import admin_of, fill
from tests.clients import Backend, SyncClient, make_backend

KINDS = ["memory", "sqlite", "postgres", "valkey", "firestore"]
FAILED, PARKED, COMPLETED = RecordState.FAILED, RecordState.PARKED, RecordState.COMPLETED


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    return make_backend(request, tmp_path, clock)


@pytest.fixture
def mode() -> str:
    return "blocking"


FILTERS: dict[str, ListingFilter] = {
    "all": ListingFilter(),
    "failed": ListingFilter(states=(FAILED,)),
    "several unfinished states": ListingFilter(states=(FAILED, PARKED)),
    "with completed": ListingFilter(states=(COMPLETED, PARKED)),
    "an operation of all tenants": ListingFilter(scopes=("default/shared",)),
    "a scope of one tenant": ListingFilter(scopes=("default/shared@acme",), states=(FAILED,)),
    "a tenant": ListingFilter(tenants=("globex",)),
    "no tenant": ListingFilter(tenants=("",), states=(FAILED,)),
    "two tenants": ListingFilter(tenants=("acme", "globex"), prefix="order:"),
    "a prefix": ListingFilter(prefix="order:1"),
    "a note": ListingFilter(note="source=bank"),
    "a part of a note": ListingFilter(note="ban"),
    "old records of two states": ListingFilter(states=(FAILED, PARKED), tenants=("",)),
    "an error": ListingFilter(error_type="KeyError"),
    "nothing": ListingFilter(scopes=("default/other",)),
    "hostile text": ListingFilter(prefix="' OR 1=1 --", note='{"%_', error_type="x'", scopes=("a'b", "{}")),
}


def pages(admin: Any, wanted: ListingFilter, limit: int) -> Iterator[list[Any]]:
    cursor = None
    for _ in range(100):
        page = admin.keys(wanted, cursor=cursor, limit=limit)
        yield page.rows
        cursor = page.cursor
        if cursor is None:
            return
    pytest.fail("the pages never end")


def test_each_filter_returns_what_matches_newest_first(client: SyncClient) -> None:
    fill(client)
    admin = admin_of(client)
    everything = client.drive(client.once.store.scan(Filter(), cursor=None, limit=1000, timeout=30)).records
    for name, wanted in FILTERS.items():
        expected = sorted((one for one in everything if wanted.matches(one)), key=lambda one: -one.token)
        for limit in (2, 100) if client.once.store.listing is not None else (7,):  # the others scan for each page
            rows = [row for page in pages(admin, wanted, limit) for row in page]
            assert [row.id for row in rows] == [one.id.hex() for one in expected], (name, limit)
    assert sum(any(map(wanted.matches, everything)) for wanted in FILTERS.values()) == 14, "two filters match nothing"


def test_an_id_finds_its_record_and_a_time_limits_the_list(client: SyncClient) -> None:
    fill(client)
    admin = admin_of(client)
    [newest, *_] = admin.keys(limit=3).rows
    assert [row.key for row in admin.keys(ListingFilter(id=newest.id)).rows] == [newest.key]
    assert [row.id for row in admin.keys(ListingFilter(id=newest.id[:20].upper())).rows] == [newest.id]
    since = ListingFilter(claimed_since=newest.token)
    before = ListingFilter(claimed_before=newest.token)
    assert [row.id for row in admin.keys(since).rows] == [newest.id]
    assert len(admin.keys(before).rows) == len(admin.keys().rows) - 1
    with pytest.raises(ConfigurationError, match="is not the start of an id"):
        admin.keys(ListingFilter(id="xyz"))
    with pytest.raises(ConfigurationError, match="cursor"):
        admin.keys(cursor="bm90IGEgY3Vyc29y")


def test_the_counts_and_the_oldest_work_of_the_overview(client: SyncClient) -> None:
    fill(client)
    with client.claim("slow:1"):
        client.backend.clock.advance("1s")
        with client.claim("slow:2"):
            seen = admin_of(client).overview()
    assert {state: (one.number, one.more) for state, one in seen.states.items()} == {
        RecordState.PENDING: (2, False), FAILED: (9, False), PARKED: (3, False),
    }  # fmt: skip
    assert seen.oldest_pending.key == "slow:1"
    assert seen.running.number == 2
    assert {one.rule for one in seen.broken} == {"parked"}


def test_a_limited_operator_sees_only_their_tenant(client: SyncClient) -> None:
    fill(client)
    admin = admin_of(client).limited(Visible(tenants=("acme",)))
    assert {row.tenant for row in admin.keys().rows} == {"acme"}
    assert admin.keys(ListingFilter(tenants=("globex",))).rows == []
    assert {row.row.tenant for row in admin.parked().rows} == {"acme"}
    assert {scope for group in admin.failures().groups for scope in group.scopes} == {"default/shared@acme"}
    assert admin.overview().states[FAILED].number == 3
    other = next(row for row in admin_of(client).keys().rows if row.tenant == "globex")
    assert admin.key(other.id) is None
    assert admin.find(other.id) == []


def test_a_search_that_visits_too_many_records_goes_on_with_its_cursor(
    client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    if client.once.store.listing is None or "memory" in client.once.store.name:
        pytest.skip("this store visits all records")
    monkeypatch.setattr("onceward.stores.sql_reading.MAX_VISITED", 4)
    fill(client)
    admin = admin_of(client)
    first = admin.keys(ListingFilter(prefix="order:0"), limit=5)
    assert first.cursor is not None
    assert first.searched_back_to is not None
    for wanted in FILTERS.values():
        records = client.drive(client.once.store.scan(Filter(), cursor=None, limit=1000, timeout=30)).records
        found = [row.id for page in pages(admin, wanted, 2) for row in page]
        expected = sorted((one for one in records if wanted.matches(one)), key=lambda one: -one.token)
        assert found == [one.id.hex() for one in expected]


def test_a_cursor_of_another_store_is_refused(client: SyncClient) -> None:
    store = client.once.store
    if store.listing is None or not store.name.startswith(("sqlite", "postgresql")):
        pytest.skip("its cursors have another form")
    fill(client)
    other: object = b"an id" if store.name.startswith("sqlite") else 7
    listed, scanned = (msgspec.msgpack.encode(one) for one in ((5, other), ("FAILED", 5, other)))
    with pytest.raises(ConfigurationError, match="not a cursor of this store"):
        client.drive(store.listing.newest(ListingFilter(), cursor=listed, limit=2, timeout=30))
    with pytest.raises(ConfigurationError, match="not a cursor of this store"):
        client.drive(store.scan(Filter(states=(FAILED,)), cursor=scanned, limit=2, timeout=30))


FORGED: tuple[Any, ...] = (
    b"\xff",
    b"",
    b"..",
    b"a/b",
    b"x" * 1501,
    b"0 x",
    b"99999999999999999999 0",
    b"\xc1",
    b"\x93\xa1\xff\x01\x01",  # invalid UTF-8 in MessagePack
    b"\x93\xc4\x010\x90" + b"\x91" * 9_000,
    msgspec.msgpack.encode((b"x",)),
    msgspec.msgpack.encode((b"99999999999999999999",)),
)
TOO_LARGE = 2**63


@pytest.mark.finding("N28")
@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_a_malformed_cursor_raises_nothing_but_configuration_error(client: SyncClient, forged: bytes) -> None:
    """A store whose cursors are ids accepts any bytes."""
    store = client.once.store
    fill(client)
    lists: list[Callable[[], Any]] = [
        lambda: store.scan(Filter(), cursor=forged, limit=2, timeout=30),
        lambda: store.scan(Filter(states=(FAILED,)), cursor=forged, limit=2, timeout=30),
        lambda: store.latest.entities("shop/trucks", cursor=forged, limit=2, timeout=30),
    ]
    if store.listing is not None:
        lists.append(lambda: store.listing.newest(ListingFilter(), cursor=forged, limit=2, timeout=30))
    refusals = []
    for begin in lists:
        try:
            client.drive(begin())
        except ConfigurationError as error:
            refusals.append(str(error))
    assert refusals or store.listing is None
    assert all("not a cursor of this store" in text for text in refusals)


@pytest.mark.finding("N28")
@pytest.mark.parametrize("token", [1, TOO_LARGE])
def test_a_cursor_with_a_number_that_does_not_fit_its_column_is_refused(client: SyncClient, token: int) -> None:
    store = client.once.store
    if store.listing is None or not store.name.startswith(("sqlite", "postgresql")):
        pytest.skip("its cursors have another form")
    fill(client)
    number: object = TOO_LARGE if store.name.startswith("sqlite") else b"id" if token == TOO_LARGE else TOO_LARGE
    listed, scanned = (msgspec.msgpack.encode(one) for one in ((token, number), ("FAILED", token, number)))
    with pytest.raises(ConfigurationError, match="not a cursor of this store"):
        client.drive(store.listing.newest(ListingFilter(), cursor=listed, limit=2, timeout=30))
    with pytest.raises(ConfigurationError, match="not a cursor of this store"):
        client.drive(store.scan(Filter(states=(FAILED,)), cursor=scanned, limit=2, timeout=30))
    with pytest.raises(ConfigurationError, match="not a cursor of this store"):
        admin_of(client).parked(cursor=encode_cursor(listed))


class Word(StrEnum):
    ORDER = "order:"
    SHARED = "default/shared@acme"


def test_a_filter_may_have_members_of_an_enum(client: SyncClient) -> None:
    fill(client)
    admin, store = admin_of(client), client.once.store
    plain, given = ("order:", "default/shared@acme"), (Word.ORDER, Word.SHARED)
    expected, found = (
        admin.keys(ListingFilter(prefix=prefix, scopes=(scope,)), limit=100).rows for prefix, scope in (plain, given)
    )
    assert found == expected
    assert expected
    page = client.drive(store.scan(Filter(prefix=given[0], scope=given[1]), cursor=None, limit=100, timeout=30))
    assert {one.id.hex() for one in page.records} >= {row.id for row in expected}
    assert client.drive(store.audit(AuditFilter(scope=given[1]), limit=5, timeout=30)) == []


def test_run_is_the_bridge_for_sync_clients() -> None:
    from onceward import administration

    assert administration.run is run
