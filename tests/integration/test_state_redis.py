"""`once.state` on Redis and Valkey: what is stored on the server, what a call costs, and what may be lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis

from onceward import Executed, Failed, Once, StoreUnavailable
from onceward.errors import ConfigurationError, StoreBroken, StoreFull, VersionSkew
from onceward.latest import StateEvent
from onceward.protocol.latest import EventDelivery
from onceward.stores.redis import latest
from onceward.stores.redis.calls import MAX_BATCH
from tests.clients import AsyncClient, Mode, SyncClient
from tests.integration.redis_backend import RedisBackend
from tests.integration.redis_deliverer import HISTORY
from tests.integration.trucks import BlockingState, at, current
from tests.servers.proxy import CUT_REPLY, LOSE_REPLY, LOSE_REQUEST, RESET_REPLY, RESET_REQUEST, Fault, Proxy
from tests.servers.redis import RedisServer, shared

MINUTE, WEEK, MONTH = 60_000, 7 * 86_400_000, 30 * 86_400_000  # ms, as the server counts
MIN_READER, MORE_SIZE, HEAD = 0, 20, 30  # where these lie in a state


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RedisBackend]:
    with Proxy("127.0.0.1", shared().port) as proxy:
        here = RedisBackend(tmp_path, shared(), proxy)
        yield here
        here.close()


@pytest.fixture
def client(backend: RedisBackend, mode: Mode) -> Iterator[SyncClient]:
    client = SyncClient(backend) if mode == "blocking" else AsyncClient(backend)
    yield client
    client.close()


@pytest.fixture
def trucks(client: SyncClient) -> BlockingState:
    return BlockingState(client)


def keys(backend: RedisBackend, kind: str) -> list[bytes]:
    return sorted(backend.raw.scan_iter(match=b"{%b}:%b:*" % (backend.prefix.encode(), kind.encode())))


def until(wanted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not wanted():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)


# ── what is stored ──


@pytest.mark.mission("E7")
def test_the_server_expires_messages_and_deleted_entities_but_never_states(
    backend: RedisBackend, trucks: BlockingState
) -> None:
    trucks.apply("truck", at(1, message_id="m"), "here", event_id="e")
    assert [backend.raw.pttl(key) for key in keys(backend, "n")] == [-1]
    ends = [backend.raw.pttl(key) for key in keys(backend, "m")]
    assert len(ends) == 2
    assert all(abs(end - WEEK) < MINUTE for end in ends)
    trucks.delete("truck", at(2))
    assert [abs(backend.raw.pttl(key) - MONTH) < MINUTE for key in keys(backend, "n")] == [True]
    trucks.apply("truck", at(3), "back")
    assert [backend.raw.pttl(key) for key in keys(backend, "n")] == [-1], "what came back stays"


@pytest.mark.mission("E7")
def test_what_has_expired_is_gone(backend: RedisBackend, client: SyncClient) -> None:
    trucks = BlockingState(client, window="20ms", keep_deleted="20ms")
    trucks.apply("here", at(1, message_id="m"), 1)
    trucks.delete("gone", at(5))
    until(lambda: len(keys(backend, "n")) == 1 and not keys(backend, "m"))
    assert trucks.get("here") == 1
    assert trucks.read("gone") is None
    assert trucks.apply("gone", at(4), "an older one").executed
    assert client.purge() == 0


def test_durations_beyond_all_numbers_of_lua_are_kept(backend: RedisBackend, client: SyncClient) -> None:
    trucks = BlockingState(client, window="400000w", keep_deleted="400000w", max_clock_skew=None)
    trucks.delete("truck", at(5, message_id="m"))
    assert trucks.apply("truck", at(5, message_id="m"), 1).reason == "mismatch"
    assert trucks.apply("truck", at(4), 1).reason == "stale_event_ignored"
    assert trucks.apply("truck", "9999-12-31T23:59:59.999999Z", 1).applied
    assert trucks.read("truck").ordering.event_time.year == 9999
    early = BlockingState(client, "early")
    assert early.apply("truck", "9999-12-31T23:59:59Z", 1).reason == "future_event_parked"
    assert early.apply("truck", "0001-01-01T00:00:00Z", 1).applied


def test_every_key_of_a_state_carries_the_same_hash_tag(backend: RedisBackend, trucks: BlockingState) -> None:
    trucks.apply_many([StateEvent(n, at(1, message_id=f"m{n}"), n, event_id=n) for n in range(5)])
    found = list(backend.raw.scan_iter(match=f"*{backend.prefix}*"))
    assert len(found) == 15
    assert {key.split(b"}")[0] for key in found} == {b"{" + backend.prefix.encode()}


@pytest.mark.mission("E4")
def test_a_mark_names_the_message_that_created_it(backend: RedisBackend, trucks: BlockingState) -> None:
    trucks.apply("truck", at(5, message_id="message 1"), 5, event_id="e")
    trucks.apply("truck", at(5, message_id="message 2"), 5, event_id="e")
    traces = sorted(backend.raw.get(key)[32:] for key in keys(backend, "m"))
    assert traces == [b"message 1", b"message 1", b"message 2"], "the event is traced to the message that came first"


def test_orders_of_any_length_come_back(trucks: BlockingState) -> None:
    """Longer than the part that is compared first, on both sides."""
    for length in (100, 160, 170, 180, 190, 200, 1024):
        ids = ["a" * length, "a" * (length - 1) + "b", "a" * (length - 1) + "\0"]
        reasons = [trucks.apply(length, at(5, message_id=id), id).reason for id in ids]
        assert reasons == ["applied", "applied", "stale_event_ignored"]
        assert trucks.read(length).ordering.message_id == trucks.get(length) == ids[1]


# ── what it costs ──


def test_a_batch_is_one_round_trip_and_a_large_one_a_few(backend: RedisBackend, trucks: BlockingState) -> None:
    trucks.apply("truck", at(0), 0)

    def trips(events: list[Any]) -> int:
        before = backend.proxy.exchanges
        trucks.apply_many(events)
        return backend.proxy.exchanges - before

    assert trips([StateEvent(n, at(1, message_id=f"m{n}"), n, event_id=n) for n in range(MAX_BATCH)]) == 1
    assert trips([(n, at(2), n) for n in range(2 * MAX_BATCH + 1)]) == 3
    assert trips([("truck", at(1, sequence=n), n) for n in range(900)]) == 1, "one entity, so one step"
    assert trucks.get("truck") == 899


def test_all_deliveries_of_an_entity_go_in_one_call() -> None:
    def chunks(entities: list[int]) -> list[list[int]]:
        return list(latest._chunks([EventDelivery(b"%d" % n, "", "", b"", None) for n in entities]))

    many = Random(1).choices(range(150), k=1_000)
    parts = chunks(many)
    assert sorted(position for part in parts for position in part) == list(range(1_000))
    assert all(len(part) <= MAX_BATCH for part in parts)
    homes = [{many[position] for position in part} for part in parts]
    assert sum(map(len, homes)) == len(set(many)), "no entity is in two of them"
    for part in parts:
        for entity in {many[position] for position in part}:
            mine = [position for position in part if many[position] == entity]
            assert mine == sorted(mine), "they keep their order"
    assert [len(part) for part in chunks([1] * 700 + [2, 3])] == [700, 2]


@pytest.mark.mission("C7")
def test_a_duplicate_writes_nothing(backend: RedisBackend, trucks: BlockingState) -> None:
    events = [("truck", at(5, message_id="m"), 5), ("truck", at(4, message_id="m4"), 4), ("car", at(1), 1)]
    trucks.apply_many(events)
    before = backend.raw.info("persistence")["rdb_changes_since_last_save"]
    assert {outcome.reason for outcome in trucks.apply_many(events)} == {"duplicate_message_noop"}
    assert backend.raw.info("persistence")["rdb_changes_since_last_save"] == before


# ── trouble ──


@pytest.mark.fault("F50", "F53")
@pytest.mark.parametrize("fault", [LOSE_REQUEST, LOSE_REPLY, RESET_REQUEST, RESET_REPLY, CUT_REPLY])
@pytest.mark.parametrize("times", [1, 3])
def test_whatever_is_lost_on_the_way_delivering_again_repairs_it(
    backend: RedisBackend, trucks: BlockingState, fault: Fault, times: int
) -> None:
    """A connection that had been used is replaced once silently; a second failure is raised."""
    trucks.apply("truck", at(1, message_id="m1"), 1)
    backend.proxy.next(fault, times=times)
    outcome = None
    while outcome is None:
        try:
            outcome = trucks.apply("truck", at(2, message_id="m2"), 2)
        except StoreUnavailable:
            assert times > 1
    assert outcome.reason in {"applied", "duplicate_message_noop"}
    assert len(backend.proxy.struck) == times
    assert trucks.get("truck") == 2
    assert trucks.apply("truck", at(2, message_id="m2"), 2).reason == "duplicate_message_noop"


@pytest.mark.fault("F62")
def test_a_full_server_keeps_neither_the_message_nor_the_state() -> None:
    server = RedisServer().begin()
    try:
        with Once(server.url()) as once:
            trucks = once.state("trucks")
            trucks.apply("truck", at(1, message_id="m1"), 1)
            raw: Any = redis.Redis(port=server.port)
            raw.config_set("maxmemory", "1")
            with pytest.raises(StoreFull, match="no memory left"):
                trucks.apply_many([("truck", at(2, message_id="m2"), 2), ("car", at(2, message_id="m2"), 2)])
            assert trucks.apply("truck", at(1, message_id="m1"), 1).replayed, "known messages still get their outcome"
            raw.config_set("maxmemory", "0")
            assert raw.dbsize() == 2
            assert trucks.apply("truck", at(2, message_id="m2"), 2).executed
            raw.close()
    finally:
        server.end()


@pytest.mark.fault("F67")
def test_an_entity_of_a_newer_version_is_left_alone_and_stops_no_other(
    backend: RedisBackend, trucks: BlockingState
) -> None:
    trucks.apply("new", at(1), 1)
    [key] = keys(backend, "n")
    backend.raw.setrange(key, MIN_READER, b"\x63")
    outcomes = trucks.apply_many([("new", at(2, message_id="m"), 2), ("old", at(2), 2)])
    assert isinstance(outcomes[0], Failed)
    assert isinstance(outcomes[0].exception, VersionSkew)
    assert isinstance(outcomes[1], Executed)
    with pytest.raises(VersionSkew, match="newer Onceward"):
        trucks.apply("new", at(3), 3)
    with pytest.raises(VersionSkew, match="newer Onceward"):
        trucks.get("new")
    assert keys(backend, "m") == []


@pytest.mark.fault("F67")
def test_fields_of_a_later_version_are_handed_on(backend: RedisBackend, trucks: BlockingState) -> None:
    trucks.apply("truck", at(1), "one")
    [key] = keys(backend, "n")
    state = backend.raw.get(key)
    order = int.from_bytes(state[MORE_SIZE - 2 : MORE_SIZE], "little")
    more = b"of 2031" * 40
    backend.raw.set(
        key,
        state[:MORE_SIZE] + len(more).to_bytes(2, "little") + state[MORE_SIZE + 2 : HEAD + order] + more
        + state[HEAD + order :],
    )  # fmt: skip
    assert trucks.get("truck") == "one"
    assert trucks.apply("truck", at(2, message_id="m" * 300), "two").executed
    assert trucks.get("truck") == "two"
    assert trucks.read("truck").entity == "truck"
    assert more in backend.raw.get(key)
    assert trucks.delete("truck", at(3)).executed
    assert more in backend.raw.get(key)
    assert trucks.read("truck").deleted


def test_a_key_that_holds_something_else_stops_no_other_entity(backend: RedisBackend, trucks: BlockingState) -> None:
    trucks.apply("spoilt", at(1), 1)
    [key] = keys(backend, "n")
    backend.raw.delete(key)
    backend.raw.hset(key, "a", "b")
    with pytest.raises(StoreBroken, match="holds another type"):
        trucks.apply_many([("a", at(1), 1), ("spoilt", at(2, message_id="m"), 2), ("b", at(1), 1)])
    assert (trucks.get("a"), trucks.get("b")) == (1, 1)
    assert keys(backend, "m") == [], "no mark without its state"
    backend.raw.delete(key)
    backend.raw.set(key, b"\1 too short")
    with pytest.raises(StoreBroken):
        trucks.apply("spoilt", at(2), 2)
    with pytest.raises(StoreBroken, match="edited by hand"):
        trucks.get("spoilt")


def test_there_is_no_transaction_to_join(trucks: BlockingState) -> None:
    with pytest.raises(ConfigurationError, match="transaction"):
        trucks.apply_in(object(), "truck", at(1), 1)


# ── many concurrent processes ──


def pool(url: str) -> list[subprocess.Popen[str]]:
    """Start sync and async processes, each with the whole history in an order of its own."""
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.integration.redis_deliverer", url, "async" if n % 2 else "blocking", str(n)],
            stdout=subprocess.PIPE, text=True,
        )
        for n in range(3)
    ]  # fmt: skip


def new_to(one: subprocess.Popen[str]) -> int:
    assert one.stdout is not None
    with one.stdout as output:
        last = output.read().splitlines()[-1]
    assert one.wait(60) == 0
    return int(last)


def assert_as_if_alone(url: str, folder: Path) -> None:
    """The state is what the history leaves, delivered once and in order, on another store."""
    with Once(url) as once, Once(f"sqlite:///{folder}/alone.db") as other:
        alone = other.state("trucks")
        alone.apply_many(HISTORY)
        for n in range(7):
            assert current(once.state("trucks"), f"truck {n}") == current(alone, f"truck {n}")


@pytest.mark.rival(18)
@pytest.mark.mission("E2", "E6")
def test_processes_that_deliver_one_history_end_in_its_state(tmp_path: Path) -> None:
    url = f"{shared().url()}&prefix={tmp_path.name}"
    new = [new_to(one) for one in pool(url)]
    events = {(one.entity, one.event_id or str(one.ordering)) for one in HISTORY}
    assert sum(new) == len(events), "each was new to exactly one of the processes"
    assert_as_if_alone(url, tmp_path)


@pytest.mark.rival(18)
@pytest.mark.mission("E2", "E6")
@pytest.mark.fault("F50", "F51", "F52", "F53")
def test_a_server_that_is_killed_under_them_changes_nothing(tmp_path: Path) -> None:
    server = RedisServer(settings=("--appendonly", "yes", "--appendfsync", "always", "--save", "")).begin()
    workers = pool(server.url())
    try:
        for strikes in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL):
            for one in workers:
                assert one.stdout is not None
                for _ in range(8):
                    one.stdout.readline()
            if strikes is signal.SIGKILL:
                server.kill()
                server.begin()
            else:
                server.send(signal.SIGSTOP)
                time.sleep(0.1)
                server.send(signal.SIGCONT)
        for one in workers:
            new_to(one)
        assert_as_if_alone(server.url(), tmp_path)
    finally:
        for one in workers:
            one.kill()
            one.wait()
        server.end()
