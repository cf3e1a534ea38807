"""Where a Redis store may live, what it leaves there, and what it asks of the server."""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from onceward import AsyncOnce, Once, open_store
from onceward.errors import ConfigurationError, MissingExtra, StoreUnavailable
from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.ports import Filter
from onceward.protocol.record import AfterCrash, Record
from onceward.protocol.requests import Complete, Fail, Park, Release, Validity, Verdict
from onceward.protocol.transitions import CLOCK_MARGIN
from onceward.queues.redis_streams import RedisStreamQueue
from onceward.runtime.threads import run
from onceward.stores.redis import RedisStore, safety
from tests.integration.redis_backend import TIMEOUT, RedisBackend, acquired, claim, opened
from tests.servers.process import free_port
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer, shared

HOUR = 3600 * 1_000_000
SECOND = 1_000_000


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RedisBackend]:
    with Proxy("127.0.0.1", shared().port) as proxy:
        here = RedisBackend(tmp_path, shared(), proxy)
        yield here
        here.close()


@pytest.fixture
def private() -> Iterator[RedisServer]:
    server = RedisServer().begin()
    yield server
    server.end()


def work() -> str:
    return "done"


# ── where ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("B4")
def test_a_store_is_opened_by_its_url(backend: RedisBackend) -> None:
    with Once(f"{backend.server.url()}&prefix={backend.prefix}") as once:
        assert once.run("order 7", work) == "done"
    with Once(open_store(f"{backend.server.url(database=3)}&prefix={backend.prefix}")) as once:
        assert once.outcome("order 7", work).replayed is False, "another database has other records"


def test_a_store_can_be_reached_by_a_unix_socket(backend: RedisBackend) -> None:
    with Once(f"unix://{backend.server.socket}?db=0&unsafe_persistence=allow&prefix={backend.prefix}") as once:
        assert once.run("order 7", work) == "done"
        assert once.outcome("order 7", work).replayed


@pytest.mark.parametrize("module", [redis, redis.asyncio], ids=["redis.Redis", "redis.asyncio.Redis"])
def test_the_users_own_client_says_where(backend: RedisBackend, module: Any) -> None:
    """A sync or async client, for either kind of Onceward client: only its address and credentials are used."""
    client = module.Redis(host="127.0.0.1", port=backend.server.port, decode_responses=True, socket_timeout=0.001)

    def store() -> RedisStore:
        return RedisStore(client, prefix=backend.prefix, unsafe_persistence=True)

    with Once(store()) as once:
        assert once.run("order 7", work) == "done"

    async def story() -> None:
        async with AsyncOnce(store()) as once:
            assert (await once.outcome("order 7", awaited)).replayed
        if module is redis.asyncio:
            await client.aclose()

    asyncio.run(story())
    if module is redis:
        client.close()


async def awaited() -> str:
    return "done"


awaited.__name__ = awaited.__qualname__ = "work"  # the same work, sync and async


def test_one_client_works_sync_and_async(backend: RedisBackend) -> None:
    with Once(backend.open()) as once:
        assert once.run("order 7", work) == "done"
        assert asyncio.run(once.aio.outcome("order 7", awaited)).replayed
        assert asyncio.run(once.aio.outcome("order 8", awaited)).replayed is False, "on a loop of its own again"
        assert once.outcome("order 8", work).replayed


