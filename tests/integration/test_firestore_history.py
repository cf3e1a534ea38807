"""The history of keys on Firestore: what it is billed, and writers that change the document at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward.protocol.history import MAX_EVENTS, HistoryEvent
from onceward.protocol.record import Record
from onceward.protocol.requests import Complete, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.firestore import FirestoreStore, history
from onceward.stores.firestore.documents import MAX_HISTORY_BYTES
from onceward.testing.conformance.harness import claim_request
from tests.firestore_backends import PROJECT, firestore_client, named
from tests.servers.firestore import EMULATOR, shared
from tests.servers.firestore_tap import Tap, tapped

TIMEOUT = 30.0


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tap]:
    with tapped(shared()) as (tap, address):
        monkeypatch.setenv(EMULATOR, address)
        yield tap


@pytest.fixture
def url(tap: Tap, tmp_path: Path) -> str:
    return f"firestore://{PROJECT}/{named(tmp_path, 'history')}"


@pytest.fixture
def store(url: str) -> Iterator[FirestoreStore]:
    yield from opened(url)


@pytest.fixture
def other(url: str) -> Iterator[FirestoreStore]:
    """The store of another process: it does not share the cache."""
    yield from opened(url)


def opened(url: str) -> Iterator[FirestoreStore]:
    store = FirestoreStore(url)
    run(store.open(ThreadRuntime()))
    yield store
    run(store.close())


def acquired(store: FirestoreStore, key: str = "order", **more: Any) -> Record:
    [answer] = run(store.claim([claim_request(key, **more)], timeout=TIMEOUT))
    assert answer.verdict is Verdict.ACQUIRED
    assert answer.record is not None
    return answer.record


def complete(store: FirestoreStore, record: Record, result: bytes = b"") -> None:
    [answer] = run(store.settle([Complete(record.id, record.token, record.nonce, result=result)], timeout=TIMEOUT))
    assert answer.verdict is Verdict.OK


def write(store: FirestoreStore, record: Record, *names: str, error: str = "") -> None:
    events = [HistoryEvent(record.id, record.token, name, record.claimed_at, error=error) for name in names]
    run(store.append_history(events, timeout=TIMEOUT))


def written(store: FirestoreStore, record: Record) -> list[str]:
    return [one.name for one in run(store.read_history(record.id, limit=MAX_EVENTS, timeout=TIMEOUT))]


def test_the_events_of_a_record_are_one_read_and_one_write(tap: Tap, store: FirestoreStore) -> None:
    record = acquired(store)
    with tap.billed() as bill:
        run(store.append_history([], timeout=TIMEOUT))
    assert bill() == (0, 0, {}), "the time is known from the last reply"
    with tap.billed() as bill:
        write(store, record, "claimed", "failed")
    assert bill()[:2] == (1, 1)
    with tap.billed() as bill:
        write(store, record, "claimed", "failed")
    assert bill()[:2] == (1, 0), "a repeated write changes nothing"
    with tap.billed() as bill:
        complete(store, record)
    assert bill()[:2] == (0, 1), "the owner knows the version that it wrote itself"


def test_an_owner_completes_a_record_to_which_another_process_added_events(
    store: FirestoreStore, other: FirestoreStore
) -> None:
    record = acquired(store)
    write(other, record, "claimed", "mismatch")
    complete(store, record)
    assert written(other, record) == ["claimed", "mismatch"]


@pytest.mark.finding("N28")
def test_an_event_is_not_written_if_the_key_is_erased_meanwhile(
    store: FirestoreStore, other: FirestoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is forgotten, or forgotten and deleted, after its document was read and before the events are written."""
    sound = history.encode_events
    for is_deleted in (False, True):
        record = acquired(store, f"order {is_deleted}")
        write(store, record, "claimed")

        def erase_first(events: Any, record: Record = record, is_deleted: bool = is_deleted) -> bytes:
            monkeypatch.setattr(history, "encode_events", sound)
            [answer] = run(other.forget([record.id], force=True, timeout=TIMEOUT))
            if is_deleted and answer.record is not None:
                assert run(other.erasure.delete_free([answer.record], timeout=TIMEOUT)) == 1
            return sound(events)

        monkeypatch.setattr(history, "encode_events", erase_first)
        write(store, record, "failed", error="4711-SECRET")
        assert history.encode_events is sound, "the key was erased in between"
        assert written(store, record) == []


def test_a_document_that_is_named_after_its_content_has_a_history(store: FirestoreStore, other: FirestoreStore) -> None:
    from onceward.keys.key import Scope, make_key

    key = "sha256:" + "9f" * 32
    record = acquired(store, key, scope="shop/charge", id=make_key(Scope("shop", "charge"), key).id)
    write(other, record, "failed")
    assert written(store, record) == ["failed"]
    collection = store.name.rpartition("/")[2]
    assert firestore_client().collection(collection).document(key).get().exists


def test_a_history_leaves_space_for_the_result(store: FirestoreStore) -> None:
    record = acquired(store)
    events = [
        HistoryEvent(record.id, record.token + number, "failed", number, error="\U0001f4a5" * 500)
        for number in range(1, 2 * MAX_EVENTS)
    ]
    run(store.append_history(events, timeout=TIMEOUT))
    kept = run(store.read_history(record.id, limit=MAX_EVENTS, timeout=TIMEOUT))
    assert kept[-1] == HistoryEvent(
        record.id, events[-1].token, "failed", events[-1].at, events[-1].at, error=kept[0].error
    )
    assert MAX_HISTORY_BYTES // 2 < sum(len(one.error.encode()) for one in kept) < MAX_HISTORY_BYTES
    complete(store, record, bytes(store.max_result_bytes))
    assert len(written(store, record)) == len(kept)
    full = acquired(store, "full")
    complete(store, full, bytes(store.max_result_bytes))
    write(store, full, "claimed")
    assert written(store, full) == ["claimed"]
