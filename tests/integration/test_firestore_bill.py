"""What Firestore bills, counted at the gRPC layer between the store and Google's emulator; and lost answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from msgspec.structs import replace

from onceward import StoreUnavailable
from onceward.latest import Ordering
from onceward.protocol.requests import ClaimRequest, Complete, Renewal, Resolution, Resolve, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.firestore import FirestoreStore
from onceward.stores.firestore.address import parse
from onceward.stores.firestore.async_transport import FirestoreAsyncTransport
from onceward.stores.firestore.transport import FirestoreThreadTransport
from tests.clients import AsyncClient, Backend, Mode, SyncClient
from tests.firestore_backends import PROJECT, cache_of, named
from tests.moved_time import TOO_LONG, RealClock
from tests.servers.firestore import EMULATOR, shared
from tests.servers.firestore_tap import Tap, tapped

ID = bytes(range(32))


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tap]:
    with tapped(shared()) as (tap, address):
        monkeypatch.setenv(EMULATOR, address)
        yield tap


@pytest.fixture
def store(tap: Tap, tmp_path: Path) -> FirestoreStore:
    return FirestoreStore(f"firestore://{PROJECT}/{named(tmp_path, 'bill')}")


class OpenedBackend(Backend):
    """Clones of one store, on the server's own clock."""

    def __init__(self, store: FirestoreStore) -> None:
        self.kind = "firestore"
        self.clock = RealClock()
        self._store = store

    def open(self) -> FirestoreStore:
        return self._store.clone()


@pytest.fixture
def client(store: FirestoreStore, mode: Mode) -> Iterator[SyncClient]:
    client = SyncClient(OpenedBackend(store)) if mode == "blocking" else AsyncClient(OpenedBackend(store))
    yield client
    client.close()


# ── the bill ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fresh_run_is_one_read_and_two_writes_and_a_replay_is_one_read(tap: Tap, client: SyncClient) -> None:
    with tap.billed() as bill:
        assert client.outcome("invoice 7", lambda: "sent").executed
    assert bill() == (1, 2, {"BatchGetDocuments": 1, "Commit": 2})
    with tap.billed() as bill:
        assert client.outcome("invoice 7", lambda: "sent").replayed
    assert bill() == (1, 0, {"BatchGetDocuments": 1})


def test_a_renewal_and_a_note_are_one_write_each_and_cost_the_settlement_nothing(tap: Tap, client: SyncClient) -> None:
    with tap.billed() as bill, client.claim("invoice 7") as claim:
        claim.annotate(page="1")
        claim.annotate(page="2")
        claim.complete("sent")
    assert bill()[:2] == (1, 4)


def test_a_failure_and_its_retry_are_two_writes_each(tap: Tap, client: SyncClient) -> None:
    def fails() -> None:
        raise ConnectionError("not now")

    with tap.billed() as bill:
        client.outcome("invoice 7", fails)
        client.outcome("invoice 7", fails)
    assert bill()[:2] == (2, 4)


def test_a_batch_of_claims_is_billed_as_its_items_and_travels_together(tap: Tap, client: SyncClient) -> None:
    with tap.billed() as bill:
        assert all(one.executed for one in client.map(_double, range(20)))
    reads, writes, calls = bill()
    assert (reads, writes) == (20, 40)
    assert (calls["BatchGetDocuments"], calls["BatchWrite"]) == (1, 1), "two round trips for twenty claims"


def _double(number: int) -> int:
    return 2 * number


@pytest.mark.mission("E2", "E4")
def test_the_two_tiers_of_the_fleet_are_three_reads_and_three_writes_in_one_commit(
    tap: Tap, client: SyncClient
) -> None:
    services = client.once.state("ops_services")

    def applied(minute: int, message: str, event: str) -> str:
        ordering = Ordering(f"2026-03-01T08:{minute:02}:00Z", None, None, message)
        return str(client.wait(services.apply("prod__api", ordering, {"minute": minute}, event_id=event)).reason)

    with tap.billed() as bill:
        assert applied(5, "m1", "e1") == "applied"
    assert bill() == (3, 3, {"BatchGetDocuments": 1, "Commit": 1})
    bills = {}
    for reason, delivery in {
        "duplicate_message_noop": (5, "m1", "e1"),
        "duplicate_event_noop": (5, "m2", "e1"),
        "stale_event_ignored": (4, "m3", "e3"),
    }.items():
        with tap.billed() as bill:
            assert applied(*delivery) == reason
        bills[reason] = bill()[:2]
    assert bills["duplicate_message_noop"] == (3, 0)
    assert bills["stale_event_ignored"] == (3, 2), "its message and its event are known from then on"
    assert bills["duplicate_event_noop"] in {(3, 1), (3, 2)}, "its message, and the order if that is higher"


