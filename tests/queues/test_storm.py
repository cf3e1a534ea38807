"""Every effect happens once and nothing is left in the queue, whatever is killed meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.queues.brokers import OnNats, OnRabbit, OnRedisStreams
from tests.queues.storm import storm
from tests.servers import rabbitmq
from tests.servers.nats import NatsServer
from tests.servers.redis import RedisServer

MESSAGES = int(os.environ.get("ONCEWARD_STORM_MESSAGES", "2000"))
FEWER = int(
    os.environ.get("ONCEWARD_STORM_MESSAGES", "600")
)  # for the other brokers: they get the same kills; the soak sends all
KILLS = int(os.environ.get("ONCEWARD_STORM_KILLS", "2"))
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def nats_server() -> Iterator[NatsServer]:
    server = NatsServer().begin()
    yield server
    server.end()


@pytest.fixture
def valkey() -> Iterator[RedisServer]:
    server = RedisServer("valkey", DURABLE).begin()
    yield server
    server.end()


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F71")
@pytest.mark.timeout(6 * 3600)  # in the soak
class TestStorm:
    def test_nats(self, nats_server: NatsServer, tmp_path: Path) -> None:
        done = storm(OnNats(nats_server), nats_server, tmp_path / "shop.db", messages=FEWER, kills=KILLS)
        assert done.passed, done

    def test_redis_streams_on_valkey(self, valkey: RedisServer, tmp_path: Path) -> None:
        done = storm(OnRedisStreams(valkey), valkey, tmp_path / "shop.db", messages=MESSAGES, kills=KILLS)
        assert done.passed, done

    def test_rabbitmq(self, tmp_path: Path) -> None:
        server = rabbitmq.shared()  # it takes some seconds to start; the other tests do not run meanwhile
        done = storm(OnRabbit(server), server, tmp_path / "shop.db", messages=FEWER, kills=KILLS)
        assert done.passed, done
