"""The log while a store is down, full or not set up: one line when that begins, one when it ends."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from onceward import Once, StoreUnavailable
from onceward.errors import StoreFull, StoreNotSetUp
from onceward.stores import MemoryStore
from tests.clients import Backend, SyncClient
from tests.faulty import FaultyBackend, FaultyNetwork, FaultyStore
from tests.integration.redis_backend import RedisBackend
from tests.servers.postgres import Postgres, new_database
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer


@pytest.fixture
def network() -> FaultyNetwork:
    return FaultyNetwork()


@pytest.fixture
def faulty(backend: Backend, network: FaultyNetwork) -> SyncClient:
    return SyncClient(FaultyBackend(backend, network))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def fail_ten_times(client: SyncClient) -> None:
    for number in range(10):
        with pytest.raises(StoreUnavailable):
            client.run(f"k{number}", int)


@pytest.mark.finding("N24")
@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO, logging.DEBUG])
def test_an_outage_is_one_line_and_its_end_is_another(
    faulty: SyncClient, network: FaultyNetwork, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    caplog.set_level(level, "onceward")
    for _ in range(2):  # a second outage is logged like the first
        caplog.clear()
        network.lose_requests("claim")
        fail_ten_times(faulty)
        [down] = lines(caplog)
        assert down.startswith("claim_failed k0 [default/shared]")
        assert down.endswith("the store does not respond, so further problems are only counted until it does")
        network.heal()
        faulty.run("again", int)
        faulty.forget("again")
        _, up, *more = lines(caplog)
        assert up.startswith("the store responds again after ")
        assert up.endswith("problems not logged: 9 (9 claim_failed)")
        assert [one.partition(" ")[0] for one in more] == ["forgotten"]


@pytest.mark.finding("N24")
def test_failed_renewals_are_counted_and_listeners_get_every_event(
    faulty: SyncClient, network: FaultyNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    with faulty.claim("slow", lease="60s"):
        network.lose_requests("renew")
        for _ in range(5):
            faulty.clock.advance("25s")
            faulty.renew_leases()
        network.heal()
        faulty.clock.advance("25s")
        faulty.renew_leases()
    failed = len(faulty.events_named("renewal_failed"))
    assert failed > 1
    down, up = lines(caplog)
    assert down.startswith("renewal_failed slow [default/shared]")
    assert f"{failed - 1} renewal_failed" in up


@pytest.mark.finding("N24")
def test_results_that_are_sent_again_are_counted(
    faulty: SyncClient, network: FaultyNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    network.lose_requests("settle", 4)
    faulty.run("k", int)
    assert len(faulty.events_named("settle_retried")) == 4
    down, up = lines(caplog)
    assert down.startswith("settle_retried k [default/shared]")
    assert up.endswith("problems not logged: 3 (3 settle_retried)")


@pytest.mark.finding("N24")
def test_a_wait_that_times_out_is_no_outage(client: SyncClient, caplog: pytest.LogCaptureFixture) -> None:
    client.silent_owner("k", lease="1h")
    for _ in range(2):
        client.another(wait="1ms").outcome("k", int)
    assert not [one for one in lines(caplog) if "does not respond" in one]


@pytest.mark.finding("N24")
def test_the_end_of_an_outage_is_logged_without_a_listener_too(
    network: FaultyNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    """At the level WARNING nothing asks for the events that show that the store responds."""
    caplog.set_level(logging.WARNING, "onceward")
    with Once(FaultyStore(MemoryStore(), network)) as once:
        network.lose_requests("claim")
        for number in range(2):
            with pytest.raises(StoreUnavailable):
                once.run(f"k{number}", int)
        network.heal()
        for number in range(2):
            once.run(f"k{number}", int)
    _, up = lines(caplog)
    assert up.startswith("the store responds again")
    assert not once.engine.bus.loud(logging.INFO), "events that nothing logs are not built any more"


@pytest.mark.finding("N24")
def test_a_full_store_is_one_line_although_it_still_replays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = RedisServer().begin()
    with Proxy("127.0.0.1", server.port) as proxy:
        backend = RedisBackend(tmp_path, server, proxy)
        client = SyncClient(backend)
        client.run("done", int)
        backend.raw.config_set("maxmemory", "1")
        for number in range(10):
            with pytest.raises(StoreFull, match="no memory left"):
                client.run(f"k{number}", int)
            client.run("done", int)
        backend.raw.config_set("maxmemory", "0")
        client.run("new", int)
        client.close()
        backend.close()
    server.end()
    full, again = lines(caplog)
    assert full.startswith("claim_failed k0 [default/shared]")
    assert "StoreFull; the store cannot be used, so further problems are only counted until it writes again" in full
    assert again.startswith("the store works again after ")
    assert again.endswith("problems not logged: 9 (9 claim_failed)")


@pytest.mark.finding("N24")
def test_a_store_without_tables_is_one_line_until_they_exist(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    with Once(new_database(postgres, "without_tables")) as once:
        for number in range(10):
            with pytest.raises(StoreNotSetUp):
                once.run(f"k{number}", int)
        once.migrate()
        once.run("k0", int)
    missing, again = lines(caplog)
    assert missing.startswith("not_set_up")
    assert "run `onceward migrate" in missing
    assert again.startswith("the store works again after ")
    assert again.endswith("problems not logged: 19 (10 claim_failed, 9 not_set_up)")
