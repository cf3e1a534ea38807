"""The history of keys on Redis: how long the server keeps it, by its own clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.history import MAX_EVENTS, HistoryEvent
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import (
    AnySettlement,
    Complete,
    Fail,
    Park,
    Release,
    Resolution,
    Resolve,
    Validity,
    Verdict,
)
from onceward.runtime.threads import run
from onceward.stores.redis import RedisStore
from onceward.testing import FakeClock
from tests.integration.redis_backend import TIMEOUT, RedisBackend, acquired, opened
from tests.servers.proxy import Proxy
from tests.servers.redis import shared

MINUTE = 60_000  # milliseconds, as the server counts
HOUR = 3600 * 1_000_000


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RedisBackend]:
    with Proxy("127.0.0.1", shared().port) as proxy:
        here = RedisBackend(tmp_path, shared(), proxy)
        yield here
        here.close()


@pytest.fixture
def store(backend: RedisBackend) -> Iterator[RedisStore]:
    with opened(backend.open()) as store:
        yield store


def settle(store: RedisStore, settlement: AnySettlement) -> None:
    [answer] = run(store.settle([settlement], timeout=TIMEOUT))
    assert answer.verdict is Verdict.OK


def write(store: RedisStore, record: Record, name: str = "claimed") -> None:
    run(store.append_history([HistoryEvent(record.id, record.token, name, record.claimed_at)], timeout=TIMEOUT))


def written(store: RedisStore, record: Record) -> list[str]:
    return [one.name for one in run(store.read_history(record.id, limit=MAX_EVENTS, timeout=TIMEOUT))]


def history_name(backend: RedisBackend, record: Record) -> bytes:
    return b"{%b}:h:%b" % (backend.prefix.encode(), record.id)


def lifetimes(backend: RedisBackend, record: Record) -> tuple[int, int]:
    """Return after how many milliseconds the record and its history expire. -1: never."""
    return backend.raw.pttl(backend.name(record.id)), backend.raw.pttl(history_name(backend, record))


def assert_same_lifetime(backend: RedisBackend, record: Record) -> None:
    of_record, of_history = lifetimes(backend, record)
    assert of_record > MINUTE, "it expires later than this test ends"
    assert abs(of_record - of_history) < MINUTE


def test_a_history_expires_with_its_record(backend: RedisBackend, store: RedisStore) -> None:
    hour = Validity(lasting=HOUR)
    record = acquired(store, "failed")
    write(store, record)
    assert_same_lifetime(backend, record)
    settle(store, Fail(record.id, record.token, record.nonce, final=True, validity=hour))
    write(store, record, "failed")
    assert_same_lifetime(backend, record)
    record = acquired(store, "done forever")
    write(store, record)
    settle(store, Complete(record.id, record.token, record.nonce))
    write(store, record, "completed")
    assert lifetimes(backend, record) == (-1, -1)


def test_the_history_of_a_record_without_an_end_stays_bounded(backend: RedisBackend, store: RedisStore) -> None:
    record = acquired(store, "order", after_crash=AfterCrash.PARK)
    write(store, record)
    of_record, of_history = lifetimes(backend, record)
    assert of_record == -1
    assert abs(of_history - KEEP_UNFINISHED // 1000) < MINUTE, "completing the record does not touch its history"
    settle(store, Park(record.id, record.token, record.nonce))
    write(store, record, "parked")
    assert lifetimes(backend, record) == (-1, -1), "an operator needs it as long as the record is parked"
    settle(store, Resolve(record.id, record.token, Resolution.ABANDON, validity=Validity(lasting=HOUR)))
    assert_same_lifetime(backend, record)
    assert written(store, record) == ["claimed", "parked"]


def test_the_owner_of_a_parked_record_completes_it(backend: RedisBackend, store: RedisStore) -> None:
    record = acquired(store, "order")
    settle(store, Park(record.id, record.token, record.nonce))
    write(store, record, "parked")
    assert lifetimes(backend, record) == (-1, -1)
    settle(store, Complete(record.id, record.token, record.nonce, validity=Validity(lasting=HOUR)))
    assert_same_lifetime(backend, record)


def test_an_operator_resolves_a_failure_that_never_expires(backend: RedisBackend, store: RedisStore) -> None:
    record = acquired(store, "order")
    settle(store, Fail(record.id, record.token, record.nonce, final=True))
    write(store, record, "failed")
    assert lifetimes(backend, record) == (-1, -1)
    seen = RecordState.FAILED
    settle(store, Resolve(record.id, record.token, Resolution.NOT_APPLIED, state_seen=seen))
    assert_same_lifetime(backend, record)


@pytest.mark.finding("N28")
def test_a_history_that_outlives_its_record_is_not_shown_and_can_be_deleted(
    backend: RedisBackend, store: RedisStore
) -> None:
    """As if the record had been completed with a short window after its last event, and had expired."""
    forgotten, erased = acquired(store, "forgotten"), acquired(store, "erased")
    for record in (forgotten, erased):
        write(store, record)
        backend.raw.delete(backend.name(record.id))
        assert written(store, record) == []
        write(store, record, "failed")
        assert backend.raw.hlen(history_name(backend, record)) == 1, "an event without a record is not written"
    run(store.forget([forgotten.id], force=False, timeout=TIMEOUT))
    run(store.delete_free([erased], timeout=TIMEOUT))
    assert not backend.raw.exists(history_name(backend, forgotten), history_name(backend, erased))


@pytest.mark.finding("N28")
def test_erasure_and_purge_delete_the_hash_itself(backend: RedisBackend, store: RedisStore, clock: FakeClock) -> None:
    """`read_history` would not show it any more: its record is deleted."""
    free = acquired(store, "free")
    settle(store, Release(free.id, free.token, free.nonce))
    write(store, free, "released")
    assert run(store.delete_free([free], timeout=TIMEOUT)) == 1
    assert not backend.raw.exists(history_name(backend, free))
    with opened(backend.open(clock=clock)) as in_fake_time:  # otherwise the server expires records and histories
        old = acquired(in_fake_time, "old")
        write(in_fake_time, old)
        settle(in_fake_time, Complete(old.id, old.token, old.nonce, validity=Validity(lasting=HOUR)))
        clock.advance("40d")
        assert run(in_fake_time.purge(10, timeout=TIMEOUT)) == 1
    assert not backend.raw.exists(history_name(backend, old))


def test_a_plain_call_leaves_no_history(backend: RedisBackend, store: RedisStore) -> None:
    record = acquired(store, "plain")
    settle(store, Complete(record.id, record.token, record.nonce))
    assert list(backend.raw.scan_iter(match=f"*{backend.prefix}*")) == [backend.name(record.id)]


def test_a_large_batch_takes_few_calls_and_keeps_the_latest_events(backend: RedisBackend, store: RedisStore) -> None:
    records = [acquired(store, f"order {number}") for number in range(3)]
    events = [
        HistoryEvent(record.id, record.token + number, "failed", number, error="\udcff" * 10)
        for number in range(200)
        for record in records
    ]
    run(store.append_history([], timeout=TIMEOUT))  # the server has the script now
    before = backend.proxy.exchanges
    run(store.append_history(events, timeout=TIMEOUT))
    assert backend.proxy.exchanges - before == 3
    for record in records:
        kept = run(store.read_history(record.id, limit=2 * MAX_EVENTS, timeout=TIMEOUT))
        assert [one.at for one in kept] == list(range(200 - MAX_EVENTS, 200))
        assert kept[0].error == "\\udcff" * 10, "readable, as on the record"
