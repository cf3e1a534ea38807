"""Redis Streams: a consumer group, in which an entry stays pending until it is acknowledged.

If an entry has been idle for the ack deadline, the next consumer that asks takes it over (XAUTOCLAIM). `nack` and
`extend` set the idle time (XCLAIM with JUSTID, which does not count as a delivery).

The field `body` of an entry is the message. The other fields are its headers; a field named `id` is the sender's id.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onceward.errors import ConfigurationError
from onceward.protocol.extras import import_extra
from onceward.protocol.secrets import url_without_secrets

from .message import Delivery, Message

FIRST_ID = b"0-0"
BODY, ID, REASON = "body", "id", "reason"
RECLAIM_INTERVAL = 0.5
"""Seconds between two searches for entries that other consumers did not settle."""

RESPONSE_TIMEOUT = 5.0  # seconds until the server counts as unreachable; longer than any BLOCK that a consumer requests

MAX_CONNECTIONS = 8  # further `nack` calls wait for a free connection

LEAVE_GROUP = """
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
"""
"""Atomic: an entry delivered to this consumer in between would be lost together with its name."""

CLOCK_MARGIN = 0.005  # seconds; the server uses whole milliseconds and its own clock


class RedisStreamQueue:
    """A consumer `group` of a `stream` at the server `url`. Both are created if missing.

    A new group starts with the first entry. An entry that is not settled within `ack_deadline` seconds is delivered
    again. `dead_letter` is the stream of dead letters. `consumer` names this process in the group (default: host and
    process). `options` are passed to the Redis client.
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
        self._cursor = FIRST_ID
        self._reclaim_at = 0.0
        self._due: dict[bytes, float] = {}  # entries that this consumer delayed by `nack`, and when they are due

    async def open(self) -> None:
        client = import_extra("redis.asyncio", "Redis needs redis-py", 'pip install "onceward[redis]"')
        options = {
            "decode_responses": False,
            "socket_timeout": RESPONSE_TIMEOUT,
            "max_connections": MAX_CONNECTIONS,
            "timeout": RESPONSE_TIMEOUT,
            **self._options,
            **_parsed(client.connection.parse_url, self._url),
            "protocol": 2,  # replies to XREADGROUP have another shape in protocol 3
        }
        self._client = client.Redis.from_pool(client.BlockingConnectionPool(**options))
        await self._make_group()

    async def _make_group(self) -> None:
        from redis.exceptions import ResponseError

        try:
            await self._client.xgroup_create(self._stream, self._group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):  # the group exists, which is what we want
                raise

    async def close(self) -> None:
        """Leave the group, unless entries are pending under this name: the group would forget them with the name."""
        client, self._client = self._client, None
        if client is None:
            return
        try:
            await client.eval(LEAVE_GROUP, 1, self._stream, self._group, self._consumer)
        finally:
            await client.aclose()

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        try:
            return await self._receive(max_messages, wait)
        except Exception as error:
            if str(error).startswith("NOGROUP"):  # the stream was deleted, and the group with it
                await self._make_group()
            raise

    async def _receive(self, max_messages: int, wait: float) -> list[Delivery]:
        found = await self._reclaim(max_messages) if self._reclaim_at <= time.monotonic() else []
        if len(found) == max_messages:
            return found
        until = min([self._reclaim_at, *self._due.values()]) - time.monotonic()
        block = 0.0 if found else min(wait, until)
        fresh = await self._read_new(max_messages - len(found), max(1, int(block * 1000)) if block > 0 else None)
        if self._due and min(self._due.values()) <= time.monotonic():
            self._reclaim_at = 0.0
        return found + [self._delivery(id, fields, 1) for id, fields in fresh]

    async def _read_new(self, max_messages: int, block: int | None) -> Sequence[tuple[bytes, Mapping[bytes, bytes]]]:
        """Return the ids and fields of entries that were never delivered."""
        reply = await self._open_client().xreadgroup(
            self._group, self._consumer, {self._stream: ">"}, count=max_messages, block=block
        )
        return reply[0][1] if reply else ()

    def _open_client(self) -> Any:
        if self._client is None:
            raise ConfigurationError(f"{self.name} is not open")
        return self._client

    async def _reclaim(self, max_messages: int) -> list[Delivery]:
        """Take over entries that have been idle for too long, and delayed entries that are due."""
        idle = int(self._deadline * 1000)
        reclaimed: list[tuple[bytes, Mapping[bytes, bytes]]] = []
        while len(reclaimed) < max_messages:
            cursor, entries, *_ = await self._client.xautoclaim(
                self._stream,
                self._group,
                self._consumer,
                idle,
                start_id=self._cursor,
                count=max_messages - len(reclaimed),
            )
            reclaimed += [(id, fields) for id, fields in entries if fields is not None]  # None: deleted since
            self._cursor = cursor
            if cursor == FIRST_ID:
                now = time.monotonic()
                self._reclaim_at = now + RECLAIM_INTERVAL
                self._due = {id: at for id, at in self._due.items() if at > now}  # other consumers took the rest
                break
        counts = await self._counts([id for id, _ in reclaimed])
        return [self._delivery(id, fields, count) for (id, fields), count in zip(reclaimed, counts, strict=True)]

    async def _counts(self, ids: Sequence[bytes]) -> list[int]:
        """Return how often each was delivered. Only needed for redelivered entries."""
        if not ids:
            return []
        pipe = self._client.pipeline(transaction=False)
        for id in ids:
            pipe.xpending_range(self._stream, self._group, id, id, 1)
        return [found[0]["times_delivered"] if found else 2 for found in await pipe.execute()]

    def _delivery(self, id: bytes, fields: Mapping[bytes, bytes], count: int) -> Delivery:
        self._due.pop(id, None)
        decoded = {_text(name): value for name, value in fields.items()}
        body = decoded.pop(BODY, b"")
        headers = {name: _text(value) for name, value in decoded.items()}
        message_id = headers.get(ID) or f"{self._stream}/{id.decode()}"
        return Delivery(Message(body, message_id, headers, count), id)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        handles = [delivery.handle for delivery in deliveries]
        await self._open_client().xack(self._stream, self._group, *handles)

    async def nack(self, delivery: Delivery, delay: float) -> None:
        """Delay the entry for at most the ack deadline, because Redis accepts no negative idle time."""
        idle = max(0, int((self._deadline - delay) * 1000))
        await self._claim([delivery.handle], idle)
        self._due[delivery.handle] = time.monotonic() + min(delay, self._deadline) + CLOCK_MARGIN

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        await self._claim([delivery.handle for delivery in deliveries], 0)

    async def _claim(self, ids: list[bytes], idle: int) -> None:
        await self._client.xclaim(self._stream, self._group, self._consumer, 0, ids, idle=idle, justid=True)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if self._dead_letter is None:
            raise ConfigurationError(f"{self.name} has no dead letter stream", hint='pass dead_letter="orders:dead"')
        message = delivery.message
        fields = {**message.headers, BODY: message.body, ID: message.id, REASON: reason}
        await self._client.xadd(self._dead_letter, fields)
        await self.ack([delivery])


def _text(value: bytes) -> str:
    """Decode the bytes. Invalid UTF-8 stays distinguishable, because the value may be an id."""
    return value.decode("utf-8", "backslashreplace")


def _parsed(parse_url: Callable[[str], Mapping[str, Any]], url: str) -> dict[str, Any]:
    try:
        return dict(parse_url(url))
    except (ValueError, TypeError):  # its message may quote the password
        raise ConfigurationError(
            f"{url_without_secrets(url)!r} is not a Redis URL", hint="write redis://user:password@host:6379/0"
        ) from None
