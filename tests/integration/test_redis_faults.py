"""Every fault between a client and its Redis, with real servers, sync and async."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from onceward import Executed, Replayed, StoreUnavailable, Unknown
from onceward.errors import ConfigurationError, LeaseLost, StoreBroken, StoreFull
from onceward.protocol.audit import AuditFilter, signature
from onceward.protocol.ports import Filter
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Complete, Renewal, Verdict
from onceward.runtime.threads import run
from onceward.stores.redis import connection as link
from onceward.testing.conformance.harness import claim_request, id_of
from tests.clients import AsyncClient, Mode, SyncClient
from tests.integration.redis_backend import TIMEOUT, RedisBackend, acquired, claim, opened, send
from tests.servers.process import free_port
from tests.servers.proxy import (
    CUT_REPLY,
    HOLD,
    LOSE_REPLY,
    LOSE_REQUEST,
    RESET_REPLY,
    RESET_REQUEST,
    SWALLOW_REPLY,
    SWALLOW_REQUEST,
    Fault,
    Proxy,
)
from tests.servers.redis import RedisServer, shared

FIELDS_SIZE = 23  # offset of these bytes in a record, see record.lua
SHORT = "2400ms"  # a lease whose calls give up after a third of it
CLEAN = [LOSE_REQUEST, LOSE_REPLY, RESET_REQUEST, RESET_REPLY, CUT_REPLY]
MUTE = [SWALLOW_REQUEST, SWALLOW_REPLY]


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy("127.0.0.1", shared().port) as started:
        yield started


@pytest.fixture
def backend(tmp_path: Path, proxy: Proxy) -> Iterator[RedisBackend]:
    here = RedisBackend(tmp_path, shared(), proxy)
    yield here
    here.close()


@pytest.fixture
def client(backend: RedisBackend, mode: Mode) -> Iterator[SyncClient]:
    client = SyncClient(backend, lease=SHORT) if mode == "blocking" else AsyncClient(backend, lease=SHORT)
    yield client
    backend.proxy.release()
    client.close()


@pytest.fixture
def private() -> Iterator[RedisServer]:
    """A server whose settings the test may change."""
    server = RedisServer().begin()
    yield server
    server.end()


class Work:
    """An effect that counts."""

    def __init__(self) -> None:
        self.times = 0
        self.__name__ = self.__qualname__ = "work"

    def __call__(self) -> str:
        self.times += 1
        return "done"


@pytest.fixture
def work() -> Work:
    return Work()


# ── round trips and lost data ───────────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_two_round_trips_and_a_replay_is_one(backend: RedisBackend, mode: Mode, work: Work) -> None:
    proxy = backend.proxy
    client = SyncClient(backend) if mode == "blocking" else AsyncClient(backend)  # slow replies are not repeated
    client.run("warm", work)
    before = proxy.exchanges
    client.run("order 7", work)
    assert proxy.exchanges - before == 2
    client.run("order 7", work)
    assert proxy.exchanges - before == 3
    assert proxy.connections == 1
    client.close()


@pytest.mark.rival(20)
@pytest.mark.fault("F53")
@pytest.mark.parametrize("after", [0, 1], ids=["claim", "complete"])
@pytest.mark.parametrize("fault", CLEAN, ids=lambda fault: fault.name)
def test_what_the_network_loses_is_repeated_and_happens_once(
    client: SyncClient, proxy: Proxy, work: Work, fault: Fault, after: int
) -> None:
    client.run("warm", lambda: None)
    proxy.next(fault, after=after)
    outcome = client.outcome("order 7", work)
    assert (type(outcome), outcome.attempt, work.times) == (Executed, 1, 1)
    assert [one.fault for one in proxy.struck] == [fault]
    assert isinstance(client.outcome("order 7", work), Replayed)
    assert work.times == 1


@pytest.mark.rival(20)
@pytest.mark.fault("F53")
def test_a_new_connection_may_be_lost_as_well(client: SyncClient, proxy: Proxy, work: Work) -> None:
    """The store does not retry a connection that never worked; the caller of the claim does."""
    client.run("warm", lambda: None)
    proxy.next(LOSE_REPLY, times=2)
    outcome = client.outcome("order 7", work)
    assert (type(outcome), work.times, len(proxy.struck)) == (Executed, 1, 2)


@pytest.mark.timeout(60)  # a call that waits for redis-py's own timeout fails by this
@pytest.mark.rival(21)
@pytest.mark.fault("F52")
@pytest.mark.parametrize("fault", MUTE, ids=lambda fault: fault.name)
def test_a_black_hole_is_noticed_by_the_deadline_of_the_call(
    client: SyncClient, proxy: Proxy, work: Work, fault: Fault
) -> None:
    client.run("warm", lambda: None)
    proxy.next(fault)
    outcome = client.outcome("order 7", work)
    assert (type(outcome), work.times) == (Executed, 1)


@pytest.mark.rival(21)
@pytest.mark.fault("F50", "F52")
def test_a_paused_server_is_unavailable_and_works_again_when_it_resumes(
    tmp_path: Path, private: RedisServer, mode: Mode, work: Work
) -> None:
    with Proxy("127.0.0.1", private.port) as proxy:
        backend = RedisBackend(tmp_path, private, proxy)
        client = SyncClient(backend, lease=SHORT) if mode == "blocking" else AsyncClient(backend, lease=SHORT)
        try:
            client.run("warm", lambda: None)
            private.send(signal.SIGSTOP)
            with pytest.raises(StoreUnavailable, match=r"no reply within 0\.\d+ s"):
                client.run("order 7", work)
            assert work.times == 0
            private.send(signal.SIGCONT)
            assert isinstance(client.outcome("order 8", work), Executed)
        finally:
            private.send(signal.SIGCONT)
            client.close()
            backend.close()


@pytest.mark.fault("F50")
def test_a_server_that_is_gone_is_reported_once_and_used_again_when_it_is_back(
    client: SyncClient, proxy: Proxy, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    client.run("warm", lambda: None)
    caplog.clear()
    proxy.refuse()
    proxy.reset_all()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            client.run("order 7", work)
    assert work.times == 0
    proxy.accept()
    assert isinstance(client.outcome("order 7", work), Executed)
    said = [one.getMessage() for one in caplog.records if one.name == "onceward.redis"]
    assert [("lost" in one, "again" in one) for one in said] == [(True, False), (False, True)], said


@pytest.mark.fault("F51")
def test_a_completion_that_gets_no_answer_is_repeated_until_it_does(
    client: SyncClient, proxy: Proxy, work: Work
) -> None:
    client.run("warm", lambda: None)
    proxy.next(LOSE_REPLY, after=1, times=4)
    assert isinstance(client.outcome("order 7", work), Executed)
    assert len(proxy.struck) == 4
    assert isinstance(client.outcome("order 7", work), Replayed)


@pytest.mark.fault("F51")
def test_a_completion_that_never_gets_an_answer_is_unknown_and_never_a_false_success(
    client: SyncClient, proxy: Proxy
) -> None:
    def work() -> str:
        proxy.refuse()
        proxy.reset_all()
        return "done"

    worker = client.another(settle_timeout="500ms")
    outcome = worker.outcome("order 7", work)
    assert isinstance(outcome, Unknown)
    assert outcome.value == "done"
    assert worker.events_named("unknown")


def test_a_late_answer_is_never_taken_for_the_answer_to_the_next_question(client: SyncClient, proxy: Proxy) -> None:
    client.run("one", lambda: 1)
    client.run("two", lambda: 2)
    proxy.next(HOLD)
    late = client.start(client.run, "one", lambda: "ran again")
    proxy.await_struck()
    assert client.run("two", lambda: "ran again") == 2
    proxy.release()
    assert late.result(60) == 1


# ── what the server does ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_server_that_has_lost_the_scripts_gets_them_again(
    client: SyncClient, backend: RedisBackend, work: Work
) -> None:
    client.run("warm", lambda: None)
    backend.raw.script_flush()
    before = backend.proxy.exchanges
    assert isinstance(client.outcome("order 7", work), Executed)
    assert backend.proxy.exchanges - before == 3
    backend.raw.script_flush()
    assert isinstance(client.outcome("order 7", work), Replayed)


@pytest.mark.fault("F62")
def test_a_server_without_memory_claims_nothing_and_still_replays(tmp_path: Path, private: RedisServer) -> None:
    with Proxy("127.0.0.1", private.port) as proxy:
        backend = RedisBackend(tmp_path, private, proxy)
        with opened(backend.open()) as store:
            done = acquired(store, "done")
            run(store.settle([Complete(done.id, done.token, done.nonce, result=b"it")], timeout=TIMEOUT))
            backend.raw.config_set("maxmemory", "1")
            with pytest.raises(StoreFull, match="no memory left"):
                claim(store, "order 7")
            assert claim(store, "done").verdict is Verdict.REPLAY
            backend.raw.config_set("maxmemory", "0")
            assert claim(store, "order 7").verdict is Verdict.ACQUIRED
        backend.close()


@pytest.mark.fault("F63")
def test_after_a_restart_that_lost_everything_tokens_still_grow(client: SyncClient, backend: RedisBackend) -> None:
    with pytest.raises(LeaseLost), client.claim("order 7") as early:
        id = client.read("order 7").record.id
        assert backend.raw.delete(backend.name(id)) == 1
        with client.another(lease=SHORT).claim("order 7") as late:
            assert late.token > early.token
            assert late.attempt == 1


@pytest.mark.fault("F68")
def test_after_a_backup_was_restored_tokens_still_grow(backend: RedisBackend) -> None:
    with opened(backend.open()) as store:
        first = acquired(store, "order 7", lease=1)
        backup = backend.raw.get(backend.name(first.id))
        newest = [acquired(store, "order 7", lease=1) for _ in range(3)][-1]
        backend.raw.set(backend.name(first.id), backup)
        again = acquired(store, "order 7")
        assert again.token > newest.token > first.token


def test_a_record_that_cannot_be_read_hides_no_other_in_a_scan(backend: RedisBackend) -> None:
    with opened(backend.open()) as store:
        good, bad = acquired(store, "good"), acquired(store, "bad")
        name = backend.name(bad.id)
        backend.raw.setrange(name, FIELDS_SIZE, bytes([9]))  # an invalid value
        page = run(store.scan(Filter(), cursor=None, limit=10, timeout=TIMEOUT))
        assert [record.id for record in page.records] == [good.id]
        assert page.unreadable == (f"id:{bad.id.hex()}",)


def test_one_bad_item_spoils_no_other_of_its_batch(backend: RedisBackend) -> None:
    with opened(backend.open()) as store:
        acquired(store, "warm")
        good, bad = claim_request("good"), claim_request("bad")
        backend.raw.hset(backend.name(bad.id), "not", "ours")
        with pytest.raises(StoreBroken, match="holds another type"):
            run(store.claim([bad, good], timeout=TIMEOUT))
        granted = send(store, good)
        assert granted.verdict is Verdict.ACQUIRED
        assert granted.record is not None
        assert granted.record.created_at < granted.now, "it was granted by the first call"
        renewals = [Renewal(id, granted.record.token, good.nonce, 1_000_000) for id in (bad.id, good.id)]
        with pytest.raises(StoreBroken, match="holds another type"):
            run(store.renew(renewals, timeout=TIMEOUT))
        [renewed] = run(store.read([good.id], timeout=TIMEOUT))
        assert renewed.record is not None
        assert renewed.record.renewed_at > granted.record.renewed_at, "the request after the bad one was renewed"


def test_a_replica_cannot_be_used_for_claims(backend: RedisBackend, private: RedisServer) -> None:
    replica = RedisServer(settings=("--save", "", "--replicaof", f"127.0.0.1 {private.port}")).begin()
    try:
        with Proxy("127.0.0.1", replica.port) as proxy:
            other = RedisBackend(backend.path.parent, replica, proxy)
            with opened(other.open()) as store, pytest.raises(StoreUnavailable, match="this is a replica"):
                claim(store, "order 7")
            other.close()
    finally:
        replica.end()


@pytest.mark.fault("F63")
def test_after_a_failover_the_run_continues_automatically_on_the_new_primary(
    tmp_path: Path, private: RedisServer, mode: Mode, work: Work
) -> None:
    with redis.Redis(port=private.port) as old:
        old.config_set("repl-diskless-sync-delay", 0)  # else it waits for more replicas first
    replica = RedisServer(settings=("--save", "", "--replicaof", f"127.0.0.1 {private.port}")).begin()
    with Proxy("127.0.0.1", private.port) as proxy, redis.Redis(port=replica.port) as new:
        backend = RedisBackend(tmp_path, private, proxy)
        client = SyncClient(backend, lease="5s") if mode == "blocking" else AsyncClient(backend, lease="5s")
        try:
            first = client.outcome("order 7", work)
            await_replica(backend.raw)
            with client.claim("order 8") as claim:
                await_replica(backend.raw)
                proxy.point_to(replica.port)
                private.kill()
                with pytest.raises(StoreUnavailable, match="this is a replica"):
                    client.run("order 9", work)
                new.execute_command("REPLICAOF", "NO", "ONE")
            assert claim.state is RecordState.COMPLETED
            assert isinstance(client.outcome("order 7", work), Replayed)
            after = client.outcome("order 9", work)
            assert (type(after), work.times) == (Executed, 2)
            assert after.token > first.token
        finally:
            client.close()
            backend.close()
            replica.end()


def await_replica(primary: Any) -> None:
    """Wait until the replica has everything written so far: our own write comes after all others."""
    primary.set("mark", 1)
    assert primary.execute_command("WAIT", 1, 10_000) == 1, "the replica does not follow"


def test_all_keys_of_a_store_live_in_one_slot_of_a_cluster(tmp_path: Path) -> None:
    bus = str(free_port())
    server = RedisServer(settings=("--save", "", "--cluster-enabled", "yes", "--cluster-port", bus)).begin()
    try:
        with Proxy("127.0.0.1", server.port) as proxy:
            backend = RedisBackend(tmp_path, server, proxy)
            with opened(backend.open()) as store, pytest.raises(StoreUnavailable, match="its cluster is down"):
                claim(store, "order 7")
            backend.raw.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while b"cluster_state:ok" not in backend.raw.execute_command("CLUSTER", "INFO"):
                threading.Event().wait(0.02)
            with opened(backend.open()) as store:
                claimed = [acquired(store, f"order {number}") for number in range(3)]
                run(store.settle([Complete(one.id, one.token, one.nonce) for one in claimed], timeout=TIMEOUT))
                signed = signature("forget", "ann")
                run(store.forget([claimed[0].id], force=False, timeout=TIMEOUT, signed=signed))
                assert len(run(store.audit(AuditFilter(), limit=10, timeout=TIMEOUT))) == 1
                assert sum(run(store.counts(timeout=TIMEOUT)).values()) == 3
                assert run(store.purge(10, timeout=TIMEOUT, signed=signed)) == 0
            backend.close()
    finally:
        server.end()


# ── connections ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_connections_are_bounded(backend: RedisBackend) -> None:
    with opened(backend.open()) as store:
        acquired(store, "order 7")
        backend.proxy.always(HOLD)
        backend.proxy.hold_again()
        threads = [threading.Thread(target=lambda: run(store.read([b"x" * 32], timeout=TIMEOUT))) for _ in range(40)]
        for one in threads:
            one.start()
        backend.proxy.await_struck(link.MAX_CONNECTIONS)
        backend.proxy.always(None)
        backend.proxy.release()
        for one in threads:
            one.join(60)
        assert backend.proxy.connections == link.MAX_CONNECTIONS


@pytest.mark.rival(29)
@pytest.mark.fault("F34")
def test_a_forked_child_has_connections_of_its_own(backend: RedisBackend) -> None:
    with opened(backend.open()) as store:
        acquired(store, "before")
        child = os.fork()
        if not child:
            ok = all(claim(store, f"child {number}").record.key == f"child {number}" for number in range(50))  # type: ignore[union-attr]
            os._exit(0 if ok else 1)
        ours: list[Any] = [claim(store, f"parent {number}").record for number in range(50)]
        assert [one.key for one in ours] == [f"parent {number}" for number in range(50)]
        assert os.waitpid(child, 0)[1] == 0
        assert backend.proxy.connections == 2
        assert len(run(store.read([id_of(f"child {n}") for n in range(50)], timeout=TIMEOUT))) == 50


# ── requirements on a server before it is used ──────────────────────────────────────────────────────────────────────


@pytest.mark.fault("F61")
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "volatile-lru", "allkeys-random"])
def test_a_server_that_evicts_is_refused_unless_explicitly_allowed(
    tmp_path: Path, private: RedisServer, policy: str, mode: Mode
) -> None:
    with Proxy("127.0.0.1", private.port) as proxy:
        backend = RedisBackend(tmp_path, private, proxy)
        backend.raw.config_set("maxmemory-policy", policy)
        client = SyncClient(backend) if mode == "blocking" else AsyncClient(backend)
        with pytest.raises(ConfigurationError, match=f"{policy}: when memory is short .*unsafe_eviction=allow"):
            client.run("order 7", lambda: None)
        client.close()
        with opened(backend.open(unsafe_eviction=True)) as store:
            assert claim(store, "order 7").verdict is Verdict.ACQUIRED
        backend.close()