# ── answers that are lost ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(20)
@pytest.mark.fault("F53")
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_claim_whose_answer_is_lost_is_found_by_its_nonce(tap: Tap, client: SyncClient, times: int) -> None:
    runs: list[int] = []
    tap.lose("Commit", times)
    assert client.outcome("invoice 7", lambda: runs.append(1)).executed
    assert client.outcome("invoice 7", lambda: runs.append(1)).replayed
    assert runs == [1]
    assert client.read("invoice 7").attempt == 1


@pytest.mark.fault("F53")
@pytest.mark.parametrize("on_running", ["raise", "wait"])
def test_a_claim_whose_answer_never_comes_does_not_keep_its_own_caller_out(
    tap: Tap, store: FirestoreStore, mode: Mode, on_running: str
) -> None:
    """The store answers that the key is running, but no work has started: even `park` must not wait for a lease."""
    runs: list[int] = []
    client = (SyncClient if mode == "blocking" else AsyncClient)(
        OpenedBackend(store), lease="6s", on_running=on_running, after_crash="park"
    )
    client.outcome("warm", lambda: None)
    tap.hold("Commit")
    first = client.outcome("invoice 7", lambda: runs.append(1))
    if on_running == "raise":
        assert (type(first).__name__, runs) == ("Running", [])
        first = client.outcome("invoice 7", lambda: runs.append(1))
    assert first.executed
    assert (runs, client.read("invoice 7").attempt) == ([1], 1)
    client.close()


@pytest.mark.fault("F51", "F53")
def test_a_completion_whose_answer_is_lost_is_asked_for_again(tap: Tap, client: SyncClient) -> None:
    with client.claim("invoice 7") as claim:
        tap.lose("Commit")
        claim.complete("sent")
    assert client.outcome("invoice 7", lambda: "again").value == "sent"


@pytest.mark.fault("F53")
def test_answers_to_reads_may_be_lost_too(tap: Tap, client: SyncClient) -> None:
    tap.lose("BatchGetDocuments", 2)
    assert client.outcome("invoice 7", lambda: "sent").executed


@pytest.mark.fault("F53")
def test_a_batch_whose_answer_is_lost_is_found_by_its_nonces(tap: Tap, client: SyncClient) -> None:
    tap.lose("BatchWrite", 2)
    assert all(one.executed for one in client.map(_double, range(5)))
    assert all(one.replayed for one in client.map(_double, range(5)))


@pytest.mark.fault("F53")
def test_a_resolution_whose_answer_is_lost_is_an_unknown_and_is_not_sent_twice(tap: Tap, store: FirestoreStore) -> None:
    """Sent again, it would find its own write and report that another client was faster."""
    run(store.open(ThreadRuntime()))
    [claimed] = run(store.claim([ClaimRequest(ID, "s", "k", b"n" * 16, 10_000_000)], timeout=20))
    assert claimed.record is not None
    tap.lose("Commit")
    request = Resolve(ID, claimed.record.token, Resolution.APPLIED, state_seen=claimed.record.state, force=True)
    with tap.billed() as bill, pytest.raises(StoreUnavailable):
        run(store.settle([request], timeout=20))
    assert bill().calls["Commit"] == 1, "nor by the driver"
    [seen] = run(store.read([ID], timeout=20))
    assert seen.record is not None
    assert seen.record.state == "COMPLETED"
    run(store.close())


@pytest.mark.fault("F51", "F52")
def test_a_call_that_gets_no_answer_fails_when_its_timeout_is_over(tap: Tap, store: FirestoreStore) -> None:
    run(store.open(ThreadRuntime()))
    tap.lose("BatchGetDocuments", 1_000)
    with pytest.raises(StoreUnavailable, match=r"cannot be reached|no reply within"):
        run(store.claim([ClaimRequest(ID, "s", "k", b"n" * 16, 10_000_000)], timeout=0.3))
    run(store.close())


@pytest.mark.rival(1)
@pytest.mark.fault("F41")
def test_a_replaced_owner_that_still_caches_its_claim_learns_of_it_from_the_write(
    tap: Tap, store: FirestoreStore
) -> None:
    """The settlement reads nothing: its condition fails, and only then it reads the record."""
    other = FirestoreStore(store._address)
    for one in (store, other):
        run(one.open(ThreadRuntime()))
    [mine] = run(store.claim([ClaimRequest(ID, "s", "k", b"n" * 16, 1)], timeout=20))
    [theirs] = run(other.claim([ClaimRequest(ID, "s", "k", b"o" * 16, 600_000_000)], timeout=20))
    assert (mine.verdict, theirs.verdict) == (Verdict.ACQUIRED, Verdict.ACQUIRED)
    assert mine.record is not None
    with tap.billed() as bill:
        [answer] = run(store.settle([Complete(ID, mine.record.token, mine.record.nonce, b"late")], timeout=20))
    assert answer.verdict is Verdict.LOST
    assert bill()[0] == 1
    [seen] = run(store.read([ID], timeout=20))
    assert seen.record == theirs.record
    for one in (store, other):
        run(one.close())


