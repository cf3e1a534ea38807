"""Redis Streams: a consumer group. What is not acknowledged stays pending until somebody takes it over.

That is whoever asks next after it has been idle for the ack deadline (XAUTOCLAIM). `later` and `extend` set how long it
has been idle (XCLAIM; with JUSTID it does not count as a delivery).

An entry's field `body` is the message; its other fields are the headers, and one named `id` is the sender's id.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceward.errors import ConfigurationError, MissingExtra

from .message import Delivery, Message

if TYPE_CHECKING:
    from .redis_channel import StreamChannel

BEGIN = b"0-0"
BODY, ID, REASON = "body", "id", "reason"
BETWEEN_LOOKS = 0.5
"""Seconds until we look again for what others left behind."""

ANSWER = 5.0  # seconds until a server that says nothing is away; more than a consumer ever asks it to wait

CONNECTIONS = 8  # however many deliveries are put off at once, the others wait for their turn

LEAVE = """
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
"""
"""In one step: what is delivered to our name in between would be forgotten with it."""

A_MOMENT = 0.005  # seconds; the server counts in whole milliseconds, and on its own clock


class RedisStreamQueue:
    """A group of a stream, both made if there are none. It begins with the first entry of the stream.

    `dead_letter` is the stream of dead letters. `consumer` names this process in the group (default: host and process).
    """

    def __init__(
        self,
        url: str = "redis://127.0.0.1:6379/0",
        *,
        stream: str,
        group: str,
        consumer: str | None = None,
        dead_letter: str | None = None,
        ack_deadline: float = 30.0,
        **options: Any,
    ) -> None:
        self.name = f"redis/{stream}/{group}"
        self.ack_deadline: float | None = ack_deadline
        self.dead_letters = dead_letter is not None
        self._deadline = ack_deadline
        self._url = url
        self._stream = stream
        self._group = group
        self._consumer = consumer or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
        self._dead_letter = dead_letter
        self._options = options
        self._client: Any = None
        self._reading: StreamChannel | None = None
        self._acking: StreamChannel | None = None  # apart: who waits for messages keeps a connection busy
        self._named = stream.encode(), group.encode(), self._consumer.encode()
        self._cursor = BEGIN
        self._look_at = 0.0
        self._due: dict[bytes, float] = {}  # what we put off ourselves: we look again when it is due

    async def open(self) -> None:
        try:
            import redis.asyncio as client
        except ImportError as error:
            raise MissingExtra("Redis needs redis-py", hint='pip install "onceward[redis]"') from error
        from .redis_channel import StreamChannel

        options = {
            "decode_responses": False,
            "socket_timeout": ANSWER,
            "max_connections": CONNECTIONS,
            "timeout": ANSWER,
            **self._options,
        }
        self._client = client.Redis.from_pool(client.BlockingConnectionPool.from_url(self._url, **options))
        seconds = options["socket_timeout"] or ANSWER
        self._reading, self._acking = (StreamChannel(self._url, options, self.name, seconds) for _ in range(2))
        await self._make_group()

    async def _make_group(self) -> None:
        from redis.exceptions import ResponseError

        try:
            await self._client.xgroup_create(self._stream, self._group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):  # the group exists, which is what we want
                raise

    async def close(self) -> None:
        """Leaves the group, unless something is pending under our name: with the name, the group would forget it."""
        if self._client is None or self._reading is None or self._acking is None:
            return
        self._reading.close()  # first: what it gets after we have left would be nobody's
        try:
            await self._client.eval(LEAVE, 1, self._stream, self._group, self._consumer)
        finally:
            self._acking.close()
            await self._client.aclose()

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        try:
            return await self._receive(most, wait)
        except Exception as error:
            if str(error).startswith("NOGROUP"):  # the stream was deleted, and the group with it
                await self._make_group()
            raise

    async def _receive(self, most: int, wait: float) -> list[Delivery]:
        found = await self._left_behind(most) if self._look_at <= time.monotonic() else []
        if len(found) == most:
            return found
        until = min([self._look_at, *self._due.values()]) - time.monotonic()
        block = 0.0 if found else min(wait, until)
        fresh = await self._fresh(most - len(found), max(1, int(block * 1000)) if block > 0 else None)
        if self._due and min(self._due.values()) <= time.monotonic():
            self._look_at = 0.0
        return found + [self._first_delivery(id, pairs) for id, pairs in fresh]

    def _first_delivery(self, id: bytes, pairs: list[bytes]) -> Delivery:
        """Most entries have a body and nothing else, and nothing was put off that nobody had before."""
        if len(pairs) == 2 and pairs[0] == b"body":  # noqa: PLR2004 (a name and its value)
            return Delivery(Message(pairs[1], f"{self._stream}/{id.decode()}"), id)
        return self._delivery(id, dict(zip(pairs[::2], pairs[1::2], strict=True)), 1)

    async def _fresh(self, most: int, block: int | None) -> Sequence[tuple[bytes, list[bytes]]]:
        """Entries that nobody was given yet: their ids, and their fields, name by name and value by value."""
        if self._reading is None:
            raise ConfigurationError(f"{self.name} is not open")
        stream, group, consumer = self._named
        waiting = () if block is None else (b"BLOCK", b"%d" % block)
        reply = await self._reading.call(
            b"XREADGROUP", b"GROUP", group, consumer, b"COUNT", b"%d" % most, *waiting, b"STREAMS", stream, b">"
        )
        return reply[0][1] if reply else ()

    async def _left_behind(self, most: int) -> list[Delivery]:
        """What was delivered to somebody, and has been idle for too long; or was put off, and is due."""
        idle = int(self._deadline * 1000)
        again: list[tuple[bytes, Mapping[bytes, bytes]]] = []
        while len(again) < most:
            cursor, entries, *_ = await self._client.xautoclaim(
                self._stream, self._group, self._consumer, idle, start_id=self._cursor, count=most - len(again)
            )
            again += [(id, fields) for id, fields in entries if fields is not None]  # None: it was deleted meanwhile
            self._cursor = cursor
            if cursor == BEGIN:
                now = time.monotonic()
                self._look_at = now + BETWEEN_LOOKS
                self._due = {id: at for id, at in self._due.items() if at > now}  # the others have taken the rest
                break
        counts = await self._counts([id for id, _ in again])
        return [self._delivery(id, fields, count) for (id, fields), count in zip(again, counts, strict=True)]

    async def _counts(self, ids: Sequence[bytes]) -> list[int]:
        """How often each was delivered; only those that were delivered before have to be asked about."""
        if not ids:
            return []
        pipe = self._client.pipeline(transaction=False)
        for id in ids:
            pipe.xpending_range(self._stream, self._group, id, id, 1)
        return [found[0]["times_delivered"] if found else 2 for found in await pipe.execute()]

    def _delivery(self, id: bytes, fields: Mapping[bytes, bytes], count: int) -> Delivery:
        self._due.pop(id, None)
        told = {_text(name): value for name, value in fields.items()}
        body = told.pop(BODY, b"")
        headers = {name: _text(value) for name, value in told.items()}
        own = headers.get(ID) or f"{self._stream}/{id.decode()}"
        return Delivery(Message(body, own, headers, count), id)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        if self._acking is None:
            raise ConfigurationError(f"{self.name} is not open")
        stream, group, _ = self._named
        await self._acking.call(b"XACK", stream, group, *(delivery.handle for delivery in deliveries))

    async def later(self, delivery: Delivery, seconds: float) -> None:
        """At the latest after the ack deadline: no entry can have been idle since the future."""
        idle = max(0, int((self._deadline - seconds) * 1000))
        await self._claim([delivery.handle], idle)
        self._due[delivery.handle] = time.monotonic() + min(seconds, self._deadline) + A_MOMENT

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        await self._claim([delivery.handle for delivery in deliveries], 0)

    async def _claim(self, ids: list[bytes], idle: int) -> None:
        await self._client.xclaim(self._stream, self._group, self._consumer, 0, ids, idle=idle, justid=True)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if self._dead_letter is None:
            raise ConfigurationError(f"{self.name} has no dead letters", hint='give dead_letter="orders:dead"')
        message = delivery.message
        fields = {**message.headers, BODY: message.body, ID: message.id, REASON: reason}
        await self._client.xadd(self._dead_letter, fields)
        await self.ack([delivery])


def _text(value: bytes) -> str:
    """Bytes that are no text stay different from one another: an id may be among them."""
    return value.decode("utf-8", "backslashreplace")
