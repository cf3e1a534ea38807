"""The conformance tests of queues, on each real broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import redis

from onceward import AsyncOnce, ConfigurationError
from onceward.queues import Consumer, Message, Queue
from onceward.queues.nats import NatsQueue
from onceward.queues.redis_streams import RedisStreamQueue
from onceward.stores import MemoryStore
from onceward.testing.queues import QueueConformance
from onceward.testing.queues.base import HandlerLog, recording_handler, wait_until
from tests.queues.brokers import Broker, OnNats, OnRabbit, OnRedisStreams
from tests.servers import nats, rabbitmq
from tests.servers.nats import NatsServer
from tests.servers.process import free_port
from tests.servers.redis import RedisServer, shared


class OnBroker(QueueConformance):
    broker: Broker

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        return self.broker.queue(dead_letters=dead_letters, ack_deadline=ack_deadline)

    async def put(self, body: bytes, id: str) -> None:
        await self.broker.send([(body, id)])

    async def remaining(self) -> int:
        return await self.broker.remaining()

    async def dead_letters(self) -> list[bytes]:
        return await self.broker.dead_letters()

    def recreates_after(self, on: Callable[..., Coroutine[Any, Any, Any]], loss: Any) -> None:
        """What the consumer created at the broker was deleted: it creates it again."""

        async def story() -> None:
            async with self.consuming(recording_handler(AsyncOnce(MemoryStore()), seen := HandlerLog())):
                await self.send("a")
                await self.until_empty()
                await on(loss)

                async def arrives() -> bool:
                    await self.send("b")  # the first messages may have no queue yet
                    return "b" in seen.effects

                await wait_until(arrives)
            assert seen.effects == ["a", "b"]

        asyncio.run(story())


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestNats(OnBroker):
    @pytest.fixture(autouse=True)
    def _own_stream(self) -> None:
        self.broker = OnNats(nats.shared())
        asyncio.run(self.broker.make())

    def test_a_consumer_that_would_drop_messages_is_refused(self) -> None:
        from nats.js.api import ConsumerConfig

        async def make(context: Any) -> None:
            await context.add_consumer(self.broker.name, ConsumerConfig(durable_name="shop", max_deliver=3))

        assert isinstance(self.broker, OnNats)
        asyncio.run(self.broker.on(make))
        queue = self.queue(dead_letters=False, ack_deadline=1.0)
        with pytest.raises(ConfigurationError, match="drops a message after 3 deliveries"):
            Consumer(recording_handler(AsyncOnce(MemoryStore()), HandlerLog()), queue).run()

    def test_a_consumer_that_was_deleted_is_made_again(self) -> None:
        async def delete(context: Any) -> None:
            await context.delete_consumer(self.broker.name, "shop")

        assert isinstance(self.broker, OnNats)
        self.recreates_after(self.broker.on, delete)

    def test_dead_letters_of_two_streams_under_one_id_are_two(self) -> None:
        """JetStream keeps one message per id: the second dead letter would be acknowledged and dropped."""
        other = OnNats(nats.shared())

        async def story() -> None:
            await other.make()
            dead = f"{self.broker.name}.dead"
            for broker, body in ((self.broker, b"no JSON"), (other, b"no JSON either")):
                await broker.send([(body, "m1")])
                once = AsyncOnce(MemoryStore())
                queue = NatsQueue(broker.url, stream=broker.name, durable="shop", dead_letter=dead)
                async with self.running(Consumer(recording_handler(once, HandlerLog()), queue)):
                    await wait_until(lambda: once.counts.get("dead_lettered", 0) == 1)  # noqa: B023 (awaited here)
            assert await self.dead_letters() == [b"no JSON", b"no JSON either"]

        asyncio.run(story())

    def test_a_message_that_looks_like_a_status_of_the_server_is_a_message(self) -> None:
        async def publish(context: Any) -> None:
            for status in ("503", "404"):
                await context.publish(f"{self.broker.name}.new", b"", headers={"Status": status})
            await context.publish(f"{self.broker.name}.new", b'{"id": "a"}')

        async def story() -> None:
            assert isinstance(self.broker, OnNats)
            await self.broker.on(publish)
            once, seen = AsyncOnce(MemoryStore()), HandlerLog()
            async with self.consuming(recording_handler(once, seen), dead_letters=True):
                await self.until_empty()
            assert seen.effects == ["a"]
            assert len(await self.dead_letters()) == 2

        asyncio.run(story())

    def test_a_dead_letter_that_is_as_large_as_can_be_ends_no_connection(self) -> None:
        async def story() -> None:
            large = b"x" * (1024 * 1024 - 80)  # with its own header, it just fits
            once = AsyncOnce(MemoryStore())
            async with self.consuming(recording_handler(once, HandlerLog()), dead_letters=True):
                await self.put(large, "m1")
                await self.until_empty()
            assert await self.dead_letters() == [large]
            assert once.counts.get("queue_failed", 0) == 0

        asyncio.run(story())

    def test_a_server_that_falls_silent_is_reported_and_found_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("onceward.queues.nats.RESPONSE_TIMEOUT", 1.0)
        server = NatsServer().begin()
        self.broker = OnNats(server)

        async def story() -> None:
            await self.broker.make()
            once, seen = AsyncOnce(MemoryStore()), HandlerLog()
            async with self.consuming(recording_handler(once, seen)):
                await self.send("a")
                await self.until_empty()
                os.kill(server.pid, signal.SIGSTOP)
                await wait_until(lambda: once.counts.get("queue_failed", 0) > 0)
                os.kill(server.pid, signal.SIGCONT)
                await self.send("b")
                await self.until_empty()
            assert seen.effects == ["a", "b"]

        try:
            asyncio.run(story())
        finally:
            os.kill(server.pid, signal.SIGCONT)
            server.end()

    def test_a_server_that_is_not_there_at_the_start_is_an_error(self) -> None:
        queue = NatsQueue(f"nats://127.0.0.1:{free_port()}", stream="orders", durable="shop")
        with pytest.raises(ConnectionError, match="no NATS server responds for nats/orders/shop"):
            asyncio.run(queue.open())


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestRedisStreams(OnBroker):
    @pytest.fixture(autouse=True)
    def _own_stream(self) -> None:
        self.broker = OnRedisStreams(shared("valkey"))

    def test_a_consumer_that_goes_leaves_the_group(self) -> None:
        self.test_completed_work_is_acknowledged()
        with redis.Redis.from_url(self.broker.url) as client:
            assert client.xinfo_consumers(self.broker.name, "shop") == []

    def test_a_url_may_ask_for_the_newer_protocol_and_entries_may_have_more_fields(self) -> None:
        async def story() -> None:
            with redis.Redis.from_url(self.broker.url) as client:
                client.xadd(self.broker.name, {"body": b"1", "id": "m1", "mode": "red"})
                client.xadd(self.broker.name, {"body": b"2\r\n"})
            queue = RedisStreamQueue(f"{self.broker.url}?protocol=3", stream=self.broker.name, group="shop")
            await queue.open()
            first, second = await queue.receive(10, 1.0)
            assert (first.message, first.message.id, first.message.headers["mode"]) == (b"1", "m1", "red")
            assert (second.message, dict(second.message.headers)) == (b"2\r\n", {})
            assert second.message.id == f"{self.broker.name}/{second.handle.decode()}"
            await queue.ack([first, second])
            await queue.close()
            with pytest.raises(ConfigurationError, match="not open"):
                await queue.ack([first])
            await self.until_empty()

        asyncio.run(story())

    def test_a_stream_that_was_deleted_is_made_again(self) -> None:
        async def delete(client: Any) -> None:
            client.delete(self.broker.name)

        async def on(call: Any) -> None:
            with redis.Redis.from_url(self.broker.url) as client:
                await call(client)

        self.recreates_after(on, delete)

    def test_a_large_batch_is_delayed_without_a_connection_for_each(self) -> None:
        """redis-py refuses the 101st connection; the consumer would then treat the broker as down."""
        once = AsyncOnce(MemoryStore())
        failures: list[str] = []
        once.subscribe(lambda event: failures.append(event.error) if event.name == "queue_failed" else None)

        @once(key="{event[id]}", name="book", max_attempts=2)
        async def book(event: dict[str, Any]) -> None:
            raise ValueError("not now")

        async def story() -> None:
            await self.broker.send([(json.dumps({"id": n}).encode(), f"m{n}") for n in range(300)])
            queue = self.queue(dead_letters=True, ack_deadline=self.ack_deadline)
            async with self.running(Consumer(book, queue, concurrency=150, first_delay="50ms")):
                await self.until_empty()
            assert len(await self.dead_letters()) == 300
            # on a busy machine, a connection may be made too late: "Timeout connecting to server"
            assert not [error for error in failures if "connecting" not in error]

        asyncio.run(story())

    def test_ids_that_are_no_text_stay_different(self) -> None:
        once, seen = AsyncOnce(MemoryStore()), HandlerLog()

        @once(name="count")
        async def count(event: dict[str, Any], message: Message) -> None:
            seen.effects.append(message.id)

        async def story() -> None:
            with redis.Redis.from_url(self.broker.url) as client:
                for id in (b"\xff", b"\xfe", b"\xff"):
                    client.xadd(self.broker.name, {"body": b"{}", "id": id})
            async with self.consuming(count):
                await self.until_empty()
            assert sorted(seen.effects) == ["\\xfe", "\\xff"]

        asyncio.run(story())

    def test_a_consumer_that_ends_while_its_server_is_away_ends_in_order(self) -> None:
        server = RedisServer("valkey").begin()
        self.broker = OnRedisStreams(server)

        async def story() -> None:
            once = AsyncOnce(MemoryStore())
            async with self.consuming(recording_handler(once, HandlerLog())):
                await self.send("a")
                await wait_until(lambda: once.counts.get("completed", 0) == 1)
                server.kill()
                await wait_until(lambda: once.counts.get("queue_failed", 0) > 0)

        try:
            asyncio.run(story())
        finally:
            server.end()


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestRabbit(OnBroker):
    @pytest.fixture(autouse=True)
    def _own_queue(self) -> None:
        self.broker = OnRabbit(rabbitmq.shared())
        asyncio.run(self.broker.make())

    def test_a_queue_that_was_deleted_is_made_again(self) -> None:
        async def delete(channel: Any) -> None:
            await channel.queue_delete(self.broker.name)

        assert isinstance(self.broker, OnRabbit)
        self.recreates_after(self.broker.on, delete)

    def test_headers_that_only_a_broker_should_write_cost_no_message(self) -> None:
        import aio_pika

        async def publish(channel: Any) -> None:
            odd: list[Any] = ["many", -7, None, []]
            for number, value in enumerate(odd):
                headers = {"x-delivery-count": value, "x-onceward-deliveries": value}
                message = aio_pika.Message(json.dumps({"id": number}).encode(), message_id=str(number), headers=headers)
                await channel.default_exchange.publish(message, routing_key=self.broker.name)

        async def story() -> None:
            assert isinstance(self.broker, OnRabbit)
            await self.broker.on(publish)
            async with self.consuming(recording_handler(AsyncOnce(MemoryStore()), seen := HandlerLog())):
                await wait_until(lambda: len(seen) == 4)

        asyncio.run(story())