@pytest.mark.fault("F43", "F44")
def test_a_renewal_after_a_sleep_of_the_machine_uses_the_servers_time(tap: Tap, store: FirestoreStore) -> None:
    """The store estimates the time from the last answer, and meanwhile the machine's clock has stopped."""
    run(store.open(ThreadRuntime()))
    [claimed] = run(store.claim([ClaimRequest(ID, "s", "k", b"n" * 16, 600_000_000)], timeout=20))
    assert claimed.record is not None
    snapshot = cache_of(store).get_owned(ID, claimed.record.token, claimed.record.nonce)
    assert snapshot is not None
    an_hour_ago = replace(claimed.record, updated_at=claimed.now - 3_600_000_000)
    cache_of(store).put(snapshot._replace(record=an_hour_ago))
    cache_of(store).sync_clock(claimed.now - 3_600_000_000)
    with tap.billed() as bill:
        [renewed] = run(store.renew([Renewal(ID, claimed.record.token, claimed.record.nonce, 600_000_000)], timeout=20))
    assert renewed.record is not None
    assert (renewed.record.lease_until or 0) >= (claimed.record.lease_until or 0)
    assert bill()[:2] == (0, 2), "the first write returned the server's time"
    run(store.close())


def test_the_time_between_two_answers_is_never_ahead_of_the_servers(store: FirestoreStore) -> None:
    run(store.open(ThreadRuntime()))
    for _ in range(20):
        [before] = run(store.read([ID], timeout=20))
        estimate = cache_of(store).now()
        [after] = run(store.read([ID], timeout=20))
        assert estimate is not None
        assert before.now <= estimate <= after.now
    run(store.close())


@pytest.mark.fault("F50")
@pytest.mark.parametrize("mode", ["blocking", "asyncio"])
def test_a_server_that_is_back_is_called_within_a_second(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default gRPC waits up to two minutes before it reconnects, and refuses every call until then."""
    channel_options: list[dict[str, int]] = []

    def opened(_address: str, options: Iterable[tuple[str, int]]) -> None:
        channel_options.append(dict(options))
        raise ConnectionError

    monkeypatch.setattr(grpc if mode == "blocking" else grpc.aio, "insecure_channel", opened)
    monkeypatch.setenv(EMULATOR, "127.0.0.1:1")
    address = parse("firestore://p/c")
    transport: Any = FirestoreThreadTransport(address) if mode == "blocking" else FirestoreAsyncTransport(address)

    async def ask() -> None:
        await transport.call("commit", None, 1.0)

    with pytest.raises(ConnectionError):
        run(ask()) if mode == "blocking" else asyncio.run(ask())
    assert channel_options[0]["grpc.max_reconnect_backoff_ms"] <= 1_000


def test_the_store_that_claimed_caches_what_the_heartbeat_renews(tap: Tap, store: FirestoreStore) -> None:
    heartbeat = store.clone()
    for one in (store, heartbeat):
        run(one.open(ThreadRuntime()))
    [claimed] = run(store.claim([ClaimRequest(ID, "s", "k", b"n" * 16, 600_000_000)], timeout=20))
    assert claimed.record is not None
    token, nonce = claimed.record.token, claimed.record.nonce
    with tap.billed() as bill:
        [renewed] = run(heartbeat.renew([Renewal(ID, token, nonce, 600_000_000)], timeout=20))
        [done] = run(store.settle([Complete(ID, token, nonce, b"done")], timeout=20))
    assert (renewed.verdict, done.verdict) == (Verdict.OK, Verdict.OK)
    assert bill()[:2] == (0, 2)
    for one in (store, heartbeat):
        run(one.close())


@pytest.mark.rival(21)
@pytest.mark.fault("F52")
@pytest.mark.parametrize("method", ["BatchGetDocuments", "Commit"])
def test_a_server_that_stops_responding_keeps_no_caller_beyond_the_deadline(
    tap: Tap, store: FirestoreStore, method: str
) -> None:
    """No answer to the read: unknown. No answer to the write: another transaction may hold the document."""
    wakes = threading.Event()
    tap.before = lambda name: None if name != method else (wakes.wait(TOO_LONG), None)[1]
    run(store.open(ThreadRuntime()))
    request = ClaimRequest(ID, "s", "k", b"n" * 16, 600_000_000)
    if method == "Commit":
        assert run(store.claim([request], timeout=2))[0].verdict is Verdict.RUNNING
    else:
        with pytest.raises(StoreUnavailable):
            run(store.claim([request], timeout=2))
    wakes.set()
    [answer] = run(store.claim([request], timeout=20))
    assert answer.verdict is Verdict.ACQUIRED, "by its nonce, whether the first one arrived or not"
    run(store.close())