def test_tls_and_a_password(tmp_path: Path) -> None:
    key, certificate, port = tmp_path / "key.pem", tmp_path / "cert.pem", free_port()
    make_certificate(key, certificate)
    server = RedisServer(
        "redis7",
        ("--save", "", "--requirepass", "s e:cret@", "--tls-port", str(port), "--tls-auth-clients", "no",
         "--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
    )  # fmt: skip
    server.start(lambda _: True)
    url = f"rediss://:s%20e%3Acret%40@localhost:{port}/0?ssl_ca_certs={certificate}&unsafe_persistence=allow"
    try:
        wait_for(port)
        with Once(url) as once:
            assert once.run("order 7", work) == "done"
            assert asyncio.run(once.aio.outcome("order 7", awaited)).replayed
            assert "cret" not in once.store.name
        assert asyncio.run(first_message(url.partition("&")[0])) == b"over TLS"
        with pytest.raises(ConfigurationError, match="password is wrong"), Once(url.replace("cret", "crat")) as once:
            once.run("order 7", work)
        with (
            pytest.raises(ConfigurationError, match="requires a password"),
            Once(f"redis://localhost:{server.port}") as no,
        ):
            no.run("order 7", work)
    finally:
        server.end()


async def first_message(url: str) -> bytes:
    """Read and acknowledge a message of a stream by the connection of the queue."""
    async with redis.asyncio.Redis.from_url(url) as client:
        await client.xadd("orders", {"body": b"over TLS"})
        queue = RedisStreamQueue(url, stream="orders", group="shop")
        await queue.open()
        [delivery] = await queue.receive(1, 5.0)
        await queue.ack([delivery])
        await queue.close()
        left: Any = await client.xpending("orders", "shop")
    assert left["pending"] == 0
    return delivery.message.body


def make_certificate(key: Path, certificate: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip


def wait_for(port: int) -> None:
    for _ in range(500):
        try:
            threading.Event().wait(0.01)
            redis.connection.socket.create_connection(("127.0.0.1", port)).close()  # type: ignore[attr-defined]
        except OSError:
            continue
        return


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://localhost:port", "not a Redis URL"),
        ("redis://localhost/0?unsafe_eviction=yes", "unsafe_eviction='yes' is not allowed"),
        ("redis://localhost/0?unsafe_eviction=allow&unsafe_eviction=allow", "given twice"),
        ("redis://localhost/0?prefix={x}", "is not a valid prefix"),
        ("redis://localhost/0?prefix=", "is not a valid prefix"),
        ("redis://u:secret@localhost/0#x", "not a Redis URL"),
    ],
)
def test_an_invalid_url_is_refused_before_connecting(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as error:
        open_store(url)
    assert "secret" not in str(error.value)


def test_an_unknown_setting_is_refused_by_name() -> None:
    with (
        pytest.raises(ConfigurationError, match="no_such_setting"),
        Once("redis://localhost/0?no_such_setting=1") as once,
    ):
        once.run("order 7", work)


def test_a_client_of_something_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a client of one Redis server"):
        RedisStore(object())


def test_the_error_for_a_missing_driver_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(__import__("sys").modules):
        if name == "redis" or name.startswith(("redis.", "onceward.stores.redis")):
            monkeypatch.delitem(__import__("sys").modules, name)
    monkeypatch.setitem(__import__("sys").modules, "redis", None)
    with pytest.raises(MissingExtra, match=r"onceward\[redis\]"):
        open_store("redis://localhost/0")


def test_a_store_travels_to_another_process_by_its_settings(backend: RedisBackend) -> None:
    with opened(backend.open()) as store:
        acquired(store, "order 7")
        copy = pickle.loads(pickle.dumps(store))
        assert copy.name == store.name
        with opened(copy):
            assert claim(copy, "order 7").verdict is Verdict.RUNNING


def test_a_closed_store_says_so(backend: RedisBackend) -> None:
    store = backend.open()
    with pytest.raises(StoreUnavailable, match="is not open"):
        claim(store, "order 7")


# ── what it leaves on the server ────────────────────────────────────────────────────────────────────────────────────


def settle(store: RedisStore, request: Any) -> Record:
    [answer] = run(store.settle([request], timeout=TIMEOUT))
    assert answer.verdict is Verdict.OK
    [stored] = run(store.read([request.id], timeout=TIMEOUT))
    assert stored.record is not None
    return stored.record


def owner(record: Record) -> tuple[bytes, int, bytes]:
    return record.id, record.token, record.nonce


@pytest.mark.mission("E7")
def test_a_record_expires_with_its_window_and_only_if_it_has_one(backend: RedisBackend) -> None:
    """To the millisecond: the later of its end and its token, and the margin of the clock."""
    with opened(backend.open()) as store:
        hour = Validity(lasting=HOUR)
        records = {
            "live": acquired(store, "live", lease=HOUR),
            "no lease": acquired(store, "no lease", lease=None),
            "live, to be parked": acquired(store, "live, to be parked", after_crash=AfterCrash.PARK),
            "live, to be verified": acquired(store, "live, to be verified", after_crash=AfterCrash.VERIFY),
            "live, the last attempt": acquired(store, "live, the last attempt", max_attempts=1),
            "done": settle(store, Complete(*owner(acquired(store, "done")), validity=hour)),
            "done forever": settle(store, Complete(*owner(acquired(store, "done forever")))),
            "failed": settle(store, Fail(*owner(acquired(store, "failed")), retry_in=HOUR)),
            "failed for good": settle(
                store, Fail(*owner(acquired(store, "failed for good")), final=True, validity=hour)
            ),
            "parked": settle(store, Park(*owner(acquired(store, "parked")))),
            "free": settle(store, Release(*owner(acquired(store, "free")))),
        }
        ends = {
            "live": records["live"].claimed_at + HOUR + KEEP_UNFINISHED,
            "done": records["done"].valid_until,
            "failed": records["failed"].updated_at + HOUR + KEEP_UNFINISHED,
            "failed for good": records["failed for good"].valid_until,
            "free": records["free"].token,
        }
        for name, record in records.items():
            expires = backend.raw.execute_command("PEXPIRETIME", backend.name(record.id))
            end = ends.get(name)
            if end is None:
                assert expires == -1, name
            else:
                assert 0 <= expires * 1000 - end - CLOCK_MARGIN <= SECOND, name


@pytest.mark.rival(28)
def test_a_purge_visits_no_records_because_the_server_expires_them(backend: RedisBackend) -> None:
    with opened(backend.open()) as store:
        claimed = [acquired(store, f"key {number}") for number in range(5)]
        before = backend.proxy.exchanges
        assert run(store.purge(10_000, timeout=TIMEOUT)) == 0
        assert backend.proxy.exchanges - before <= 2, "only the audit trail is trimmed; the server may lack the script"
        backend.raw.pexpire(backend.name(claimed[0].id), 1)
        while backend.raw.exists(backend.name(claimed[0].id)):
            threading.Event().wait(0.005)
        page = run(store.scan(Filter(), cursor=None, limit=10, timeout=TIMEOUT))
        assert {record.id for record in page.records} == {one.id for one in claimed[1:]}, "nothing of it is left"
        assert sum(run(store.counts(timeout=TIMEOUT)).values()) == 4


@pytest.mark.rival(28)
def test_scans_and_counts_work_in_small_steps(backend: RedisBackend) -> None:
    with opened(backend.open()) as store:
        ids = {acquired(store, f"key {number}").id for number in range(1_200)}
        before = backend.proxy.exchanges
        assert sum(run(store.counts(timeout=TIMEOUT)).values()) == len(ids)
        assert backend.proxy.exchanges - before >= 3, "the server never handles all of it in one call"
        found, cursor = [], None
        while True:
            page = run(store.scan(Filter(), cursor=cursor, limit=700, timeout=TIMEOUT))
            found += [record.id for record in page.records]
            cursor = page.cursor
            if cursor is None:
                break
        assert sorted(found) == sorted(ids)


@pytest.mark.rival(5, 25)
def test_the_payload_is_still_compared_when_the_work_is_done(backend: RedisBackend) -> None:
    with opened(backend.open()) as store:
        claimed = acquired(store, "order 7", fingerprint=b"\1one")
        settle(store, Complete(*owner(claimed), result=b"it"))
        assert claim(store, "order 7", fingerprint=b"\1one").verdict is Verdict.REPLAY
        assert claim(store, "order 7", fingerprint=b"\1two").verdict is Verdict.MISMATCH


@pytest.mark.fault("F69")
def test_a_waiting_caller_is_woken_by_another_process(backend: RedisBackend) -> None:
    """The server wakes it: the store that settles does not know the one that waits."""
    woken = threading.Event()
    with opened(backend.open()) as settles, opened(backend.open()) as waits:
        claimed = acquired(settles, "order 7")
        stop = waits.watch(claimed.id, woken.set)
        channel = b"{%b}:w:%b" % (backend.prefix.encode(), claimed.id)
        for _ in range(2_000):
            if dict(backend.raw.pubsub_numsub(channel))[channel]:
                break
            threading.Event().wait(0.005)
        settle(settles, Complete(*owner(claimed)))
        assert woken.wait(60)
        stop()
        stop()


# ── what it asks of the server ──────────────────────────────────────────────────────────────────────────────────────


def first_run(url: str) -> Any:
    with Once(url) as once:
        return once.run("order 7", work)


def plain(server: RedisServer, query: str = "", user: str = "") -> str:
    return f"redis://{user}127.0.0.1:{server.port}/0?{query}"


@pytest.mark.fault("F63")
def test_a_server_without_persistence_is_refused_unless_explicitly_allowed(private: RedisServer) -> None:
    with pytest.raises(ConfigurationError, match=r"keeps nothing through a restart .*unsafe_persistence=allow"):
        first_run(plain(private))
    assert first_run(plain(private, "unsafe_persistence=allow")) == "done"


def test_a_server_that_only_takes_snapshots_is_warned_about(
    private: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with redis.Redis(port=private.port) as raw:
        raw.config_set("save", "3600 1")
    caplog.set_level(logging.WARNING, "onceward.redis")
    assert first_run(plain(private)) == "done"
    assert [one.getMessage() for one in caplog.records if "snapshot" in one.getMessage()]


async def test_the_warning_is_logged_once_for_many_concurrent_first_calls(
    private: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with redis.Redis(port=private.port) as raw:
        raw.config_set("save", "3600 1")
    caplog.set_level(logging.WARNING, "onceward.redis")
    async with AsyncOnce(plain(private)) as once:
        await asyncio.gather(*(once.run(f"order {number}", nothing) for number in range(20)))
    assert len([one for one in caplog.records if "snapshot" in one.getMessage()]) == 1


async def nothing() -> None: ...


def test_a_server_that_appends_is_fine(private: RedisServer) -> None:
    with redis.Redis(port=private.port) as raw:
        raw.config_set("appendonly", "yes")
    assert first_run(plain(private)) == "done"


def test_a_user_without_permission_to_read_the_configuration_gets_an_error_that_says_what_to_allow(
    private: RedisServer,
) -> None:
    with redis.Redis(port=private.port) as raw:
        raw.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~{onceward}*", "&{onceward}*", "+@read", "+@write",
                            "+@scripting", "+@connection", "+time", "+publish")  # fmt: skip
        url = plain(private, user="app:pw@")
        with pytest.raises(ConfigurationError, match=r"does not report its maxmemory-policy.*\+info"):
            first_run(url)
        with pytest.raises(ConfigurationError, match=r"does not report whether it keeps.*\+config\|get"):
            first_run(f"{url}unsafe_eviction=allow")
        assert first_run(f"{url}unsafe_eviction=allow&unsafe_persistence=allow") == "done"
        raw.execute_command("ACL", "SETUSER", "app", "+info", "+config|get")
        raw.config_set("appendonly", "yes")
        assert first_run(url) == "done"
        raw.execute_command("ACL", "SETUSER", "app", "resetkeys", "~other:*")
        with pytest.raises(ConfigurationError, match="ACL rules deny"):
            first_run(url)


async def test_a_server_that_still_reads_its_data_is_not_judged_by_what_it_says_meanwhile() -> None:
    """While loading, it reports that it does not append to a file: seen on a server that was killed and restarted."""

    async def ask(_: bytes) -> bytes:
        return b"redis_version:9.1.0\r\nloading:1\r\naof_enabled:0\r\nmaxmemory_policy:noeviction\r\n"

    with pytest.raises(StoreUnavailable, match="still loading its data"):
        await safety.read_server_info(ask, "redis://localhost")


@pytest.mark.parametrize("version", ["6.0.16", "5.0.7"])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    facts = safety.ServerInfo(version, "noeviction", appends=True, snapshots=None)
    with pytest.raises(ConfigurationError, match=r"needs Redis 6\.2 or newer"):
        safety.raise_if_unsafe(facts, "redis://localhost", unsafe_eviction=False, unsafe_persistence=False)
